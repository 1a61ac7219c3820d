/** Names folders for transformers.js. */
export const onnxFolderSignature = {
  name: 'onnx-folder',
  label: 'transformers.js',
  files: 'ONNX',
  extensions: [] as readonly string[],
  isFolder: true,
  /** `model` with the target `onnx:q4` becomes `model-q4-ONNX`. */
  resultEnd: (to: string) => `-${to.replace(/^onnx:/, '')}-ONNX`,
} as const;

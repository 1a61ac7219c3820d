/** Recognizes the index of a model of MLC-LLM. */

/** The name of the index since TVM has tensors in place of arrays, and the name before, which older loaders look for. */
export const cacheNames = ['tensor-cache.json', 'ndarray-cache.json'] as const;

export const mlcSignature = {
  name: 'mlc',
  label: 'MLC',
  files: 'MLC',
  extensions: [cacheNames[0]],
  isFolder: true,
  isNamedByModel: true,
  takesData: true,
  sniff: (head: Uint8Array) => /^\s*\{\s*"metadata"\s*:\s*\{\s*"Param/.test(new TextDecoder().decode(head)),
  /** `model` with the target `mlc-q4f16_1` becomes `model-q4f16_1-MLC`, as models of MLC are called. */
  resultEnd: (to: string) => `-${to.replace(/^mlc-/, '')}-MLC`,
} as const;

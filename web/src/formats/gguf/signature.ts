/** Recognizes GGUF files. */
export const ggufSignature = {
  name: 'gguf',
  label: 'GGUF',
  files: 'GGUF',
  extensions: ['.gguf'],
  magic: [0x47, 0x47, 0x55, 0x46],
  takesSplits: true,
} as const;

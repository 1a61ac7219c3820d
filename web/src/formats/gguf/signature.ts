/** Recognizes GGUF files, and names those of vision towers as llama.cpp's converter does. */

/** Name of the architecture of each vision tower in llama.cpp. */
export const towerArchitecture = 'clip';

/** The kind of files with an adapter, in place of an architecture. */
export const adapterArchitecture = 'adapter';

export const ggufSignature = {
  name: 'gguf',
  label: 'GGUF',
  files: 'GGUF',
  extensions: ['.gguf'],
  magic: [0x47, 0x47, 0x55, 0x46],
  takesSplits: true,
  isNamedByModel: true,
  /** `tiny` as Q4_K_M becomes `tiny-Q4_K_M.gguf`: llama.cpp and the hub read the type behind the last hyphen. */
  resultEnd: (to: string) => (to === 'lora-gguf' ? '-lora.gguf' : `-${to}.gguf`),
  ownName: (stem: string, to: string, architecture: string) =>
    architecture === towerArchitecture ? `mmproj-${stem}-${to}.gguf` : undefined,
} as const;

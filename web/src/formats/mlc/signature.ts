/** Recognizes the index of a model of MLC-LLM. */

const begin = /^\s*\{\s*"metadata"\s*:\s*\{\s*"Param/;

/** True for the first bytes of a tensor-cache.json, which older versions call ndarray-cache.json. */
function isTensorCache(head: Uint8Array): boolean {
  return begin.test(new TextDecoder().decode(head));
}

/** The name of the index since TVM has tensors in place of arrays, and the name before, which older loaders look for. */
export const cacheNames = ['tensor-cache.json', 'ndarray-cache.json'] as const;

export const mlcSignature = {
  name: 'mlc',
  label: 'MLC',
  files: 'MLC',
  extensions: [cacheNames[0]],
  isFolder: true,
  takesData: true,
  sniff: isTensorCache,
  /** `model` with the target `mlc-q4f16_1` becomes `model-q4f16_1-MLC`, as models of MLC are called. */
  resultEnd: (to: string) => `-${to.replace(/^mlc-/, '')}-MLC`,
} as const;

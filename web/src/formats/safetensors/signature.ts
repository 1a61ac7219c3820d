/** Recognizes safetensors files, and the index of a model in several of them. */
const brace = 0x7b;
const whiteSpace: readonly number[] = [0x20, 0x09, 0x0a, 0x0d];

/** True if a brace follows the length of the header. The reader checks the rest. */
function isFile(head: Uint8Array): boolean {
  // A length that begins like JSON ends with zeros; text does not.
  const isLength = head[0] !== brace || (head[6] === 0 && head[7] === 0);
  return head[8] === brace && isLength;
}

/** Recognizes JSON that is not a safetensors file. */
export function isIndex(head: Uint8Array): boolean {
  return !isFile(head) && head.find((byte) => !whiteSpace.includes(byte)) === brace;
}

export const safetensorsSignature = {
  name: 'safetensors',
  label: 'safetensors',
  files: 'safetensors',
  extensions: ['.safetensors', '.safetensors.index.json'],
  sniff: isFile,
  index: { name: 'index.json', sniff: isIndex },
} as const;

/** Recognizes safetensors files, and the index of a model in several of them. */
const [brace, quote] = [0x7b, 0x22];
const whiteSpace: readonly number[] = [0x20, 0x09, 0x0a, 0x0d];

/**
 * True if a brace follows a length whose upper half is 0, as that of every header of at most 100 MB. Protobuf and JSON do not begin like
 * that: a model of ONNX may have a brace there, but no zeros before it.
 */
function beginsAsSafetensors(head: Uint8Array): boolean {
  return head[8] === brace && head.subarray(4, 8).every((byte) => byte === 0);
}

/** Recognizes JSON that is not a safetensors file. */
export function beginsAsIndex(head: Uint8Array): boolean {
  return !beginsAsSafetensors(head) && head.find((byte) => !whiteSpace.includes(byte)) === brace;
}

export const safetensorsSignature = {
  name: 'safetensors',
  label: 'safetensors',
  files: 'safetensors',
  extensions: ['.safetensors', '.safetensors.index.json'],
  folderNames: ['model', 'diffusion_pytorch_model'],
  sniff: beginsAsSafetensors,
  /** A file that would be safetensors but for the length of its header. The reader says what is wrong. */
  resembles: (head: Uint8Array) => head[8] === brace && head[9] === quote,
  index: { name: 'index.json', sniff: beginsAsIndex },
} as const;

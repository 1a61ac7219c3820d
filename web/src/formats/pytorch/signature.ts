/** Recognizes files of torch.save, and the index of a model in several of them. */

/** The first pickle of files before PyTorch 1.6: protocol 2, and an integer of ten bytes. */
export const legacyMagic: readonly number[] = [
  0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e,
];

const zipMagic: readonly number[] = [0x50, 0x4b, 0x03, 0x04];

const beginsWith = (head: Uint8Array, bytes: readonly number[]) => bytes.every((byte, i) => head[i] === byte);

/** The name of the first file of a zip archive, as far as it is there. */
function firstName(head: Uint8Array): string {
  const length = (head[26] ?? 0) + 256 * (head[27] ?? 0);
  return new TextDecoder().decode(head.subarray(30, 30 + length));
}

/** Files of a model in several files. */
export const shardNames = /\.(bin|pt|pth|ckpt)$/i;

/** True for an index whose first file has such a name. */
export function isPytorchIndex(head: Uint8Array): boolean {
  return /"weight_map"\s*:\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*"[^"\\]*\.(bin|pt|pth|ckpt)"/i.test(
    new TextDecoder().decode(head),
  );
}

export const pytorchSignature = {
  name: 'pytorch',
  label: 'PyTorch',
  files: 'PyTorch',
  extensions: ['.pth', '.pt', '.bin', '.ckpt', '.bin.index.json'],
  folderNames: ['pytorch_model', 'diffusion_pytorch_model'],
  isLastChoice: true,
  /** The old form, and archives that begin with the pickle, as torch.save writes them. */
  sniff: (head: Uint8Array) =>
    beginsWith(head, legacyMagic) || (beginsWith(head, zipMagic) && /(^|\/)data\.pkl$/.test(firstName(head))),
  /** Other archives and pickles, unless they hold arrays of numpy. The reader says what is wrong. */
  resembles(head: Uint8Array) {
    if (beginsWith(head, zipMagic)) return !/\.npy$/.test(firstName(head));
    const [first, protocol = 0] = head;
    return first === 0x80 && protocol >= 2 && protocol <= 5;
  },
  index: { name: 'pytorch_model.bin.index.json', sniff: isPytorchIndex },
} as const;

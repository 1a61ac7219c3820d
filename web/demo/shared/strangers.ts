// Files of other kinds than the one that is expected, by their first bytes.

/** First bytes of common files that hold numbers in a way that is not read here. */
const strangers: readonly { readonly magic: readonly number[]; readonly what: string }[] = [
  { magic: [0x50, 0x4b, 0x03, 0x04], what: 'a zip archive (.npz files are such; unpack it first)' },
  { magic: [0x89, 0x48, 0x44, 0x46], what: 'an HDF5 file' },
  { magic: [0x89, 0x50, 0x4e, 0x47], what: 'a PNG picture' },
  { magic: [0xff, 0xd8, 0xff], what: 'a JPEG picture' },
  { magic: [0x47, 0x49, 0x46, 0x38], what: 'a GIF picture' },
  { magic: [0x52, 0x49, 0x46, 0x46], what: 'a WebP picture, or a sound or film in RIFF' },
  { magic: [0x25, 0x50, 0x44, 0x46], what: 'a PDF document' },
  { magic: [0x1f, 0x8b], what: 'a gzip archive (unpack it first)' },
];

/** Description of a file that begins like a format that is not read here. */
export function strangerOf(head: Uint8Array): string | undefined {
  return strangers.find(({ magic }) => magic.every((byte, i) => head[i] === byte))?.what;
}

/** The first bytes of a file. */
export async function headOf(file: File): Promise<Uint8Array> {
  return new Uint8Array(await file.slice(0, 4096).arrayBuffer());
}

/** True if a file starts like text: no control bytes except tab, line feed and carriage return. */
export function looksLikeText(head: Uint8Array): boolean {
  return head.length > 0 && head.every((byte) => byte >= 0x20 || byte === 9 || byte === 10 || byte === 13);
}

/** Begin of the small text that Git LFS has in place of a large file. Reference: github.com/git-lfs/git-lfs, docs/spec.md. */
const pointerStart = 'version https://git-lfs.github.com/spec/';
/** A pointer is shorter than this. */
const pointerBytes = 1024;

/** True for a pointer of Git LFS in place of a file. */
export async function isPointer(file: File): Promise<boolean> {
  if (file.size < pointerStart.length || file.size >= pointerBytes) return false;
  return (await file.slice(0, pointerStart.length).text()) === pointerStart;
}

/** The sentences about a pointer of Git LFS. */
export const pointerText = (name: string): string =>
  `${name} is a pointer of Git LFS, a text in place of the file, which was not downloaded. Run “git lfs pull” in its folder, or download the file by itself.`;

/** Checksums: MD5 of bytes that come in chunks, which indices of some formats hold for each file (RFC 1321), and SHA-256. */

/** Left rotations of each round, which repeat every four steps. */
const rotations: readonly (readonly number[])[] = [
  [7, 12, 17, 22],
  [5, 9, 14, 20],
  [4, 11, 16, 23],
  [6, 10, 15, 21],
];

/** Step i adds the first 32 bits behind the point of |sin(i + 1)|. */
const sines = Int32Array.from({ length: 64 }, (_, i) => Math.floor(Math.abs(Math.sin(i + 1)) * 2 ** 32) | 0);
const turns = Uint8Array.from({ length: 64 }, (_, i) => (rotations[i >> 4] as readonly number[])[i & 3] as number);
/** The word of the block that a step adds. */
const places = Uint8Array.from({ length: 64 }, (_, i) => ([i, 5 * i + 1, 3 * i + 5, 7 * i][i >> 4] as number) & 15);

const blockBytes = 64;

/** A checksum in the making. */
export class Md5 {
  readonly #state = Int32Array.of(0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476);
  readonly #block = new Uint8Array(blockBytes);
  readonly #words = new Int32Array(16);
  #bytes = 0;

  /** Adds the bytes that come next. */
  update(bytes: Uint8Array): void {
    const filled = this.#bytes % blockBytes;
    this.#bytes += bytes.length;
    let at = 0;
    if (filled > 0) {
      at = Math.min(blockBytes - filled, bytes.length);
      this.#block.set(bytes.subarray(0, at), filled);
      if (filled + at < blockBytes) return;
      this.#add(new DataView(this.#block.buffer), 0);
    }
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (; at + blockBytes <= bytes.length; at += blockBytes) this.#add(view, at);
    this.#block.set(bytes.subarray(at));
  }

  /** The checksum as 32 hexadecimal digits. Call once, after all bytes. */
  hex(): string {
    const bits = this.#bytes * 8;
    const padding = new Uint8Array(((55 - this.#bytes) & (blockBytes - 1)) + 9);
    padding[0] = 0x80;
    const view = new DataView(padding.buffer);
    view.setUint32(padding.length - 8, bits % 2 ** 32, true);
    view.setUint32(padding.length - 4, Math.floor(bits / 2 ** 32), true);
    this.update(padding);
    const bytes = new DataView(this.#state.slice().buffer);
    for (const [i, word] of this.#state.entries()) bytes.setInt32(4 * i, word, true);
    return [...new Uint8Array(bytes.buffer)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  }

  #add(view: DataView, at: number): void {
    const words = this.#words;
    for (let i = 0; i < 16; i++) words[i] = view.getInt32(at + 4 * i, true);
    let [a, b, c, d] = this.#state as unknown as [number, number, number, number];
    for (let i = 0; i < 64; i++) {
      let mixed: number;
      if (i < 16) mixed = (b & c) | (~b & d);
      else if (i < 32) mixed = (d & b) | (~d & c);
      else if (i < 48) mixed = b ^ c ^ d;
      else mixed = c ^ (b | ~d);
      const sum = (a + mixed + (sines[i] as number) + (words[places[i] as number] as number)) | 0;
      const turn = turns[i] as number;
      a = d;
      d = c;
      c = b;
      b = (b + ((sum << turn) | (sum >>> (32 - turn)))) | 0;
    }
    const state = this.#state as Int32Array & [number, number, number, number];
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
  }
}

/** The SHA-256 digest of bytes, in hexadecimal digits. */
export async function sha256Of(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

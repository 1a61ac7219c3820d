// The content-addressed store of the hub for tests: xorbs of compressed chunks, and files as lists of runs of chunks.
//
// Layouts follow the Xet specification in docs/xet of huggingface/hub-docs at 242f4a1e.
import { hex } from './store.mjs';

/** @typedef {import('./store.mjs').Entry} Entry */
/** @typedef {{ packed: number, unpacked: number, start: number }} Chunk its bytes without and with compression, and where it starts in the file */
/** @typedef {{ count: number, packedStart: (chunk: number) => number, unpacked: (chunk: number) => number, packed: (start: number, end: number) => Uint8Array }} Xorb `packedStart(count)` is its size */
/** @typedef {{ xorb: string, length: number, start: number, end: number }} Term chunks from start to end of a xorb */

const headerBytes = 8;
/** Bytes of a chunk of the files that tests state. They are stored as they are. */
const plainChunk = 65_536;

/** Reads a number of three bytes. @param {Uint8Array} bytes @param {number} at */
const uint24 = (bytes, at) => bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16);

/** Decompresses a frame of LZ4 of known length. @param {Uint8Array} frame @param {number} length */
function unpackLz4(frame, length) {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.length);
  if (view.getUint32(0, true) !== 0x184d2204) throw new Error('no LZ4 frame');
  const flags = frame[4];
  let at = 6 + (flags & 8 ? 8 : 0) + 1;
  const out = new Uint8Array(length);
  let made = 0;
  for (let size = view.getUint32(at, true); size !== 0; size = view.getUint32(at, true)) {
    at += 4;
    const end = at + (size & 0x7fffffff);
    if (size >>> 31) {
      out.set(frame.subarray(at, end), made);
      made += end - at;
      at = end;
    }
    while (at < end) {
      const token = frame[at++];
      let literals = token >> 4;
      if (literals === 15) for (let more = 255; more === 255; literals += more) more = frame[at++];
      out.set(frame.subarray(at, at + literals), made);
      at += literals;
      made += literals;
      if (at >= end) break;
      const back = frame[at] | (frame[at + 1] << 8);
      at += 2;
      let match = (token & 15) + 4;
      if (match === 19) for (let more = 255; more === 255; match += more) more = frame[at++];
      for (; match > 0; match--, made++) out[made] = out[made - back];
    }
    if (flags & 16) at += 4;
  }
  if (made !== length) throw new Error(`LZ4 gave ${made} bytes, not ${length}`);
  return out;
}

/** Decompresses a chunk with its header. @param {Uint8Array} bytes */
function unpackChunk(bytes) {
  const packed = bytes.subarray(headerBytes, headerBytes + uint24(bytes, 1));
  const length = uint24(bytes, 5);
  if (bytes[4] === 0) return packed;
  const plain = unpackLz4(packed, length);
  if (bytes[4] === 1) return plain;
  // All first bytes of groups of four come first, then all second ones.
  const grouped = new Uint8Array(length);
  for (let i = 0, from = 0; i < 4; i++) for (let to = i; to < length; to += 4) grouped[to] = plain[from++];
  return grouped;
}

/** A hash in a shard is four little-endian numbers of 64 bits. @param {Uint8Array} bytes @param {number} at */
function readHash(bytes, at) {
  let text = '';
  for (let i = 0; i < 32; i += 8) text += Buffer.from(bytes.slice(at + i, at + i + 8).reverse()).toString('hex');
  return text;
}

export class XetStore {
  /** @type {Map<string, Xorb>} */
  xorbs = new Map();
  /** @type {Map<string, readonly Term[]>} */
  files = new Map();

  /** Makes a file of a test readable by chunks. @param {Entry} entry */
  add({ xetHash, size, read }) {
    if (xetHash === undefined || this.files.has(xetHash)) return;
    const count = Math.ceil(size / plainChunk);
    const unpacked = (/** @type {number} */ chunk) => Math.min(plainChunk, size - chunk * plainChunk);
    const packedStart = (/** @type {number} */ chunk) => Math.min(size, chunk * plainChunk) + chunk * headerBytes;
    const xorb = hex('sha256', `xorb ${xetHash}`);
    this.xorbs.set(xorb, {
      count,
      unpacked,
      packedStart,
      packed(start, end) {
        const first = Math.floor(start / (plainChunk + headerBytes));
        const parts = [];
        for (let chunk = first; packedStart(chunk) < end; chunk++) {
          const length = unpacked(chunk);
          const three = [length & 255, (length >> 8) & 255, length >> 16];
          parts.push(Uint8Array.from([0, ...three, 0, ...three]), read(chunk * plainChunk, length));
        }
        return Buffer.concat(parts).subarray(start - packedStart(first), end - packedStart(first));
      },
    });
    this.files.set(xetHash, [{ xorb, length: size, start: 0, end: count }]);
  }

  /** Keeps an uploaded xorb. @param {string} hash @param {Uint8Array} bytes */
  addXorb(hash, bytes) {
    const starts = [0];
    /** @type {number[]} */
    const lengths = [];
    for (let at = 0; at < bytes.length; ) {
      if (bytes[at] !== 0 || bytes[at + 4] > 2) throw new Error('no chunk of a xorb');
      lengths.push(uint24(bytes, at + 5));
      at += headerBytes + uint24(bytes, at + 1);
      starts.push(at);
    }
    if (starts.at(-1) !== bytes.length) throw new Error('the xorb ends within a chunk');
    this.xorbs.set(hash, {
      count: lengths.length,
      packedStart: (chunk) => starts[chunk],
      unpacked: (chunk) => lengths[chunk],
      packed: (start, end) => bytes.subarray(start, end),
    });
  }

  /**
   * Reads the files of an uploaded shard.
   * @param {Uint8Array} bytes
   * @returns {{ xetHash: string, sha256: string, content: Uint8Array }[]}
   */
  addShard(bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    if (Buffer.from(bytes.subarray(0, 14)).toString() !== 'HFRepoMetaData') throw new Error('no shard');
    const files = [];
    for (let at = 48; ; ) {
      const xetHash = readHash(bytes, at);
      if (/^f+$/.test(xetHash)) return files;
      const flags = view.getUint32(at + 32, true);
      const count = view.getUint32(at + 36, true);
      at += 48;
      /** @type {Term[]} */
      const terms = [];
      for (let i = 0; i < count; i++, at += 48) {
        const [length, start, end] = [36, 40, 44].map((offset) => view.getUint32(at + offset, true));
        terms.push({ xorb: readHash(bytes, at), length, start, end });
      }
      if (flags >>> 31) at += 48 * count;
      const sha256 = readHash(bytes, at);
      if (flags & 0x40000000) at += 48;
      const content = Buffer.concat(terms.flatMap(({ xorb, start, end }) => this.#chunks(xorb, start, end)));
      if (hex('sha256', content) !== sha256) throw new Error(`the chunks do not give the file ${sha256}`);
      this.files.set(xetHash, terms);
      files.push({ xetHash, sha256, content });
    }
  }

  /** @param {string} hash @param {number} start @param {number} end */
  #chunks(hash, start, end) {
    const xorb = this.xorbs.get(hash);
    if (xorb === undefined || end > xorb.count) throw new Error(`xorb ${hash} was not uploaded`);
    return Array.from({ length: end - start }, (_, i) =>
      unpackChunk(xorb.packed(xorb.packedStart(start + i), xorb.packedStart(start + i + 1))),
    );
  }

  /**
   * The chunks that hold a range of a file; `end` is the first byte behind it.
   * @param {readonly Term[]} terms @param {number} start @param {number} end @param {(xorb: string) => string} sign
   */
  reconstruction(terms, start, end, sign) {
    /** @type {{ hash: string, unpacked_length: number, range: { start: number, end: number } }[]} */
    const found = [];
    /** @type {Record<string, { url: string, ranges: object[] }[]>} */
    const xorbs = {};
    let offset;
    let at = 0;
    for (const term of terms) {
      const xorb = /** @type {Xorb} */ (this.xorbs.get(term.xorb));
      const run = { start: term.end, end: term.start, length: 0 };
      for (let chunk = term.start; chunk < term.end; chunk++) {
        const length = xorb.unpacked(chunk);
        if (at + length > start && at < end) {
          offset ??= start - at;
          run.start = Math.min(run.start, chunk);
          run.end = chunk + 1;
          run.length += length;
        }
        at += length;
      }
      if (run.length === 0) continue;
      const range = { start: run.start, end: run.end };
      found.push({ hash: term.xorb, unpacked_length: run.length, range });
      xorbs[term.xorb] ??= [];
      const bytes = { start: xorb.packedStart(run.start), end: xorb.packedStart(run.end) - 1 };
      // Clients tell runs of a xorb apart by their addresses, which name what they are signed for.
      const url = `${sign(term.xorb)}&X-Xet-Signed-Range=bytes%3D${bytes.start}-${bytes.end}`;
      xorbs[term.xorb].push({ url, ranges: [{ chunks: range, bytes }] });
    }
    return { offset_into_first_range: offset ?? 0, terms: found, xorbs };
  }
}

/** Presents elements that are not contiguous in a file as a contiguous source, assembled while it is read. */
import { type ByteSource, quoted } from '../../files/bytes.js';
import { type Field, type LoadedRange, malformed, readVarint } from '../../files/protobuf.js';
import { countBefore } from '../../files/search.js';
import type { ElementLocation, OnnxTensor } from './proto.js';

/** A source of `size` bytes that reads from another one. */
function derived(source: ByteSource, size: number, read: ByteSource['read']): ByteSource {
  const { name } = source;
  return { size, ...(name === undefined ? {} : { name }), read, verify: () => source.verify(), close: async () => {} };
}

// -------------------------------------------------------------------------------------------------------------------- fixed sizes

/** `count` values of `bytes` bytes, at a constant distance in the file. */
interface ValueRun {
  /** Offsets of its begin in the elements' bytes, and in the file. */
  readonly at: number;
  readonly begin: number;
  readonly bytes: number;
  readonly stride: number;
  count: number;
}

/** Groups fields of 4- or 8-byte values into runs. Fields of one value each mostly follow each other. */
function runsOf(chunks: readonly Field[]): ValueRun[] {
  const runs: ValueRun[] = [];
  let at = 0;
  for (const { start, begin, end } of chunks) {
    const bytes = end - begin;
    const last = runs.at(-1);
    const next = last === undefined ? undefined : last.begin + last.count * last.stride;
    if (last !== undefined && last.bytes === bytes && begin === next) last.count++;
    else if (bytes > 0) runs.push({ at, begin, bytes, stride: end - start, count: 1 });
    at += bytes;
  }
  return runs;
}

/** A source of the values of several fields, contiguous. */
function gathered(source: ByteSource, chunks: readonly Field[], size: number): ByteSource {
  const runs = runsOf(chunks);
  return derived(source, size, async (begin, end) => {
    const result = new Uint8Array(end - begin);
    for (let i = countBefore(runs, (run) => run.at <= begin) - 1, at = begin; at < end; i++) {
      const run = runs[i] as ValueRun;
      const from = at - run.at;
      const to = Math.min(end - run.at, run.bytes * run.count);
      const [first, last] = [Math.floor(from / run.bytes), Math.ceil(to / run.bytes) - 1];
      const base = run.begin + first * run.stride;
      const bytes = await source.read(base, run.begin + last * run.stride + run.bytes);
      for (let value = first; value <= last; value++) {
        const [low, high] = [Math.max(from, value * run.bytes), Math.min(to, (value + 1) * run.bytes)];
        const shift = run.begin + value * (run.stride - run.bytes) - base;
        result.set(bytes.subarray(low + shift, high + shift), run.at + low - begin);
      }
      at = run.at + to;
    }
    return result;
  });
}

// ------------------------------------------------------------------------------------------------------------------------ varints

/** Bytes of varints per read. */
const window = 1 << 16;
/** Number of entries per mark, at which reading can begin. */
const markEvery = 1 << 14;

/** Begin of an entry. */
interface Mark {
  readonly chunk: number;
  readonly offset: number;
}

/** Reads entries of int32_data and similar fields as little-endian numbers of the element type. */
class Varints {
  readonly #source: ByteSource;
  readonly #tensor: OnnxTensor;
  readonly #chunks: readonly Field[];
  readonly #size: number;
  readonly #marks: Mark[] = [{ chunk: 0, offset: 0 }];

  constructor(source: ByteSource, tensor: OnnxTensor, chunks: readonly Field[]) {
    this.#source = source;
    this.#tensor = tensor;
    this.#chunks = chunks;
    this.#size = Math.max(1, (tensor.element?.bits ?? 8) / 8);
  }

  async read(begin: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    const size = this.#size;
    const [first, last] = [Math.floor(begin / size), Math.ceil(end / size)];
    const total = this.#tensor.bytes / size;
    const bytes = new Uint8Array((last - first) * size);
    const view = new DataView(bytes.buffer);
    const mark = Math.min(Math.floor(first / markEvery), this.#marks.length - 1);
    let { chunk, offset } = this.#marks[mark] as Mark;
    let entry = mark * markEvery;
    for (let held: LoadedRange = { begin: 0, bytes: new Uint8Array(0) }; entry < last; entry++) {
      while (this.#chunks[chunk] !== undefined && offset >= this.#length(chunk)) {
        chunk++;
        offset = 0;
      }
      const field = this.#chunks[chunk];
      if (field === undefined) malformed(`tensor ${quoted(this.#tensor.name)}: its data end early`, this.#tensor.begin);
      if (entry % markEvery === 0) this.#marks[entry / markEvery] = { chunk, offset };
      const at = (field as Field).begin + offset;
      if (at < held.begin || at + 10 > held.begin + held.bytes.length) {
        held = { begin: at, bytes: await this.#source.read(at, Math.min(this.#source.size, at + window)) };
      }
      const { low, high, end: after } = readVarint(held, at, (field as Field).end);
      offset = after - (field as Field).begin;
      if (entry >= first) this.#put(view, (entry - first) * size, low, high);
    }
    // Nothing follows the last entry.
    if (
      last === total &&
      (offset < this.#length(chunk) || this.#chunks.slice(chunk + 1).some((f) => f.end > f.begin))
    ) {
      malformed(`tensor ${quoted(this.#tensor.name)}: it has more data than its shape takes`, this.#tensor.begin);
    }
    return bytes.subarray(begin - first * size, end - first * size);
  }

  #length(chunk: number): number {
    const { begin, end } = this.#chunks[chunk] as Field;
    return end - begin;
  }

  #put(view: DataView, at: number, low: number, high: number): void {
    if (this.#size === 1) view.setUint8(at, low & 0xff);
    else if (this.#size === 2) view.setUint16(at, low & 0xffff, true);
    else {
      view.setUint32(at, low, true);
      if (this.#size === 8) view.setUint32(at + 4, high, true);
    }
  }
}

// ------------------------------------------------------------------------------------------------------------------------ choosing

/** Offset of a tensor's bytes if they are contiguous in the file. */
export function plainPlace(data: ElementLocation): number | undefined {
  if (data.kind === 'raw') return data.begin;
  if (data.kind === 'fixed' && data.chunks.length === 1) return (data.chunks[0] as Field).begin;
  return undefined;
}

/** A source of the bytes of a tensor whose data are not contiguous. */
export function assembled(source: ByteSource, tensor: OnnxTensor): ByteSource {
  const { data, bytes } = tensor;
  if (data.kind === 'fixed') return gathered(source, data.chunks, bytes);
  if (data.kind !== 'varints') throw new Error(`the data of ${tensor.name} are ${data.kind}`);
  const varints = new Varints(source, tensor, data.chunks);
  return derived(source, bytes, (begin, end) => varints.read(begin, end));
}

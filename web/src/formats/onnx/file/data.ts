/** Presents elements that are not contiguous in a file as a contiguous source, assembled while it is read. */
import { type ByteSource, quoted } from '../../files/bytes.js';
import { type Field, type LoadedRange, malformed, readVarint } from '../../files/protobuf.js';
import { countBefore } from '../../files/search.js';
import type { ElementLocation, OnnxTensor } from './proto.js';

/** Offset of a tensor's bytes if they are contiguous in the file. */
export function plainPlace(data: ElementLocation): number | undefined {
  if (data.kind === 'raw') return data.begin;
  if (data.kind === 'fixed' && data.chunks.length === 1) return (data.chunks[0] as Field).begin;
  return undefined;
}

/** A source of the bytes of a tensor whose data are not contiguous. */
export function assembledElements(source: ByteSource, tensor: OnnxTensor): ByteSource {
  const { data, bytes: size } = tensor;
  if (data.kind !== 'fixed' && data.kind !== 'varints') throw new Error(`the data of ${tensor.name} are ${data.kind}`);
  const read = data.kind === 'fixed' ? readFixed(source, data.chunks) : readVarints(source, tensor, data.chunks);
  const { name } = source;
  return { size, ...(name === undefined ? {} : { name }), read, verify: () => source.verify(), close: async () => {} };
}

/** `count` values of `bytes` bytes, at a constant distance in the file. */
interface ValueRun {
  /** Offsets of its begin in the elements' bytes, and in the file. */
  readonly at: number;
  readonly begin: number;
  readonly bytes: number;
  readonly stride: number;
  count: number;
}

/** Reads fields of 4- or 8-byte values. */
function readFixed(source: ByteSource, chunks: readonly Field[]): ByteSource['read'] {
  // Group the fields into runs. Fields of one value each mostly follow each other.
  const runs: ValueRun[] = [];
  let size = 0;
  for (const { start, begin, end } of chunks) {
    const bytes = end - begin;
    const last = runs.at(-1);
    const next = last === undefined ? undefined : last.begin + last.count * last.stride;
    if (last !== undefined && last.bytes === bytes && begin === next) last.count++;
    else if (bytes > 0) runs.push({ at: size, begin, bytes, stride: end - start, count: 1 });
    size += bytes;
  }
  return async (begin, end) => {
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
  };
}

/** Bytes of varints per read. */
const window = 1 << 16;
/** Number of entries per mark, at which reading can begin. */
const markEvery = 1 << 14;

/** Reads entries of int32_data and similar fields as little-endian numbers of the element type. */
function readVarints(source: ByteSource, tensor: OnnxTensor, chunks: readonly Field[]): ByteSource['read'] {
  const size = Math.max(1, (tensor.element?.bits ?? 8) / 8);
  /** Begins of entries. */
  const marks = [{ chunk: 0, offset: 0 }];
  const lengthOf = (field: Field | undefined) => (field === undefined ? 0 : field.end - field.begin);
  const bad = (message: string) => malformed(`tensor ${quoted(tensor.name)}: ${message}`, tensor.begin);
  return async (begin, end) => {
    const [first, last] = [Math.floor(begin / size), Math.ceil(end / size)];
    const bytes = new Uint8Array((last - first) * size);
    const view = new DataView(bytes.buffer);
    const mark = Math.min(Math.floor(first / markEvery), marks.length - 1);
    let { chunk, offset } = marks[mark] as (typeof marks)[number];
    let entry = mark * markEvery;
    for (let held: LoadedRange = { begin: 0, bytes: new Uint8Array(0) }; entry < last; entry++) {
      while (chunks[chunk] !== undefined && offset >= lengthOf(chunks[chunk])) {
        chunk++;
        offset = 0;
      }
      const field = chunks[chunk] ?? bad('its data end early');
      if (entry % markEvery === 0) marks[entry / markEvery] = { chunk, offset };
      const at = field.begin + offset;
      if (at < held.begin || at + 10 > held.begin + held.bytes.length) {
        held = { begin: at, bytes: await source.read(at, Math.min(source.size, at + window)) };
      }
      const { low, high, end: after } = readVarint(held, at, field.end);
      offset = after - field.begin;
      if (entry < first) continue;
      const to = (entry - first) * size;
      if (size === 1) view.setUint8(to, low & 0xff);
      else if (size === 2) view.setUint16(to, low & 0xffff, true);
      else view.setUint32(to, low, true);
      if (size === 8) view.setUint32(to + 4, high, true);
    }
    // Nothing follows the last entry.
    const isLast = last === tensor.bytes / size;
    if (isLast && (offset < lengthOf(chunks[chunk]) || chunks.slice(chunk + 1).some((one) => lengthOf(one) > 0))) {
      bad('it has more data than its shape takes');
    }
    return bytes.subarray(begin - first * size, end - first * size);
  };
}

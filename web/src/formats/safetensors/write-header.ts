/** Writes headers of safetensors files. Reference: github.com/huggingface/safetensors, safetensors/src/tensor.rs at 24b0b28. */
import { ScalepointError } from '../../core/errors.js';
import { show } from '../../core/show.js';
import { quoted } from '../files/bytes.js';
import type { MadeBytes } from '../format.js';
import { compareNames } from '../tensors.js';
import { dtypeOrder, maxHeaderBytes, type TensorDType, tensorBytes } from './header.js';

/** A tensor to be written. */
export interface NamedTensor {
  readonly name: string;
  readonly dtype: TensorDType;
  readonly shape: readonly number[];
}

/** A safetensors file to be written: its header, and the offset of each tensor. */
export interface SafetensorsLayout {
  /** The first bytes of the file: length and JSON. */
  readonly header: MadeBytes;
  /** Indices of the tensors, in the order of their bytes. */
  readonly order: Uint32Array;
  /** Offset of each tensor in the file, by index. */
  readonly offsets: Float64Array;
  /** Size of the whole file. */
  readonly size: number;
}

/** Type and shape of a tensor. */
type TypeAndShape = Pick<NamedTensor, 'dtype' | 'shape'>;

/** The tensors of a file to be written, by index. Access is by functions, because there may be several hundred thousand tensors. */
export interface ListedTensors {
  readonly count: number;
  nameOf(index: number): string;
  kindOf(index: number): TypeAndShape;
}

/** Names without JSON escapes, which sort by bytes. */
const isPlainKey = /^[\w.\-/]*$/;

/** Compares strings by UTF-16 units, which engines do fast. This is byte order below the surrogates. */
const byUnits = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);

/** Facts about names, collected one by one to save memory. */
function factsOfNames(count: number, nameAt: (i: number) => string) {
  const encoder = new TextEncoder();
  let [areOrdered, arePlain, bytes] = [true, true, 0];
  let [last, end] = ['', ''];
  /** Lists without a common end have no common name. */
  const ends = new Set<string>();
  for (let i = 0; i < count; i++) {
    const name = nameAt(i);
    const isPlain = isPlainKey.test(name);
    arePlain &&= isPlain;
    // Bytes in JSON, without quotes.
    bytes += isPlain ? name.length : encoder.encode(JSON.stringify(name)).length - 2;
    if (i > 0) areOrdered &&= (arePlain ? byUnits : compareNames)(last, name) < 0;
    last = name;
    const three = name.slice(-3);
    if (i === 0 || three !== end) ends.add(three);
    end = three;
  }
  return { areOrdered, arePlain, bytes, ends };
}

function checkNotTaken(name: string | undefined): void {
  if (name !== undefined) throw new RangeError(`tensor ${quoted(name)}: the name is taken`);
}

/** Order of tensors, and facts about their names. */
interface FileOrder {
  readonly order: Uint32Array;
  /** True if all names are plain. */
  readonly arePlain: boolean;
  /** Bytes of all names in JSON, without their quotes. */
  readonly nameBytes: number;
}

/** Sorts tensors in the order of the reference: wide dtypes first, names in byte order. @throws RangeError for duplicate names */
function fileOrder({ count, nameOf, kindOf }: ListedTensors): FileOrder {
  const byType = new Map<TensorDType, number[]>();
  for (let index = 0; index < count; index++) {
    const { dtype } = kindOf(index);
    const list = byType.get(dtype);
    if (list === undefined) byType.set(dtype, [index]);
    else list.push(index);
  }
  const order = new Uint32Array(count);
  const reserved = '__metadata__';
  /** Consecutive tensors of one type: their names in order, and the ends of these. */
  const runs = [{ names: () => [reserved], ends: new Set([reserved.slice(-3)]) }];
  let [arePlain, nameBytes, done] = [true, 0, 0];
  let places: readonly number[] = [];
  for (const [, list] of [...byType].sort(([a], [b]) => (dtypeOrder.get(b) ?? 0) - (dtypeOrder.get(a) ?? 0))) {
    // Sort only if needed: scales often have the order of their codes, and most files are sorted.
    const { length } = list;
    let facts =
      places.length === length ? factsOfNames(length, (i) => nameOf(list[places[i] as number] as number)) : undefined;
    if (!facts?.areOrdered) {
      places = [...list.keys()];
      facts = factsOfNames(length, (i) => nameOf(list[i] as number));
    }
    if (!facts.areOrdered) {
      const names = list.map(nameOf);
      const compare = facts.arePlain ? byUnits : compareNames;
      const sorted = [...list.keys()].sort((a, b) => compare(names[a] as string, names[b] as string));
      const again = sorted.find((place, i) => i > 0 && names[place] === names[sorted[i - 1] as number]);
      checkNotTaken(names[again ?? -1]);
      places = sorted;
    }
    arePlain &&= facts.arePlain;
    nameBytes += facts.bytes;
    const begin = done;
    for (const place of places) order[done++] = list[place] as number;
    const end = done;
    runs.push({ names: () => Array.from(order.subarray(begin, end), nameOf), ends: facts.ends });
  }
  // Compare names of different types where their ends do not tell them apart.
  for (const [i, first] of runs.entries()) {
    for (const second of runs.slice(i + 1)) {
      if ([...first.ends].every((end) => !second.ends.has(end))) continue;
      const names = new Set(first.names());
      checkNotTaken(second.names().find((name) => names.has(name)));
    }
  }
  return { order, arePlain, nameBytes };
}

/** Number of tensors per chunk of JSON. Headers with a hundred thousand tensors have tens of megabytes. */
const tensorsAtOnce = 8192;

/** JSON of a type and shape, between name and offsets. */
const middleOfEntry = ({ dtype, shape }: TypeAndShape) =>
  `":{"dtype":"${dtype}","shape":[${shape.join()}],"data_offsets":[`;

/**
 * Lays out a file like the reference. Wide dtypes come first, so that every tensor is aligned. Within a dtype, names are in byte order. The
 * header is padded with spaces to a multiple of 8.
 * @throws RangeError for duplicate names, or if a shape does not make whole bytes; ScalepointError `BAD_FILE` if the header exceeds the
 *   limit of the format
 */
export function layoutListed(
  tensors: ListedTensors,
  metadata: Readonly<Record<string, string>> = {},
): SafetensorsLayout {
  const { count, nameOf, kindOf } = tensors;
  const { order, arePlain, nameBytes } = fileOrder(tensors);
  const first = Object.keys(metadata).length > 0 ? `"__metadata__":${JSON.stringify(metadata)}` : '';
  // Count the bytes of the JSON while tensors get their places, so that it is never in memory as a whole.
  const commas = Math.max(0, count - 1) + (first !== '' && count > 0 ? 1 : 0);
  let used = '{}'.length + new TextEncoder().encode(first).length + commas + nameBytes + '",]}'.length * count;
  const offsets = new Float64Array(count);
  let [end, digits, power, bytes, middle] = [0, 1, 10, 0, 0];
  let last: TypeAndShape | undefined;
  for (const index of order) {
    const kind = kindOf(index);
    if (kind !== last) {
      middle = middleOfEntry(kind).length;
      const size = tensorBytes(kind.dtype, kind.shape);
      if (size === undefined)
        throw new RangeError(
          `tensor ${quoted(nameOf(index))}: shape ${show(kind.shape)} of ${kind.dtype} cannot be stored`,
        );
      bytes = size;
    }
    last = kind;
    offsets[index] = end;
    end += bytes;
    used += middle + digits;
    // Offsets grow, and so do their decimal digits.
    while (end >= power) {
      power *= 10;
      digits++;
    }
    used += digits;
  }
  const length = Math.ceil(used / 8) * 8;
  if (length > maxHeaderBytes) {
    const message = `the header would have ${length} bytes, more than the ${maxHeaderBytes} allowed`;
    throw new ScalepointError('BAD_FILE', message);
  }
  const begin = 8 + length;
  const header: MadeBytes = {
    bytes: begin,
    // In chunks: the length, the JSON, and spaces up to a multiple of 8.
    *make() {
      const encoder = new TextEncoder();
      let piece = `{${first}${first !== '' && count > 0 ? ',' : ''}`;
      let [made, entry] = [0, ''];
      let kindBefore: TypeAndShape | undefined;
      for (let i = 0; i <= count; i++) {
        const index = order[i];
        const next = order[i + 1];
        if (index === undefined) piece += '}';
        else {
          const kind = kindOf(index);
          if (kind !== kindBefore) entry = middleOfEntry(kind);
          kindBefore = kind;
          const name = nameOf(index);
          const key = arePlain ? name : JSON.stringify(name).slice(1, -1);
          piece += `"${key}${entry}${offsets[index]},${next === undefined ? end : offsets[next]}]}`;
          if (next !== undefined) piece += ',';
          if (i % tensorsAtOnce !== tensorsAtOnce - 1) continue;
        }
        const text = encoder.encode(piece);
        const start = made === 0 ? 8 : 0;
        made += text.length;
        const chunk = new Uint8Array(start + text.length + (index === undefined ? length - used : 0)).fill(0x20);
        if (start > 0) new DataView(chunk.buffer).setBigUint64(0, BigInt(length), true);
        chunk.set(text, start);
        yield chunk;
        piece = '';
      }
      if (made !== used) throw new Error(`the header has ${made} bytes instead of ${used}`);
    },
  };
  return {
    header,
    order,
    offsets: offsets.map((offset) => begin + offset),
    size: begin + end,
  };
}

/** Like `layoutListed`, for tensors in an array. */
export function layoutSafetensors(
  tensors: readonly NamedTensor[],
  metadata: Readonly<Record<string, string>> = {},
): SafetensorsLayout {
  const at = (index: number) => tensors[index] as NamedTensor;
  return layoutListed({ count: tensors.length, nameOf: (index) => at(index).name, kindOf: at }, metadata);
}

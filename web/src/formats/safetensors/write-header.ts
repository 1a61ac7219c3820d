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

type Compare = (a: string, b: string) => number;

/** Compares strings by UTF-16 units, which engines do fast. This is byte order below the surrogates. */
const byUnits: Compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/** Hash of the end of a name; undefined if it is too short. */
function endOf(name: string): number | undefined {
  const at = name.length - 3;
  if (at < 0) return undefined;
  return (name.charCodeAt(at) * 2 ** 16 + name.charCodeAt(at + 1)) * 2 ** 16 + name.charCodeAt(at + 2);
}

/** Facts about the names of some tensors. */
interface Seen {
  /** True if they are strictly increasing. */
  readonly areOrdered: boolean;
  readonly arePlain: boolean;
  /** Bytes in JSON, without quotes. */
  readonly bytes: number;
  /** Hashes of the ends; lists with disjoint ends have disjoint names. Undefined if a name is too short. */
  readonly ends: ReadonlySet<number> | undefined;
}

/** Collects facts about names one by one, to save memory. */
function look(count: number, nameAt: (i: number) => string, encoder: TextEncoder): Seen {
  const ends = new Set<number | undefined>();
  let [areOrdered, arePlain, bytes] = [true, true, 0];
  let last: string | undefined;
  let lastEnd: number | undefined;
  for (let i = 0; i < count; i++) {
    const name = nameAt(i);
    const isPlain = isPlainKey.test(name);
    arePlain &&= isPlain;
    bytes += isPlain ? name.length : encoder.encode(JSON.stringify(name)).length - 2;
    if (last !== undefined) areOrdered &&= (arePlain ? byUnits : compareNames)(last, name) < 0;
    last = name;
    const end = endOf(name);
    if (i === 0 || end !== lastEnd) ends.add(end);
    lastEnd = end;
  }
  return { areOrdered, arePlain, bytes, ends: ends.has(undefined) ? undefined : (ends as ReadonlySet<number>) };
}

function areApart(a: ReadonlySet<number> | undefined, b: ReadonlySet<number> | undefined): boolean {
  if (a === undefined || b === undefined) return false;
  for (const one of a) if (b.has(one)) return false;
  return true;
}

/** First common name of two sorted lists. */
function common(a: readonly string[], b: readonly string[]): string | undefined {
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    const order = compareNames(a[i] as string, b[j] as string);
    if (order === 0) return a[i];
    if (order < 0) i++;
    else j++;
  }
  return undefined;
}

function takenError(name: string): RangeError {
  return new RangeError(`tensor ${quoted(name)}: the name is taken`);
}

/** Indices that sort names. @throws RangeError if two names are equal */
function sortedPlaces(names: readonly string[], arePlain: boolean): number[] {
  const compare = arePlain ? byUnits : compareNames;
  const places = [...names.keys()].sort((a, b) => compare(names[a] as string, names[b] as string));
  const again = places.find((place, i) => i > 0 && names[place] === names[places[i - 1] as number]);
  if (again !== undefined) throw takenError(names[again] as string);
  return places;
}

/** Consecutive tensors of one type in the file. */
interface TypeRun {
  readonly names: () => readonly string[];
  readonly ends: ReadonlySet<number> | undefined;
}

/** Order of tensors, and facts about their names. */
interface Order {
  readonly order: Uint32Array;
  /** True if all names are plain. */
  readonly arePlain: boolean;
  /** Bytes of all names in JSON, without their quotes. */
  readonly nameBytes: number;
}

/** Sorts tensors in the order of the reference: wide dtypes first, names in byte order. @throws RangeError for duplicate names */
function orderOf({ count, nameOf, kindOf }: ListedTensors): Order {
  const byType = new Map<TensorDType, number[]>();
  for (let index = 0; index < count; index++) {
    const { dtype } = kindOf(index);
    const list = byType.get(dtype);
    if (list === undefined) byType.set(dtype, [index]);
    else list.push(index);
  }
  const rank = ([dtype]: readonly [TensorDType, unknown]) => dtypeOrder.get(dtype) ?? 0;
  const order = new Uint32Array(count);
  const encoder = new TextEncoder();
  const reserved = ['__metadata__'];
  const runs: TypeRun[] = [{ names: () => reserved, ends: look(1, () => reserved[0] as string, encoder).ends }];
  let [arePlain, nameBytes, done] = [true, 0, 0];
  let places: readonly number[] = [];
  for (const [, list] of [...byType].sort((a, b) => rank(b) - rank(a))) {
    // Sort only if needed: scales often have the order of their codes, and most files are sorted.
    const nameAt = (place: number) => nameOf(list[place] as number);
    const like = places;
    let seen = like.length === list.length ? look(like.length, (i) => nameAt(like[i] as number), encoder) : undefined;
    if (!seen?.areOrdered) {
      places = [...list.keys()];
      seen = look(list.length, nameAt, encoder);
    }
    if (!seen.areOrdered) places = sortedPlaces(list.map(nameOf), seen.arePlain);
    arePlain &&= seen.arePlain;
    nameBytes += seen.bytes;
    const begin = done;
    for (const place of places) order[done++] = list[place] as number;
    const end = done;
    runs.push({ names: () => Array.from(order.subarray(begin, end), nameOf), ends: seen.ends });
  }
  for (const [i, first] of runs.entries()) {
    for (const second of runs.slice(i + 1)) {
      const taken = areApart(first.ends, second.ends) ? undefined : common(first.names(), second.names());
      if (taken !== undefined) throw takenError(taken);
    }
  }
  return { order, arePlain, nameBytes };
}

/** Contents of a header. */
interface Contents extends ListedTensors, Order {
  /** Begin of each tensor and end of the last, from the end of the header. */
  readonly offsets: Float64Array;
  readonly end: number;
  readonly metadata: Readonly<Record<string, string>>;
}

/** Begin of each tensor and end of the last, from the end of the header. @throws RangeError as `layoutSafetensors` */
function placesOf(
  { count, nameOf, kindOf }: ListedTensors,
  order: Uint32Array,
): { offsets: Float64Array; end: number } {
  const offsets = new Float64Array(count);
  let end = 0;
  let last: TypeAndShape | undefined;
  let bytes: number | undefined;
  for (const index of order) {
    const kind = kindOf(index);
    if (kind !== last) bytes = tensorBytes(kind.dtype, kind.shape);
    last = kind;
    if (bytes === undefined) {
      const name = quoted(nameOf(index));
      throw new RangeError(`tensor ${name}: shape ${show(kind.shape)} of ${kind.dtype} cannot be stored`);
    }
    offsets[index] = end;
    end += bytes;
  }
  return { offsets, end };
}

/** Number of tensors per chunk of JSON. Headers with a hundred thousand tensors have tens of megabytes. */
const tensorsAtOnce = 8192;

/** JSON of the metadata's key and value; empty without metadata. */
function metadataOf(metadata: Readonly<Record<string, string>>): string {
  return Object.keys(metadata).length > 0 ? `"__metadata__":${JSON.stringify(metadata)}` : '';
}

/** Number of decimal digits of a whole number. */
function digitsOf(n: number): number {
  let digits = 1;
  for (let power = 10; n >= power; power *= 10) digits++;
  return digits;
}

/** JSON of a type and shape, between name and offsets. */
function middleOf({ dtype, shape }: TypeAndShape): string {
  return `":{"dtype":"${dtype}","shape":[${shape.join()}],"data_offsets":[`;
}

/** Bytes of the JSON that jsonOf makes. */
function jsonBytes({ kindOf, order, nameBytes, offsets, end, metadata }: Contents): number {
  const first = new TextEncoder().encode(metadataOf(metadata)).length;
  const commas = Math.max(0, order.length - 1) + (first > 0 && order.length > 0 ? 1 : 0);
  let bytes = '{}'.length + first + commas + nameBytes + '",]}'.length * order.length;
  let last: TypeAndShape | undefined;
  let middle = 0;
  for (let i = 0; i < order.length; i++) {
    const index = order[i] as number;
    const next = order[i + 1];
    const kind = kindOf(index);
    if (kind !== last) middle = middleOf(kind).length;
    last = kind;
    const stop = next === undefined ? end : (offsets[next] as number);
    bytes += middle + digitsOf(offsets[index] as number) + digitsOf(stop);
  }
  return bytes;
}

/** Makes the JSON of a header, in chunks. */
function* jsonOf({ nameOf, kindOf, order, arePlain, offsets, end, metadata }: Contents): Generator<string, void> {
  let piece = `{${metadataOf(metadata)}`;
  let last: TypeAndShape | undefined;
  let middle = '';
  if (piece !== '{' && order.length > 0) piece += ',';
  for (let i = 0; i < order.length; i++) {
    const index = order[i] as number;
    const next = order[i + 1];
    const kind = kindOf(index);
    if (kind !== last) middle = middleOf(kind);
    last = kind;
    const name = nameOf(index);
    const key = arePlain ? name : JSON.stringify(name).slice(1, -1);
    piece += `"${key}${middle}${offsets[index]},${next === undefined ? end : offsets[next]}]}`;
    if (next !== undefined) piece += ',';
    if (i % tensorsAtOnce !== tensorsAtOnce - 1) continue;
    yield piece;
    piece = '';
  }
  yield `${piece}}`;
}

/** Makes the bytes of a header: its length, its JSON, and spaces up to a multiple of 8. */
function* headerOf(length: number, used: number, json: Iterable<string>): Generator<Uint8Array<ArrayBuffer>, void> {
  const encoder = new TextEncoder();
  let made = 0;
  for (const piece of json) {
    const text = encoder.encode(piece);
    const start = made === 0 ? 8 : 0;
    made += text.length;
    const bytes = new Uint8Array(start + text.length + (made === used ? length - used : 0)).fill(0x20);
    if (start > 0) new DataView(bytes.buffer).setBigUint64(0, BigInt(length), true);
    bytes.set(text, start);
    yield bytes;
  }
  if (made !== used) throw new Error(`the header has ${made} bytes instead of ${used}`);
}

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
  const order = orderOf(tensors);
  const contents = { ...tensors, ...order, ...placesOf(tensors, order.order), metadata };
  // Count the bytes first, so that the JSON is never in memory as a whole.
  const used = jsonBytes(contents);
  const length = Math.ceil(used / 8) * 8;
  if (length > maxHeaderBytes) {
    throw new ScalepointError(
      'BAD_FILE',
      `the header would have ${length} bytes, more than the ${maxHeaderBytes} allowed`,
    );
  }
  const bytes = 8 + length;
  return {
    header: { bytes, make: () => headerOf(length, used, jsonOf(contents)) },
    order: contents.order,
    offsets: contents.offsets.map((offset) => bytes + offset),
    size: bytes + contents.end,
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

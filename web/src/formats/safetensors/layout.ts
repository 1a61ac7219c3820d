/** Writes headers of safetensors files. */
import { ScalepointError } from '../../core/errors.js';
import { show } from '../../core/show.js';
import { quoted } from '../../files/bytes.js';
import type { MadeBytes } from '../format.js';
import { compareNames } from '../tensors.js';
import { dtypeOrder, maxHeaderBytes, type TensorDType, tensorBytes } from './header.js';

/** A tensor to be written. */
export interface NamedTensor {
  readonly name: string;
  readonly dtype: TensorDType;
  readonly shape: readonly number[];
}

/** A safetensors file to be written: its header, and where each tensor's bytes go. */
export interface SafetensorsLayout {
  /** The first bytes of the file: length and JSON. */
  readonly header: MadeBytes;
  /** Which tensors follow, by their indices, in the order of their bytes. */
  readonly order: Uint32Array;
  /** Where each tensor begins, from the start of the file, by its index. */
  readonly offsets: Float64Array;
  /** Bytes of the whole file. */
  readonly size: number;
}

/** Type and shape of a tensor. */
type Kind = Pick<NamedTensor, 'dtype' | 'shape'>;

/** The tensors of a file to be written, by their numbers. There may be several hundred thousand of them, so that nothing is made of each. */
export interface ListedTensors {
  readonly count: number;
  nameOf(index: number): string;
  kindOf(index: number): Kind;
}

interface Listed extends ListedTensors {
  /** Whether all names are of characters that JSON writes as they are, and engines compare as bytes. */
  readonly isPlain: boolean;
}

/** Names that JSON writes as they are. */
const isPlainKey = /^[\w.\-/]*$/;

type Compare = (a: string, b: string) => number;

/** Engines compare strings by their units, fast. That is byte order, unless there are units from the surrogates on. */
function comparerOf({ count, nameOf, isPlain }: Listed): Compare {
  let isSimple = true;
  for (let i = 0; i < count && !isPlain; i++) isSimple &&= !/[\ud800-\uffff]/.test(nameOf(i));
  return isSimple ? (a, b) => (a < b ? -1 : a > b ? 1 : 0) : compareNames;
}

/** Numbers made of how names end. Lists that have none of them in common have no name in common. */
function endsOf(names: readonly string[]): Set<number> {
  const ends = new Set<number>();
  let last = -1;
  for (const name of names) {
    const { length } = name;
    if (length < 3) continue;
    const end =
      (name.charCodeAt(length - 3) * 2 ** 16 + name.charCodeAt(length - 2)) * 2 ** 16 + name.charCodeAt(length - 1);
    if (end !== last) ends.add(end);
    last = end;
  }
  return ends;
}

/** Names in order. */
interface SortedNames {
  readonly names: readonly string[];
  /** As `endsOf` gives them; undefined if some are too short for that. */
  readonly ends: ReadonlySet<number> | undefined;
}

function sortedNames(names: readonly string[]): SortedNames {
  return { names, ends: names.every(({ length }) => length >= 3) ? endsOf(names) : undefined };
}

/** A name that two sorted lists have in common, or that one has twice. */
function twice(first: SortedNames, second: SortedNames, compare: Compare): string | undefined {
  const [a, b] = [first.names, second.names];
  if (first === second) return a.find((name, i) => i > 0 && name === a[i - 1]);
  if (first.ends !== undefined && second.ends !== undefined && areApart(first.ends, second.ends)) return undefined;
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    const order = compare(a[i] as string, b[j] as string);
    if (order === 0) return a[i];
    if (order < 0) i++;
    else j++;
  }
  return undefined;
}

function areApart(a: ReadonlySet<number>, b: ReadonlySet<number>): boolean {
  for (const one of a) if (b.has(one)) return false;
  return true;
}

/** An order of names, by their places. @param like an order that it may have */
function placesByName(names: readonly string[], compare: Compare, like: readonly number[]): readonly number[] {
  const isOrder = (places: readonly number[]) =>
    places.every(
      (place, i) => i === 0 || compare(names[places[i - 1] as number] as string, names[place] as string) < 0,
    );
  // The scales of some codes are ordered as the codes are, and files mostly are in order. To see that takes a tenth of the time of sorting.
  if (like.length === names.length && isOrder(like)) return like;
  const places = [...names.keys()];
  return isOrder(places) ? places : places.sort((a, b) => compare(names[a] as string, names[b] as string));
}

/** The tensors in the order of the reference: wide dtypes first, names in byte order. @throws RangeError if a name is taken */
function orderOf(listed: Listed): Uint32Array {
  const { count, nameOf, kindOf } = listed;
  const compare = comparerOf(listed);
  const byType = new Map<TensorDType, number[]>();
  for (let index = 0; index < count; index++) {
    const { dtype } = kindOf(index);
    const list = byType.get(dtype);
    if (list === undefined) byType.set(dtype, [index]);
    else list.push(index);
  }
  const rank = ([dtype]: readonly [TensorDType, unknown]) => dtypeOrder.get(dtype) ?? 0;
  const order = new Uint32Array(count);
  // A set of all names would take more memory and time than comparing the few lists.
  const sorted = [sortedNames(['__metadata__'])];
  let places: readonly number[] = [];
  let done = 0;
  for (const [, list] of [...byType].sort((a, b) => rank(b) - rank(a))) {
    const names = list.map(nameOf);
    places = placesByName(names, compare, places);
    for (const place of places) order[done++] = list[place] as number;
    sorted.push(sortedNames(places.map((place) => names[place] as string)));
  }
  for (const [i, first] of sorted.entries()) {
    for (const second of sorted.slice(i)) {
      const taken = twice(first, second, compare);
      if (taken !== undefined) throw new RangeError(`tensor ${quoted(taken)}: the name is taken`);
    }
  }
  return order;
}

/** Where each tensor begins and the last one ends, from the end of the header. @throws RangeError as `layoutSafetensors` */
function placesOf({ count, nameOf, kindOf }: Listed, order: Uint32Array): { offsets: Float64Array; end: number } {
  const offsets = new Float64Array(count);
  let end = 0;
  let last: Kind | undefined;
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

/** Tensors whose JSON is made at a time. The header of a hundred thousand has tens of megabytes. */
const tensorsAtOnce = 8192;

/** The key of the metadata with its value, if there is any. */
function metadataOf(metadata: Readonly<Record<string, string>>): string {
  return Object.keys(metadata).length > 0 ? `"__metadata__":${JSON.stringify(metadata)}` : '';
}

/** How many digits a whole number has. */
function digitsOf(n: number): number {
  let digits = 1;
  for (let power = 10; n >= power; power *= 10) digits++;
  return digits;
}

/** Bytes of what jsonOf makes. */
function jsonBytes(
  { nameOf, kindOf, isPlain }: Listed,
  order: Uint32Array,
  offsets: Float64Array,
  end: number,
  metadata: Readonly<Record<string, string>>,
  encoder: TextEncoder,
): number {
  const frame = '"":{"dtype":"","shape":[],"data_offsets":[,]}'.length;
  const first = encoder.encode(metadataOf(metadata)).length;
  const commas = Math.max(0, order.length - 1) + (first > 0 && order.length > 0 ? 1 : 0);
  let bytes = '{}'.length + first + commas + frame * order.length;
  let last: readonly number[] | undefined;
  let dimensions = 0;
  for (let i = 0; i < order.length; i++) {
    const index = order[i] as number;
    const name = nameOf(index);
    const { dtype, shape } = kindOf(index);
    const next = order[i + 1];
    if (shape !== last) dimensions = shape.join().length;
    last = shape;
    bytes += isPlain || isPlainKey.test(name) ? name.length : encoder.encode(JSON.stringify(name)).length - 2;
    bytes += dtype.length + dimensions + digitsOf(offsets[index] as number);
    bytes += digitsOf(next === undefined ? end : (offsets[next] as number));
  }
  return bytes;
}

/** The JSON of a header, in pieces. */
function* jsonOf(
  { nameOf, kindOf, isPlain }: Listed,
  order: Uint32Array,
  offsets: Float64Array,
  end: number,
  metadata: Readonly<Record<string, string>>,
): Generator<string, void> {
  let piece = `{${metadataOf(metadata)}`;
  let last: readonly number[] | undefined;
  let dimensions = '';
  if (piece !== '{' && order.length > 0) piece += ',';
  for (let i = 0; i < order.length; i++) {
    const index = order[i] as number;
    const name = nameOf(index);
    const { dtype, shape } = kindOf(index);
    const next = order[i + 1];
    const stop = next === undefined ? end : offsets[next];
    const place = `[${offsets[index]},${stop}]}`;
    if (shape !== last) dimensions = shape.join();
    last = shape;
    const key = isPlain || isPlainKey.test(name) ? `"${name}"` : JSON.stringify(name);
    piece += `${key}:{"dtype":"${dtype}","shape":[${dimensions}],"data_offsets":${place}`;
    if (next !== undefined) piece += ',';
    if (i % tensorsAtOnce !== tensorsAtOnce - 1) continue;
    yield piece;
    piece = '';
  }
  yield `${piece}}`;
}

/** The bytes of a header: its length, its JSON, and spaces up to a multiple of 8. */
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
 * Lays out a file as the reference does. Wide dtypes come first, so that every tensor is aligned. Within a dtype, names are in byte order.
 * The header is padded with spaces to a multiple of 8.
 * @throws RangeError if two tensors have one name, or if a shape does not make whole bytes; ScalepointError `BAD_FILE` if the header
 *   would be longer than the format allows
 */
export function layoutListed(
  tensors: ListedTensors,
  metadata: Readonly<Record<string, string>> = {},
): SafetensorsLayout {
  const { count, nameOf } = tensors;
  let isPlain = true;
  for (let i = 0; i < count && isPlain; i++) isPlain = isPlainKey.test(nameOf(i));
  const listed = { ...tensors, isPlain };
  const order = orderOf(listed);
  const { offsets, end } = placesOf(listed, order);
  // Counted first: so the JSON is never in memory as a whole.
  const used = jsonBytes(listed, order, offsets, end, metadata, new TextEncoder());
  const length = Math.ceil(used / 8) * 8;
  if (length > maxHeaderBytes) {
    throw new ScalepointError(
      'BAD_FILE',
      `the header would have ${length} bytes, more than the ${maxHeaderBytes} allowed`,
    );
  }
  const bytes = 8 + length;
  return {
    header: { bytes, make: () => headerOf(length, used, jsonOf(listed, order, offsets, end, metadata)) },
    order,
    offsets: offsets.map((offset) => bytes + offset),
    size: bytes + end,
  };
}

/** The same for tensors in a list. */
export function layoutSafetensors(
  tensors: readonly NamedTensor[],
  metadata: Readonly<Record<string, string>> = {},
): SafetensorsLayout {
  const at = (index: number) => tensors[index] as NamedTensor;
  return layoutListed({ count: tensors.length, nameOf: (index) => at(index).name, kindOf: at }, metadata);
}

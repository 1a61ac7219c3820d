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

/** Names that JSON writes as they are, and whose order is that of their bytes. */
const isPlainKey = /^[\w.\-/]*$/;

type Compare = (a: string, b: string) => number;

/** Engines compare strings by their units, fast. That is byte order, unless there are units from the surrogates on. */
const byUnits: Compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/** A number made of how a name ends; undefined if it is too short. */
function endOf(name: string): number | undefined {
  const at = name.length - 3;
  if (at < 0) return undefined;
  return (name.charCodeAt(at) * 2 ** 16 + name.charCodeAt(at + 1)) * 2 ** 16 + name.charCodeAt(at + 2);
}

/** What is known of the names of some tensors. */
interface Seen {
  /** Whether they are in order, and none is there twice. */
  readonly areOrdered: boolean;
  readonly arePlain: boolean;
  /** Their bytes in JSON, without quotes. */
  readonly bytes: number;
  /** Lists that have no ends in common have no name in common. Undefined if a name is too short. */
  readonly ends: ReadonlySet<number> | undefined;
}

/** Looks at names one after the other. All of them at once would take more memory than all else. */
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

/** A name that two sorted lists have in common. */
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

/** Places of names in their order. @throws RangeError if two names are equal */
function sortedPlaces(names: readonly string[], arePlain: boolean): number[] {
  const compare = arePlain ? byUnits : compareNames;
  const places = [...names.keys()].sort((a, b) => compare(names[a] as string, names[b] as string));
  const again = places.find((place, i) => i > 0 && names[place] === names[places[i - 1] as number]);
  if (again !== undefined) throw takenError(names[again] as string);
  return places;
}

/** Tensors of one type, as they follow each other in the file. */
interface Stretch {
  readonly names: () => readonly string[];
  readonly ends: ReadonlySet<number> | undefined;
}

/** The order of tensors, and what is known of their names. */
interface Order {
  readonly order: Uint32Array;
  /** Whether all names are plain. */
  readonly arePlain: boolean;
  /** Bytes of all names in JSON, without their quotes. */
  readonly nameBytes: number;
}

/** The tensors in the order of the reference: wide dtypes first, names in byte order. @throws RangeError if a name is taken */
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
  const stretches: Stretch[] = [{ names: () => reserved, ends: look(1, () => reserved[0] as string, encoder).ends }];
  let [arePlain, nameBytes, done] = [true, 0, 0];
  let places: readonly number[] = [];
  for (const [, list] of [...byType].sort((a, b) => rank(b) - rank(a))) {
    // The scales of some codes are ordered as the codes are. Most files are in order, too.
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
    stretches.push({ names: () => Array.from(order.subarray(begin, end), nameOf), ends: seen.ends });
  }
  for (const [i, first] of stretches.entries()) {
    for (const second of stretches.slice(i + 1)) {
      const taken = areApart(first.ends, second.ends) ? undefined : common(first.names(), second.names());
      if (taken !== undefined) throw takenError(taken);
    }
  }
  return { order, arePlain, nameBytes };
}

/** Everything that a header says. */
interface Contents extends ListedTensors, Order {
  /** Where each tensor begins and the last one ends, from the end of the header. */
  readonly offsets: Float64Array;
  readonly end: number;
  readonly metadata: Readonly<Record<string, string>>;
}

/** Where each tensor begins and the last one ends, from the end of the header. @throws RangeError as `layoutSafetensors` */
function placesOf(
  { count, nameOf, kindOf }: ListedTensors,
  order: Uint32Array,
): { offsets: Float64Array; end: number } {
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

/** What is said of all tensors of a kind, between their names and their places. */
function middleOf({ dtype, shape }: Kind): string {
  return `":{"dtype":"${dtype}","shape":[${shape.join()}],"data_offsets":[`;
}

/** Bytes of what jsonOf makes. */
function jsonBytes({ kindOf, order, nameBytes, offsets, end, metadata }: Contents): number {
  const first = new TextEncoder().encode(metadataOf(metadata)).length;
  const commas = Math.max(0, order.length - 1) + (first > 0 && order.length > 0 ? 1 : 0);
  let bytes = '{}'.length + first + commas + nameBytes + '",]}'.length * order.length;
  let last: Kind | undefined;
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

/** The JSON of a header, in pieces. */
function* jsonOf({ nameOf, kindOf, order, arePlain, offsets, end, metadata }: Contents): Generator<string, void> {
  let piece = `{${metadataOf(metadata)}`;
  let last: Kind | undefined;
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
  const order = orderOf(tensors);
  const contents = { ...tensors, ...order, ...placesOf(tensors, order.order), metadata };
  // Counted first: so the JSON is never in memory as a whole.
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

/** The same for tensors in a list. */
export function layoutSafetensors(
  tensors: readonly NamedTensor[],
  metadata: Readonly<Record<string, string>> = {},
): SafetensorsLayout {
  const at = (index: number) => tensors[index] as NamedTensor;
  return layoutListed({ count: tensors.length, nameOf: (index) => at(index).name, kindOf: at }, metadata);
}

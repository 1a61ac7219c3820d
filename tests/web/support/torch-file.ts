// Writes files of torch.save for tests: pickles by the opcodes of Lib/pickletools.py (CPython 3.13), archives and legacy files as
// torch/serialization.py (github.com/pytorch/pytorch at 00f730b) lays them out.
import { zip } from './npz.js';

/** Values that pickles have and JavaScript has not. */
type Special =
  | { readonly global: readonly [module: string, name: string] }
  | { readonly call: Py; readonly args: readonly Py[]; readonly state?: Py }
  | { readonly tuple: readonly Py[] }
  | { readonly persistent: Py }
  | { readonly float: number }
  /** Opcodes as they are. */
  | { readonly raw: readonly number[] | Uint8Array };

/** A value of Python: arrays are lists, maps are dictionaries, integers are ints. */
export type Py = null | boolean | number | bigint | string | Uint8Array | readonly Py[] | ReadonlyMap<Py, Py> | Special;

export const global = (module: string, name: string): Py => ({ global: [module, name] });
export const tuple = (...items: readonly Py[]): Py => ({ tuple: items });
export const call = (module: string, name: string, args: readonly Py[], state?: Py): Py => ({
  call: global(module, name),
  args,
  ...(state === undefined ? {} : { state }),
});
export const dict = (entries: Readonly<Record<string, Py>>): Py => new Map(Object.entries(entries));
export const ordered = (entries: Readonly<Record<string, Py>>): Py => ({
  raw: [...opcodes(call('collections', 'OrderedDict', [])), ...settings(new Map(Object.entries(entries)))],
});

const utf8 = (text: string) => [...new TextEncoder().encode(text)];
export const uint32 = (value: number) => [...new Uint8Array(Uint32Array.of(value).buffer)];

function settings(map: ReadonlyMap<Py, Py>): number[] {
  return [0x28, ...[...map].flatMap(([key, value]) => [...opcodes(key), ...opcodes(value)]), 0x75];
}

function integer(value: bigint): number[] {
  if (value >= -(2n ** 31n) && value < 2n ** 31n) return [0x4a, ...uint32(Number(value))];
  let length = 1;
  while (BigInt.asIntN(8 * length, value) !== value) length++;
  return [0x8a, length, ...Array.from({ length }, (_, i) => Number((value >> BigInt(8 * i)) & 255n))];
}

/** The opcodes that push a value. */
export function opcodes(value: Py): number[] {
  if (value === null) return [0x4e];
  if (typeof value === 'boolean') return [value ? 0x88 : 0x89];
  if (typeof value === 'bigint' || typeof value === 'number') return integer(BigInt(value));
  if (typeof value === 'string') return [0x58, ...uint32(utf8(value).length), ...utf8(value)];
  if (value instanceof Uint8Array) return [0x42, ...uint32(value.length), ...value];
  if (Array.isArray(value)) return [0x5d, 0x28, ...(value as readonly Py[]).flatMap(opcodes), 0x65];
  if (value instanceof Map) return [0x7d, ...settings(value)];
  const special = value as Special;
  if ('global' in special) return [0x63, ...utf8(`${special.global[0]}\n${special.global[1]}\n`)];
  if ('tuple' in special) return [0x28, ...special.tuple.flatMap(opcodes), 0x74];
  if ('persistent' in special) return [...opcodes(special.persistent), 0x51];
  if ('raw' in special) return [...special.raw];
  if ('float' in special) {
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setFloat64(0, special.float);
    return [0x47, ...bytes];
  }
  const made = [...opcodes(special.call), ...opcodes({ tuple: special.args }), 0x52];
  return special.state === undefined ? made : [...made, ...opcodes(special.state), 0x62];
}

/** A pickle of protocol 2. */
export function pickle(value: Py): Uint8Array<ArrayBuffer> {
  // Opcodes that are bytes already may be millions.
  const isRaw = typeof value === 'object' && value !== null && 'raw' in value;
  const inside = isRaw ? value.raw : opcodes(value);
  const bytes = new Uint8Array(inside.length + 3);
  bytes.set([0x80, 2]);
  bytes.set(inside, 2);
  bytes[inside.length + 2] = 0x2e;
  return bytes;
}

export interface Storage {
  /** Name of the class, such as `FloatStorage`. */
  readonly type: string;
  readonly key: string;
  readonly count: number;
  readonly bytes: Uint8Array;
  /** Legacy files: the first element of a view. */
  readonly view?: number;
  readonly isLegacy?: boolean;
}

const rowMajor = (shape: readonly number[]) =>
  shape.map((_, i) => shape.slice(i + 1).reduce((product, dimension) => product * dimension, 1));

function storageValue({ type, key, count, view, isLegacy = false }: Storage): Py {
  const id: Py[] = ['storage', global('torch', type), key, 'cpu', count];
  if (isLegacy) id.push(view === undefined ? null : tuple(`${key}v`, view, count - view));
  return { persistent: tuple(...id) };
}

/** A tensor. @param dtype the type of torch for those without a storage class */
export function tensor(
  storage: Storage,
  shape: readonly number[],
  { strides = rowMajor(shape), offset = 0, dtype, metadata }: TensorOptions = {},
): Py {
  const hooks = call('collections', 'OrderedDict', []);
  const args = [storageValue(storage), offset, tuple(...shape), tuple(...strides), false, hooks];
  const name = dtype === undefined ? '_rebuild_tensor_v2' : '_rebuild_tensor_v3';
  const more = [
    ...(dtype === undefined ? [] : [global('torch', dtype)]),
    ...(metadata === undefined ? [] : [metadata]),
  ];
  return call('torch._utils', name, [...args, ...more]);
}

interface TensorOptions {
  readonly strides?: readonly number[];
  readonly offset?: number;
  readonly dtype?: string;
  readonly metadata?: Py;
}

/** A file of PyTorch 1.6 or later. */
export function archive(
  value: Py,
  storages: readonly Storage[],
  { folder = 'archive', order = 'little', more = [], deflate }: ArchiveOptions = {},
): Uint8Array<ArrayBuffer> {
  const entries: [string, Uint8Array, number][] = [
    [`${folder}/data.pkl`, pickle(value), 0],
    [`${folder}/.format_version`, Uint8Array.from(utf8('1')), 0],
    ...(order === undefined
      ? []
      : [[`${folder}/byteorder`, Uint8Array.from(utf8(order)), 0] as [string, Uint8Array, number]]),
    ...storages.map(({ key, bytes }): [string, Uint8Array, number] => [`${folder}/data/${key}`, bytes, 0]),
    [`${folder}/version`, Uint8Array.from(utf8('3\n')), 0],
    ...more,
  ];
  if (deflate === undefined) return zip(entries, (bytes) => bytes);
  return zip(
    entries.map(([name, bytes]) => [name, bytes, 8]),
    deflate,
  );
}

interface ArchiveOptions {
  /** Packs all entries, as other tools than torch.save do. */
  readonly deflate?: (bytes: Uint8Array) => Uint8Array;
  readonly folder?: string;
  readonly order?: string | undefined;
  readonly more?: readonly [string, Uint8Array, number][];
}

const magic = 0x1950a86a20f9469cfc6cn;

/** A file of before PyTorch 1.6. */
export function legacy(value: Py, storages: readonly Storage[], littleEndian = true): Uint8Array<ArrayBuffer> {
  const system = dict({
    protocol_version: 1001,
    little_endian: littleEndian,
    type_sizes: dict({ short: 2, int: 4, long: 4 }),
  });
  const parts = [magic, 1001, system, value, storages.map(({ key }) => key)].map((one) => [...pickle(one as Py)]);
  const data = storages.flatMap(({ count, bytes }) => {
    const length = new Uint8Array(8);
    new DataView(length.buffer).setBigUint64(0, BigInt(count), littleEndian);
    return [...length, ...bytes];
  });
  return Uint8Array.from([...parts.flat(), ...data]);
}

/** The tensors of a safetensors file, read without our reader. */
export function tensorsOf(file: Uint8Array): Record<string, { dtype: string; shape: number[]; bytes: Uint8Array }> {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const length = Number(view.getBigUint64(0, true));
  const { __metadata__: _, ...header } = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + length)));
  return Object.fromEntries(
    Object.entries(header as Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }>).map(
      ([
        name,
        {
          dtype,
          shape,
          data_offsets: [begin, end],
        },
      ]) => [name, { dtype, shape, bytes: file.slice(8 + length + begin, 8 + length + end) }],
    ),
  );
}

// Tensors of arrays, quantized ones and floats, saved to safetensors files and loaded again.

import { castFloat, castToFloat32 } from '../arrays/cast.js';
import { dequantize, givenTensor, pack, unpack } from '../arrays/kinds.js';
import { quantizeLinear } from '../arrays/quantize-linear.js';
import type { HalfFormat, StoredFloats } from '../arrays/source.js';
import {
  type BlockTensor,
  type CodeArray,
  type CodebookTensor,
  dtypeInfo,
  type LinearQuantizedTensor,
  type QuantizedTensor,
} from '../arrays/tensor.js';
import { isTensor, partsOfTensor, type TensorLike } from '../arrays/tensor-like.js';
import { sizeOfShape } from '../core/check.js';
import { rangeError, ScalepointError, typeError } from '../core/errors.js';
import type { Core } from '../core/memory.js';
import { type Expected, ofType } from '../core/option-problem.js';
import { typedArrayName } from '../core/realms.js';
import { show } from '../core/show.js';
import type { WasmArray } from '../core/wasm-array.js';
import { quoted } from '../formats/files/bytes.js';
import { madeBytes, type OpenFile, type OpenInput, type OpenModel, type SourceTensor } from '../formats/format.js';
import type { TensorDType } from '../formats/safetensors/header.js';
import { openSafetensors } from '../formats/safetensors/shards.js';
import { layoutSafetensors, type NamedTensor } from '../formats/safetensors/write-header.js';
import { recognize } from './recognize.js';
import { readStored, type TensorData } from './stored-tensor.js';

// The file holds the codes under the name of the tensor, and `name.scale` and the like beside them. `__metadata__` holds under this key the
// rest, as JSON: { version, tensors: { name: Meaning } }.
const key = 'scalepoint';
const formatVersion = 1;

/** A tensor to be saved. */
export type SavableTensor = QuantizedTensor | Float32Array | Float64Array | WasmArray | StoredFloats | TensorLike;

/** Floats have no kind, so that it tells them from quantized tensors. */
type WithoutKind = {
  /** Absent. */
  readonly kind?: undefined;
};

/** A tensor of a file that `saveTensors` made. */
export type SavedTensor =
  | QuantizedTensor
  | (Float32Array & WithoutKind)
  | (Float64Array & WithoutKind)
  | (StoredFloats & WithoutKind);

/** The entry of floats in the metadata. 'array': without a shape. Type and shape of the others are those of the part. */
type FloatMeaning = { readonly kind: 'array' } | { readonly kind: 'floats' };

/** The entry of a tensor in the metadata: the whole tensor except its arrays, which are parts of the file. */
type Meaning =
  | FloatMeaning
  | Pick<LinearQuantizedTensor, 'kind' | 'dtype' | 'shape' | 'granularity' | 'packed'>
  | Pick<CodebookTensor, 'kind' | 'shape' | 'blockSize'>
  | Pick<BlockTensor, 'kind' | 'type' | 'shape'>;

/** A part of a tensor, as the file holds it. */
interface SavedPart extends NamedTensor {
  readonly data: TensorData;
}

type SavedArray = Pick<SavedPart, 'dtype' | 'data'>;

/** Compares arrays bit by bit. */
function equalBits(a: Float32Array, b: Float32Array): boolean {
  const [x, y] = [a, b].map((f) => new Uint32Array(f.buffer, f.byteOffset, f.length)) as [Uint32Array, Uint32Array];
  return x.every((bits, i) => bits === y[i]);
}

/** Stores floats in the smallest type that holds them exactly. */
function storedFloats(core: Core, x: Float32Array): SavedArray {
  const half = { bfloat16: 'BF16', float16: 'F16' } as const;
  for (const format of ['bfloat16', 'float16'] as const) {
    const bits = castFloat(core, x, format, {}) as Uint16Array;
    if (equalBits(castToFloat32(core, bits, format, {}) as Float32Array, x)) return { dtype: half[format], data: bits };
  }
  return { dtype: 'F32', data: x };
}

/** Stores integers in the smallest type that holds them. */
function storedIntegers(values: Int32Array): SavedArray {
  const types = [
    ['I8', Int8Array],
    ['U8', Uint8Array],
    ['I16', Int16Array],
  ] as const;
  for (const [dtype, Type] of types) {
    const data = Type.from(values);
    if (values.every((value, i) => value === data[i])) return { dtype, data };
  }
  return { dtype: 'I32', data: values };
}

const flat = (name: string, { dtype, data }: SavedArray): SavedPart => ({ name, dtype, shape: [data.length], data });

/** Quantizes the scales of a codebook to int8, as `absmaxType` of `quantizeCodebook` does. */
const absmaxOptions = (blocks: number) =>
  ({ dtype: 'int8', shape: [blocks], granularity: { kind: 'per-group', groupSize: 256 } }) as const;

/** Stores the absmax of blocks: as int8 with their own scales if that is exact, or as floats. */
function absmaxParts(core: Core, name: string, absmax: Float32Array): SavedPart[] {
  const floats = flat(`${name}.absmax`, storedFloats(core, absmax));
  if (absmax.length === 0) return [floats];
  const q = quantizeLinear(core, absmax, absmaxOptions(absmax.length));
  const same = equalBits(dequantize(core, q, {}) as Float32Array, absmax);
  const coded = [
    flat(`${name}.absmax`, { dtype: 'I8', data: q.data as Int8Array }),
    flat(`${name}.absmax_scale`, storedFloats(core, q.scale)),
  ];
  const bytes = (parts: readonly SavedPart[]) => parts.reduce((sum, { data }) => sum + data.byteLength, 0);
  return same && bytes(coded) < bytes([floats]) ? coded : [floats];
}

const codeTypes = { int8: 'I8', uint8: 'U8', int16: 'I16', uint16: 'U16' } as const;

/** The type of codes that are stored one per element; undefined if they are packed. */
function plainCodeType({ dtype, packed }: Pick<LinearQuantizedTensor, 'dtype' | 'packed'>): TensorDType | undefined {
  return packed ? undefined : codeTypes[dtype as keyof typeof codeTypes];
}

/** Splits a tensor into the parts of the file and its entry in the metadata. */
function quantizedParts(core: Core, name: string, tensor: QuantizedTensor): { meaning: Meaning; parts: SavedPart[] } {
  // Take views, because the core of this call cannot see the wasm memory of another instance.
  const q = { ...tensor, data: 'view' in tensor.data ? tensor.data.view : tensor.data } as QuantizedTensor;
  // Check the whole tensor, down to every scale.
  givenTensor(core, q, `tensors.${name}`);
  const { kind, shape } = q;
  if (kind === 'blocks') {
    const part = flat(name, { dtype: 'U8', data: q.data as TensorData });
    return { meaning: { kind, type: q.type, shape }, parts: [part] };
  }
  if (kind === 'codebook') {
    const codes = flat(name, { dtype: 'U8', data: pack(core, q) as Uint8Array });
    const values = flat(`${name}.codebook`, storedFloats(core, q.codebook));
    const parts = [codes, values, ...absmaxParts(core, name, q.absmax)];
    return { meaning: { kind, shape, blockSize: q.blockSize }, parts };
  }
  const plain = plainCodeType(q);
  const codes: SavedPart =
    plain === undefined
      ? flat(name, { dtype: 'U8', data: pack(core, q) as Uint8Array })
      : { name, dtype: plain, shape, data: q.data as TensorData };
  const parts = [codes, flat(`${name}.scale`, storedFloats(core, q.scale))];
  if (q.zeroPoint.some((zero) => zero !== 0)) parts.push(flat(`${name}.zero_point`, storedIntegers(q.zeroPoint)));
  const packed = q.packed && { packed: true };
  return { meaning: { kind, dtype: q.dtype, shape, granularity: q.granularity, ...packed }, parts };
}

const tensorKinds: readonly string[] = ['linear', 'codebook', 'blocks'];

/** Tensors that can be saved. */
const tensorForm: Expected = {
  kind: 'anyOf',
  of: [
    { kind: 'quantized', kinds: tensorKinds },
    ofType('Float32Array', 'Float64Array', 'WasmArray of float32', 'tensor of floats'),
  ],
};

const floatTypes = { Float32Array: 'F32', Float64Array: 'F64', Float16Array: 'F16' } as const;

/** The stored type of floats; undefined for other arrays. */
function floatType(data: unknown, format?: HalfFormat): TensorDType | undefined {
  const name = typedArrayName(data);
  if (name === 'Uint16Array' && format !== undefined) return format === 'float16' ? 'F16' : 'BF16';
  return floatTypes[name as keyof typeof floatTypes];
}

/** The part and the entry of floats. @throws TypeError or RangeError naming the tensor */
function floatPart(name: string, given: SavableTensor): { meaning: FloatMeaning; parts: SavedPart[] } {
  const what = `tensors.${name}`;
  if (isTensor(given)) {
    const { data, shape, size, format } = partsOfTensor(given, what);
    const dtype = floatType(data, format);
    if (dtype === undefined) throw typeError(`${what}.data`, ofType(...Object.keys(floatTypes)), data);
    const array = data as Float32Array;
    if (array.length !== size) throw rangeError(`${what}.shape`, { kind: 'shape', elements: array.length }, shape);
    return { meaning: { kind: 'floats' }, parts: [{ name, dtype, shape: [...shape], data: array }] };
  }
  const array = typeof given === 'object' && given !== null && 'view' in given ? given.view : given;
  const dtype = floatType(array);
  // A Float16Array would come back as another array in engines that lack it.
  if (dtype === undefined || dtype === 'F16') throw typeError(what, tensorForm, given);
  return { meaning: { kind: 'array' }, parts: [flat(name, { dtype, data: array as Float32Array })] };
}

const isQuantizedTensor = (tensor: SavableTensor): tensor is QuantizedTensor =>
  tensorKinds.includes((tensor as QuantizedTensor | undefined)?.kind as string);

/** @throws TypeError or RangeError naming the tensor */
export function writeTensors(core: Core, tensors: Readonly<Record<string, SavableTensor>>): Uint8Array<ArrayBuffer> {
  const meanings: [string, Meaning][] = [];
  const parts: SavedPart[] = [];
  for (const [name, tensor] of Object.entries(tensors)) {
    const one = isQuantizedTensor(tensor) ? quantizedParts(core, name, tensor) : floatPart(name, tensor);
    meanings.push([name, one.meaning]);
    parts.push(...one.parts);
  }
  const metadata = JSON.stringify({ version: formatVersion, tensors: Object.fromEntries(meanings) });
  const { header, offsets, size } = layoutSafetensors(parts, { [key]: metadata });
  const file = new Uint8Array(size);
  file.set(madeBytes(header));
  for (const [i, { data }] of parts.entries()) {
    file.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), offsets[i] as number);
  }
  return file;
}

// ------------------------------------------------------------------------------------------------------------------------ load

function badSaved(message: string, tensor?: string, cause?: unknown): ScalepointError {
  const where = tensor === undefined ? '' : `tensor ${quoted(tensor)}: `;
  return new ScalepointError('BAD_FILE', `${where}${message}`, { ...(tensor !== undefined && { tensor }), cause });
}

/** The entry of each tensor in the metadata, unchecked. */
type Meanings = [name: string, meaning: Record<string, unknown>][];

const notSaved = 'the file was not made by saveTensors: readTensor and readQuantized read tensors of model files';

/** Reads the metadata. Checks that each tensor has an object, but not the objects themselves. */
function meaningsOf({ metadata }: OpenModel): Meanings {
  const text = metadata[key];
  if (typeof text !== 'string') throw badSaved(notSaved);
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch (error) {
    throw badSaved('the metadata of saveTensors are not JSON', undefined, error);
  }
  const { version, tensors } = (found ?? {}) as { version?: unknown; tensors?: unknown };
  if (version !== formatVersion) throw badSaved(`saveTensors wrote version ${formatVersion}, not ${show(version)}`);
  const isObject = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value);
  if (!isObject(tensors)) throw badSaved('the metadata of saveTensors list no tensors');
  return Object.entries(tensors as object).map(([name, meaning]) => {
    if (!isObject(meaning)) throw badSaved(`the metadata of saveTensors say ${show(meaning)}`, name);
    return [name, meaning];
  });
}

/** Reads a tensor from its parts. */
async function readSaved(
  core: Core,
  model: OpenModel,
  stored: ReadonlyMap<string, SourceTensor>,
  [tensor, meaning]: readonly [name: string, meaning: Meaning],
): Promise<SavedTensor> {
  // A part has to be in the file, with one of some types.
  const take = async (end: string, dtypes: readonly string[]) => {
    const name = tensor + end;
    const found = stored.get(name);
    if (found === undefined) throw badSaved(`${quoted(name)} is missing`, tensor);
    const { dtype, shape, data } = await readStored(model, found);
    if (!dtypes.includes(dtype)) throw badSaved(`${quoted(name)} is ${dtype}, not ${dtypes.join(' or ')}`, tensor);
    return { dtype: dtype as string, shape, data: data as TensorData };
  };
  const floats = async (end: string): Promise<Float32Array<ArrayBuffer>> => {
    const { dtype, data } = await take(end, ['F32', 'F16', 'BF16']);
    if (dtype === 'F32') return data as Float32Array<ArrayBuffer>;
    const format = dtype === 'F16' ? 'float16' : 'bfloat16';
    return castToFloat32(core, data as Uint16Array, format, {}) as Float32Array<ArrayBuffer>;
  };
  const packedCodes = async () => (await take('', ['U8'])).data as Uint8Array;
  const { kind } = meaning;
  if (kind === 'array' || kind === 'floats') {
    const { dtype, shape, data } = await take('', kind === 'array' ? ['F32', 'F64'] : ['F32', 'F64', 'F16', 'BF16']);
    return kind === 'array' ? (data as Float32Array) : ({ dtype, shape, data } as StoredFloats);
  }
  const { shape } = meaning;
  let q: QuantizedTensor;
  if (kind === 'blocks') q = { kind, type: meaning.type, shape, data: await packedCodes() };
  else if (kind === 'codebook') {
    const codebook = await floats('.codebook');
    const { blockSize } = meaning;
    const data = unpack(core, await packedCodes(), { kind, codebook, shape }) as Uint8Array;
    const blocks = Math.ceil(sizeOfShape(shape) / blockSize);
    let absmax: Float32Array<ArrayBuffer>;
    if (stored.has(`${tensor}.absmax_scale`)) {
      const { data: codes } = await take('.absmax', ['I8']);
      const scale = await floats('.absmax_scale');
      const zeroPoint = new Int32Array(scale.length);
      const coded = { kind: 'linear', ...absmaxOptions(blocks), data: codes as Int8Array, scale, zeroPoint } as const;
      absmax = dequantize(core, coded, {}) as Float32Array<ArrayBuffer>;
    } else absmax = await floats('.absmax');
    q = { kind, codebook, blockSize, absmax, data, shape };
  } else if (kind === 'linear') {
    const { dtype, granularity, packed } = meaning;
    const plain = plainCodeType({ dtype: dtypeInfo(dtype).name, packed });
    let data: QuantizedTensor['data'];
    if (plain !== undefined) data = (await take('', [plain])).data as Int8Array;
    else data = packed ? await packedCodes() : (unpack(core, await packedCodes(), { dtype, shape }) as CodeArray);
    const scale = await floats('.scale');
    const zeroPoint = stored.has(`${tensor}.zero_point`)
      ? Int32Array.from((await take('.zero_point', ['I8', 'U8', 'I16', 'I32'])).data as Int32Array)
      : new Int32Array(scale.length);
    q = { kind, dtype, shape, granularity, data, scale, zeroPoint, ...(packed !== undefined && { packed }) };
  } else throw new RangeError(`the kind is ${show(kind)}`);
  // Check the result as a whole.
  givenTensor(core, q, 'q');
  return q;
}

/** An open file of `saveTensors`. */
export interface SavedTensors {
  /** Reads all tensors. @throws ScalepointError `BAD_FILE` */
  read(core: Core): Promise<Record<string, SavedTensor>>;
  /** Closes files that were opened in addition to the given ones. */
  close(): Promise<void>;
}

/**
 * Opens a file of `saveTensors`.
 * @param open opens the other files of a model in several files
 * @throws ScalepointError `BAD_FILE`, `UNKNOWN_FORMAT`
 */
export async function openTensors(files: readonly OpenFile[], open: OpenInput): Promise<SavedTensors> {
  const recognized = await recognize(files);
  if (recognized.format.name !== 'safetensors') throw badSaved(notSaved);
  const model = await openSafetensors(recognized.model, open);
  const close = async () => model.close?.();
  try {
    const meanings = meaningsOf(model);
    const stored = new Map(model.tensors.map((tensor) => [tensor.name, tensor]));
    const read = async (core: Core) => {
      const tensors: [string, SavedTensor][] = [];
      for (const [name, meaning] of meanings) {
        try {
          tensors.push([name, await readSaved(core, model, stored, [name, meaning as unknown as Meaning])]);
        } catch (error) {
          // Checks of arguments name the argument. Here the values come from the file.
          if (error instanceof RangeError || error instanceof TypeError) throw badSaved(error.message, name, error);
          throw error;
        }
      }
      return Object.fromEntries(tensors);
    };
    return { read, close };
  } catch (error) {
    await close();
    throw error;
  }
}

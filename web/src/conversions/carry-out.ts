/** Carries out recipes: finds the tensors that they name, and describes how the tensors of the result are read. */
import type { CastForm } from '../codecs/cast.js';
import { elementsOf } from '../codecs/elements.js';
import { ScalepointError } from '../core/errors.js';
import { quoted } from '../files/bytes.js';
import type { LogicalTensor, OpenModel, SourceTensor } from '../formats/format.js';
import { defaultAlignment, type GgufTensor } from '../formats/gguf/contents.js';
import { metadataOf, pairOf } from '../formats/gguf/pairs.js';
import type { GgufView } from '../formats/gguf/plan.js';
import type { Conversion, Recipe, RowWindow } from './recipe.js';

/** Lossless GGUF type of each element type that can be read. */
const lossless: Readonly<Record<string, string>> = {
  F32: 'F32',
  F16: 'F16',
  BF16: 'BF16',
  F64: 'F32',
  F8_E4M3: 'F16',
  F8_E5M2: 'F16',
};

/**
 * GGUF type of a stored tensor before quantization.
 * @throws ScalepointError `UNSUPPORTED_DTYPE`
 */
export function plainType({ name, dtype, byteOffset }: SourceTensor): string {
  const type = Object.hasOwn(lossless, dtype) ? lossless[dtype] : undefined;
  if (type !== undefined) return type;
  throw new ScalepointError('UNSUPPORTED_DTYPE', `tensor ${quoted(name)}: ${dtype} cannot be converted`, {
    tensor: name,
    byteOffset,
  });
}

/** A tensor of a result that is read from stored tensors. */
export interface Gathering extends Pick<Recipe, 'name' | 'shape' | 'permuteHeads' | 'add'> {
  /** Sources, all of one type and shape. */
  readonly stored: readonly SourceTensor[];
}

/** Describes how such a tensor is read. */
export function gathered({ name, shape, permuteHeads, add, stored }: Gathering): LogicalTensor {
  const [{ dtype, shape: from }] = stored as [SourceTensor];
  const form = { codec: 'cast', to: dtype, ...(add === undefined ? {} : { add }) } as CastForm;
  const parts = stored.map((tensor) => ({ role: 'data', tensor }));
  const tensor: LogicalTensor = { name, shape, type: dtype, form, parts, isRenamed: true };
  if (stored.length === 1 && permuteHeads === undefined) return tensor;
  const [rows = 1, ...rest] = from;
  const headRows = permuteHeads === undefined ? {} : { headRows: rows / permuteHeads };
  return { ...tensor, gathered: { ...headRows, width: elementsOf(rest) } };
}

function fail(name: string, message: string): never {
  throw new ScalepointError('BAD_FILE', `tensor ${quoted(name)}: ${message}`, { tensor: name });
}

const text = (shape: readonly number[]) => `[${shape.join(', ')}]`;

/** Rows of a stored tensor, as a stored tensor. */
function rowsOf(tensor: SourceTensor, window: RowWindow | undefined): SourceTensor {
  if (window === undefined) return tensor;
  const [first, count] = window;
  const width = tensor.shape.length < 2 ? [] : tensor.shape.slice(-1);
  const all = elementsOf(tensor.shape) / Math.max(1, elementsOf(width));
  if (first + count > all) fail(tensor.name, `it has ${all} rows, and ${first + count} are needed`);
  const bytes = tensor.bytes / all;
  return {
    ...tensor,
    shape: [count, ...width],
    bytes: bytes * count,
    byteOffset: tensor.byteOffset + bytes * first,
  };
}

/** Finds the sources of a recipe, and checks their types and shapes. */
function carryOut(recipe: Recipe, byName: ReadonlyMap<string, SourceTensor>): LogicalTensor {
  const { name, shape, sources, windows, permuteHeads } = recipe;
  const stored = sources.map((source, i) => {
    const tensor = byName.get(source);
    return tensor === undefined ? fail(source, `it is missing; ${name} is made of it`) : rowsOf(tensor, windows?.[i]);
  });
  const [first] = stored;
  if (first === undefined) return fail(name, 'the recipe has no sources');
  const other = stored.find(({ dtype, shape: its }) => dtype !== first.dtype || text(its) !== text(first.shape));
  if (other !== undefined) {
    fail(
      other.name,
      `it is ${other.dtype} ${text(other.shape)}, and ${first.name} is ${first.dtype} ${text(first.shape)}`,
    );
  }
  if (elementsOf(shape) !== stored.length * elementsOf(first.shape)) {
    fail(first.name, `its shape is ${text(first.shape)}, and ${name} is to be ${text(shape)}`);
  }
  if (permuteHeads !== undefined && ((first.shape[0] ?? 1) / permuteHeads) % 2 !== 0) {
    fail(first.name, `${permuteHeads} heads do not have an even number of its ${first.shape[0] ?? 1} rows each`);
  }
  return gathered({ ...recipe, stored });
}

/** Contents of a GGUF file: keys, and each tensor as a source to read or as its bytes. */
export interface Carried {
  readonly view: GgufView;
  readonly sources: readonly (LogicalTensor | Uint8Array<ArrayBuffer>)[];
}

/**
 * Carries out a conversion.
 * @throws ScalepointError `BAD_FILE` if a tensor is missing or of another shape, `UNSUPPORTED_DTYPE` if it holds no floats
 */
export function carryOutAll({ tensors }: OpenModel, { keys, tensors: recipes }: Conversion): Carried {
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const names = new Set<string>();
  const sources: (LogicalTensor | Uint8Array<ArrayBuffer>)[] = [];
  const found = recipes.map((recipe): GgufTensor => {
    const { name, shape, values, float32 = false } = recipe;
    if (names.has(name)) fail(name, 'duplicate tensor name');
    names.add(name);
    if (values !== undefined) {
      const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
      sources.push(bytes);
      return { name, shape, dtype: 'F32', bytes: bytes.length, byteOffset: 0 };
    }
    const source = carryOut(recipe, byName);
    sources.push(source);
    const [{ tensor }] = source.parts as [LogicalTensor['parts'][number]];
    const plain = plainType(tensor);
    const { bytes, byteOffset } = tensor;
    return { name, shape, dtype: float32 ? 'F32' : plain, bytes, byteOffset };
  });
  const view = { tensors: found, metadata: metadataOf(keys), pairs: keys.map(pairOf), alignment: defaultAlignment };
  return { view, sources };
}

/** Carries out recipes: finds the tensors that they name, and checks them. Loaded with the first folder. */

import { ScalepointError } from '../core/errors.js';
import { adaptedRows } from '../formats/adapted-rows.js';
import { type CastForm, castTypeOf } from '../formats/codecs/cast.js';
import { type Form, tileElements } from '../formats/codecs/codec.js';
import { bytesOfElements, changesElements, elementsOf, rectanglesOf } from '../formats/codecs/elements.js';
import type { LowRankForm } from '../formats/codecs/low-rank.js';
import { codecOf, float32Form } from '../formats/codecs/registry.js';
import type { ScaledForm } from '../formats/codecs/scaled-elements.js';
import { codedRows } from '../formats/coded-rows.js';
import { quoted } from '../formats/files/bytes.js';
import { badTensor } from '../formats/files/errors.js';
import type {
  CodedView,
  ElementView,
  LogicalTensor,
  PlannedTensor,
  Preparation,
  SourceTensor,
} from '../formats/format.js';
import { defaultAlignment, type GgufTensor } from '../formats/gguf/contents.js';
import { ggufMetadata, pairOf } from '../formats/gguf/pairs.js';
import type { GgufView } from '../formats/gguf/plan.js';
import type { Conversion, Recipe, RowWindow } from './recipe.js';

export const dimensionsText = (shape: readonly number[]) => `[${shape.join(', ')}]`;

/** A weight of the source. */
export interface SourceWeight {
  readonly tensor: LogicalTensor;
  /** Type of its floats; of codes, the type that they stand for best. */
  readonly dtype: string;
  /** True if its floats are computed from several stored tensors: codes with scales, or a weight with adapters. */
  readonly isCoded: boolean;
}

const firstStored = ({ parts }: LogicalTensor) => (parts[0] as LogicalTensor['parts'][number]).tensor;

/** Rows of a weight. */
function takeRows(weight: SourceWeight, window: RowWindow | undefined): SourceWeight {
  if (window === undefined) return weight;
  const { tensor, isCoded } = weight;
  const { name, parts } = tensor;
  const [first, count] = window;
  const width = tensor.shape.length < 2 ? [] : tensor.shape.slice(-1);
  const all = elementsOf(tensor.shape) / Math.max(1, elementsOf(width));
  if (first + count > all) badTensor(name, `it has ${all} rows, and ${first + count} are needed`);
  const shape = [count, ...width];
  if (isCoded && count === all) return { ...weight, tensor: { ...tensor, shape } };
  const adapted = adaptedRows(tensor, first, count);
  if (adapted !== undefined) return { ...weight, tensor: adapted };
  if (isCoded) {
    const message = `tensor ${quoted(name)}: rows of quantized weights cannot be taken apart`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: name });
  }
  const [{ role, tensor: stored }] = parts as [LogicalTensor['parts'][number]];
  const bytes = stored.bytes / all;
  const some = { ...stored, shape, bytes: bytes * count, byteOffset: stored.byteOffset + bytes * first };
  return { ...weight, tensor: { ...tensor, shape, parts: [{ role, tensor: some }] } };
}

/** Form of a weight to read; for plain elements it follows from their type. */
const readForm = ({ tensor, dtype, isCoded }: SourceWeight): Form =>
  isCoded ? tensor.form : ({ codec: 'cast', to: dtype } as CastForm);

/**
 * GGUF type of a stored tensor before quantization: the float type that holds its values.
 * @throws ScalepointError `UNSUPPORTED_DTYPE`
 */
export function floatTypeOf({ name, dtype, byteOffset }: Pick<SourceTensor, 'name' | 'dtype' | 'byteOffset'>): string {
  const type = Object.hasOwn(castTypeOf, dtype) ? castTypeOf[dtype] : undefined;
  if (type !== undefined) return type;
  throw new ScalepointError('UNSUPPORTED_DTYPE', `tensor ${quoted(name)}: ${dtype} cannot be converted`, {
    tensor: name,
    byteOffset,
  });
}

/** A recipe whose sources are found. They have one type and shape. */
type Gathering = Omit<Recipe, 'sources'> & { readonly stored: readonly SourceTensor[] };

/** Describes how such a tensor is read. */
export function gatherStored(wish: Gathering): LogicalTensor {
  const { name, shape, permuteHeads, view, add, negativeExp, ternary, factor, rowFactors, zeroRows, stored } = wish;
  const [{ dtype, shape: from }] = stored as [SourceTensor];
  const changes = {
    ...(add === undefined ? {} : { add }),
    ...(negativeExp === true ? { negativeExp } : {}),
    ...(factor === undefined ? {} : { factor }),
  };
  const form = { codec: 'cast', to: dtype, ...changes } as CastForm;
  const parts = stored.map((tensor) => ({ role: 'data', tensor }));
  const tensor: LogicalTensor = { name, shape, type: dtype, form, parts, isRenamed: true };
  if (view !== undefined) return { ...tensor, gathered: { view, width: shape.at(-1) ?? 1 } };
  if (ternary === true) return { ...tensor, gathered: { width: elementsOf(from.slice(1)) }, prepare: byMean };
  if ((rowFactors ?? zeroRows) !== undefined)
    return { ...tensor, gathered: { width: elementsOf(from.slice(1)), rowFactors, zeroRows } };
  const isAsStored = Object.keys(changes).length === 0;
  if (stored.length === 1 && permuteHeads === undefined && isAsStored) return tensor;
  const width = elementsOf(from.slice(1));
  if (permuteHeads === undefined) return { ...tensor, gathered: { width } };
  // Move the heads of d rows each to Llama's rotary layout.
  const d = (from[0] ?? 1) / permuteHeads;
  const dims = [
    [permuteHeads, d * width],
    [d / 2, width],
    [2, (d / 2) * width],
    [width, 1],
  ] as const;
  return { ...tensor, gathered: { width, view: { offset: 0, dims } } };
}

/** Smallest scale of weights that are rounded to three values. */
const leastScale = Math.fround(1e-5);

/** Asks for the magnitudes of a weight, whose mean is the scale by which it is rounded to three values. */
function* byMean(tensor: PlannedTensor): Preparation {
  const { source } = tensor;
  const elements = elementsOf(source.shape);
  const grid = codecOf(source.form).grid(source.shape, source.form);
  // Each rectangle is a set, whose two numbers are the sum of its magnitudes.
  const observed = [...rectanglesOf(elements, [grid])].map((rectangle, first) => ({ rectangle, first }));
  const cut = { kind: 'sets', count: observed.length, observed } as const;
  const asked = { ...tensor, form: float32Form };
  const sums = (yield { kind: 'question', tensor: asked, cut, requests: undefined }) as Float32Array;
  const mean = Math.fround(sums.reduce((sum, part) => sum + part, 0) / elements);
  return {
    ...tensor,
    source: { ...source, form: { ...source.form, ternary: Math.max(mean, leastScale) } as CastForm },
  };
}

type Dimension = ElementView['dims'][number];

/** Dimensions of a view of a matrix. Elements of several rows that follow each other become rows of their own. */
function dimensionsOf({ dims }: ElementView, columns: number): Dimension[] {
  return dims.flatMap(([count, stride]): Dimension[] => {
    const isRows = stride === 1 && count > columns && count % columns === 0;
    if (!isRows) return [[count, stride]];
    return [
      [count / columns, columns],
      [columns, 1],
    ];
  });
}

/**
 * A view of a matrix with scales for rectangles, such as float8 in blocks of 128 by 128, as a view of its elements and one of its scales. Matrices of the result are rows of the source, or
 * transposes of rectangles of it.
 * @returns undefined for other weights, and if the view cuts a rectangle that shares a scale
 */
function blockedView(
  view: ElementView,
  weights: readonly SourceWeight[],
): { readonly form: ScaledForm; readonly coded: CodedView } | undefined {
  const [{ tensor }] = weights as [SourceWeight];
  if (weights.length > 1 || tensor.gathered !== undefined || tensor.shape.length !== 2) return undefined;
  if (tensor.form.codec !== 'scaled-elements') return undefined;
  const form = tensor.form as ScaledForm;
  const columns = tensor.shape[1] as number;
  const { blockRows, blockColumns } = form;
  const { offset } = view;
  const size = bytesOfElements(form.scale, 1);
  if (blockRows === undefined && blockColumns === undefined) {
    // One scale for all elements, and one zero point.
    const single = (bytes: number): ElementView => ({ offset: 0, dims: [[bytes, 1]] });
    return { form, coded: { views: { data: view, scale: single(size), zeroPoint: single(1) } } };
  }
  if (blockRows === undefined) return undefined;
  const across = blockColumns ?? columns;
  const perRow = Math.ceil(columns / across);
  const [[width, columnStride] = [1, 1], [rows, rowStride] = [1, columns], ...outer] = dimensionsOf(
    view,
    columns,
  ).toReversed();
  const isStraight = columnStride === 1 && rowStride === columns && width === columns;
  const isTurned = rowStride === 1 && columnStride === columns && blockColumns !== undefined;
  const [down, along] = isTurned ? [across, blockRows] : [blockRows, across];
  const band = columns * blockRows;
  const fits =
    (isStraight || (isTurned && width % along === 0)) &&
    rows % down === 0 &&
    width * down <= tileElements &&
    [offset, ...outer.map(([, stride]) => stride)].every((n) => n % band === 0);
  if (!fits) return undefined;
  const inner: Dimension[] = isTurned
    ? [
        [rows / down, 1],
        [width / along, perRow],
      ]
    : [
        [rows / down, perRow],
        [perRow, 1],
      ];
  const bands = outer.toReversed().map(([count, stride]): Dimension => [count, (stride / band) * perRow]);
  const scales = [...bands, ...inner].map(([count, stride]): Dimension => [count, stride * size]);
  return {
    form: isTurned ? { ...form, blockRows: down, blockColumns: along } : form,
    coded: { views: { data: view, scale: { offset: (offset / band) * perRow * size, dims: [...scales, [size, 1]] } } },
  };
}

/** Finds the sources of a recipe, and checks their types and shapes. */
function carryOutRecipe(recipe: Recipe, byName: ReadonlyMap<string, SourceWeight>): LogicalTensor {
  const { name, shape, sources, windows, permuteHeads, view, zeroRows = 0 } = recipe;
  const weights = sources.map((source, i) => {
    const weight = byName.get(source);
    return weight === undefined
      ? badTensor(source, `it is missing; ${name} is made of it`)
      : takeRows(weight, windows?.[i]);
  });
  const [first] = weights;
  if (first === undefined) return badTensor(name, 'the recipe has no sources');
  const { shape: from } = first.tensor;
  // Equal forms differ at most in their adapters.
  const formText = (weight: SourceWeight) => {
    const form = readForm(weight);
    return JSON.stringify(form.codec === 'low-rank' ? (form as LowRankForm).base : form);
  };
  const other = weights.find(
    (weight) =>
      weight.dtype !== first.dtype ||
      dimensionsText(weight.tensor.shape) !== dimensionsText(from) ||
      (weight.isCoded && formText(weight) !== formText(first)),
  );
  if (other !== undefined) {
    const [its, that] = [other, first].map(({ tensor }) => `${tensor.type} ${dimensionsText(tensor.shape)}`);
    badTensor(other.tensor.name, `it is ${its}, and ${first.tensor.name} is ${that}`);
  }
  // Check that a view makes the shape, and does not leave its source.
  if (view !== undefined) {
    const taken = view.dims.reduce((product, [n]) => product * n, 1);
    const last = view.dims.reduce((sum, [n, stride]) => sum + (n - 1) * stride, view.offset);
    if (taken * weights.length !== elementsOf(shape) || last >= elementsOf(from))
      badTensor(
        first.tensor.name,
        `its shape is ${dimensionsText(from)}, and ${name} is to be ${dimensionsText(shape)}`,
      );
  } else if (elementsOf(shape) !== weights.length * elementsOf(from) + zeroRows * elementsOf(shape.slice(1))) {
    badTensor(first.tensor.name, `its shape is ${dimensionsText(from)}, and ${name} is to be ${dimensionsText(shape)}`);
  }
  if (permuteHeads !== undefined && ((from[0] ?? 1) / permuteHeads) % 2 !== 0) {
    badTensor(first.tensor.name, `${permuteHeads} heads do not have an even number of its ${from[0] ?? 1} rows each`);
  }
  const isCoded = weights.some((weight) => weight.isCoded);
  const isOne = isCoded && view !== undefined && weights.length === 1;
  const codedView = isOne ? codedRows(view, first.tensor, codecOf(first.tensor.form)) : undefined;
  const blocked = isCoded && view !== undefined && codedView === undefined ? blockedView(view, weights) : undefined;
  if (isCoded && view !== undefined && codedView === undefined && blocked === undefined) {
    const isAdapted = weights.some((weight) => readForm(weight).codec === 'low-rank');
    const which = isAdapted ? 'a weight with adapters' : 'quantized weights';
    const message = `tensor ${quoted(first.tensor.name)}: elements of ${which} cannot change places`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: first.tensor.name });
  }
  if (!isCoded) return gatherStored({ ...recipe, stored: weights.map(({ tensor }) => firstStored(tensor)) });
  if (codedView !== undefined || blocked !== undefined) {
    const { type, parts } = first.tensor;
    const gathered = { width: shape.at(-1) ?? 1, coded: codedView ?? blocked?.coded };
    return { name, shape, type, form: blocked?.form ?? first.tensor.form, parts, isRenamed: true, gathered };
  }
  if (recipe.ternary === true || changesElements({ ...recipe, ternary: 0 }))
    badTensor(first.tensor.name, 'its elements change, which are codes');
  if (zeroRows > 0) {
    const message = `tensor ${quoted(first.tensor.name)}: quantized weights cannot be filled up with rows of zeros`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: first.tensor.name });
  }
  // Weights that are read as a whole follow each other.
  const [rows = 1, ...rest] = from;
  const headRows = permuteHeads === undefined ? {} : { headRows: rows / permuteHeads };
  const members = weights.map((weight) => ({ form: { ...readForm(weight), ...headRows }, parts: weight.tensor.parts }));
  const [{ form }] = members as [(typeof members)[number]];
  const parts = members.flatMap((member) => member.parts);
  const tensor: LogicalTensor = { name, shape, type: first.tensor.type, form, parts, isRenamed: true };
  return members.length === 1 ? tensor : { ...tensor, gathered: { width: elementsOf(rest), members } };
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
export function carryOutAll(weights: readonly SourceWeight[], { keys, tensors: recipes }: Conversion): Carried {
  const byName = new Map(weights.map((weight) => [weight.tensor.name, weight]));
  const names = new Set<string>();
  const sources: (LogicalTensor | Uint8Array<ArrayBuffer>)[] = [];
  const found = recipes.map((recipe): GgufTensor => {
    const { name, shape, values, float32 = false } = recipe;
    if (names.has(name)) badTensor(name, 'duplicate tensor name');
    names.add(name);
    if (values !== undefined) {
      const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
      sources.push(bytes);
      return { name, shape, dtype: 'F32', bytes: bytes.length, byteOffset: 0 };
    }
    const source = carryOutRecipe(recipe, byName);
    sources.push(source);
    const { bytes, byteOffset, name: from } = firstStored(source);
    const { dtype } = byName.get(recipe.sources[0] as string) as SourceWeight;
    const plain = floatTypeOf({ name: from, dtype, byteOffset });
    return { name, shape, dtype: float32 ? 'F32' : plain, bytes, byteOffset };
  });
  const view = { tensors: found, metadata: ggufMetadata(keys), pairs: keys.map(pairOf), alignment: defaultAlignment };
  return { view, sources };
}

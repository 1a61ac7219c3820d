/** Carries out recipes: finds the tensors that they name, and checks them. Loaded with the first folder. */

import { ScalepointError } from '../core/errors.js';
import { adaptedRows } from '../formats/adapted-rows.js';
import type { CastForm } from '../formats/codecs/cast.js';
import type { Form, Role } from '../formats/codecs/codec.js';
import { changesElements, elementsOf } from '../formats/codecs/elements.js';
import type { LowRankForm } from '../formats/codecs/low-rank.js';
import { codecOf } from '../formats/codecs/registry.js';
import type { ScaledForm } from '../formats/codecs/scaled-elements.js';
import { quoted } from '../formats/files/bytes.js';
import { badTensor } from '../formats/files/errors.js';
import type { CodedView, ElementView, LogicalTensor } from '../formats/format.js';
import { defaultAlignment, type GgufTensor } from '../formats/gguf/contents.js';
import { ggufMetadata, pairOf } from '../formats/gguf/pairs.js';
import type { GgufView } from '../formats/gguf/plan.js';
import { blockedView } from './blocked-view.js';
import { gathered, plainType } from './gathered.js';
import type { Conversion, Recipe, RowWindow } from './recipe.js';

const text = (shape: readonly number[]) => `[${shape.join(', ')}]`;

/** A weight of the source. */
export interface SourceWeight {
  readonly tensor: LogicalTensor;
  /** Type of its floats; of codes, the type that they stand for best. */
  readonly dtype: string;
  /** True if its floats are computed from several stored tensors: codes with scales, or a weight with adapters. */
  readonly isCoded: boolean;
}

const storedOf = ({ parts }: LogicalTensor) => (parts[0] as LogicalTensor['parts'][number]).tensor;

/** Rows of a weight. */
function rowsOf(weight: SourceWeight, window: RowWindow | undefined): SourceWeight {
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
const formOf = ({ tensor, dtype, isCoded }: SourceWeight): Form =>
  isCoded ? tensor.form : ({ codec: 'cast', to: dtype } as CastForm);

/** A tensor that is made of weights that are read as a whole. */
function gatheredCodes({ name, shape, permuteHeads }: Recipe, weights: readonly SourceWeight[]): LogicalTensor {
  const [{ tensor: first }] = weights as [SourceWeight];
  const [rows = 1, ...rest] = first.shape;
  const headRows = permuteHeads === undefined ? {} : { headRows: rows / permuteHeads };
  const members = weights.map((weight) => ({ form: { ...formOf(weight), ...headRows }, parts: weight.tensor.parts }));
  const [{ form }] = members as [(typeof members)[number]];
  const parts = members.flatMap((member) => member.parts);
  const tensor: LogicalTensor = { name, shape, type: first.type, form, parts, isRenamed: true };
  return members.length === 1 ? tensor : { ...tensor, gathered: { width: elementsOf(rest), members } };
}

/** True if two weights have equal forms, apart from numbers that only matter for writing. Adapters may differ. */
function isSameForm(a: SourceWeight, b: SourceWeight): boolean {
  const [x, y] = [a, b].map((weight) => {
    const form = formOf(weight);
    return form.codec === 'low-rank' ? (form as LowRankForm).base : form;
  });
  return JSON.stringify(x) === JSON.stringify(y);
}

/**
 * The rows of a weight with codes that a view takes.
 * @returns undefined if it takes other elements, if single rows cannot be read, and for several weights or one with adapters
 */
function codedRowsOf({ offset, dims }: ElementView, weights: readonly SourceWeight[]): CodedView | undefined {
  const [{ tensor }] = weights as [SourceWeight];
  const { shape, form } = tensor;
  if (weights.length > 1 || form.codec === 'low-rank') return undefined;
  const width = shape.at(-1) ?? 1;
  const [last, rows, matrices = [1, 0] as const, ...others] = dims.toReversed();
  const fits = last?.[0] === width && last[1] === 1 && rows !== undefined && others.length === 0;
  const all = elementsOf(shape.slice(0, -1));
  const { grid, runs } = codecOf(form);
  const { rowUnit, rows: known } = grid([all, width], form);
  if (!fits || rowUnit !== 1 || known !== all) return undefined;
  const [first, step, stride] = [offset, rows[1], matrices[1]].map((n) => n / width) as [number, number, number];
  if (![first, step, stride].every(Number.isInteger)) return undefined;
  // The bytes of a row in each part; 0 from one row to the next where all rows share them.
  const views = tensor.parts.map(({ role }): [Role, ElementView] => {
    const rowAt = (row: number) => runs([all, width], form, role, { row, rows: 1, column: 0, columns: width, width });
    const bytes = rowAt(1).offset - rowAt(0).offset;
    const [from, between, apart] = [first * bytes, step * bytes, stride * bytes];
    return [
      role,
      {
        offset: from,
        dims: [
          [matrices[0], apart],
          [rows[0], between],
          [rowAt(0).bytes, 1],
        ],
      },
    ];
  });
  return { views: Object.fromEntries(views), matrixRows: rows[0] };
}

/** A view of one matrix with scales for rectangles; undefined for other weights, and if it cuts a rectangle. */
function blockedOf(view: ElementView, weights: readonly SourceWeight[]) {
  const [{ tensor }] = weights as [SourceWeight];
  const { form, shape, gathered } = tensor;
  if (weights.length > 1 || gathered !== undefined || shape.length !== 2 || form.codec !== 'scaled-elements')
    return undefined;
  return blockedView(view, shape[1] as number, form as ScaledForm);
}

/** Fails for a view that does not make the shape, or that leaves its source. */
function checkView({ offset, dims }: ElementView, { name, shape }: Recipe, from: LogicalTensor, count: number): void {
  const taken = dims.reduce((product, [n]) => product * n, 1);
  const last = dims.reduce((sum, [n, stride]) => sum + (n - 1) * stride, offset);
  if (taken * count !== elementsOf(shape) || last >= elementsOf(from.shape))
    badTensor(from.name, `its shape is ${text(from.shape)}, and ${name} is to be ${text(shape)}`);
}

/** Finds the sources of a recipe, and checks their types and shapes. */
function carryOut(recipe: Recipe, byName: ReadonlyMap<string, SourceWeight>): LogicalTensor {
  const { name, shape, sources, windows, permuteHeads, view, zeroRows = 0 } = recipe;
  const weights = sources.map((source, i) => {
    const weight = byName.get(source);
    return weight === undefined
      ? badTensor(source, `it is missing; ${name} is made of it`)
      : rowsOf(weight, windows?.[i]);
  });
  const [first] = weights;
  if (first === undefined) return badTensor(name, 'the recipe has no sources');
  const { shape: from } = first.tensor;
  const other = weights.find(
    (weight) =>
      weight.dtype !== first.dtype ||
      text(weight.tensor.shape) !== text(from) ||
      (weight.isCoded && !isSameForm(weight, first)),
  );
  if (other !== undefined) {
    const [its, that] = [other, first].map(({ tensor }) => `${tensor.type} ${text(tensor.shape)}`);
    badTensor(other.tensor.name, `it is ${its}, and ${first.tensor.name} is ${that}`);
  }
  if (view !== undefined) checkView(view, recipe, first.tensor, weights.length);
  else if (elementsOf(shape) !== weights.length * elementsOf(from) + zeroRows * elementsOf(shape.slice(1))) {
    badTensor(first.tensor.name, `its shape is ${text(from)}, and ${name} is to be ${text(shape)}`);
  }
  if (permuteHeads !== undefined && ((from[0] ?? 1) / permuteHeads) % 2 !== 0) {
    badTensor(first.tensor.name, `${permuteHeads} heads do not have an even number of its ${from[0] ?? 1} rows each`);
  }
  const isCoded = weights.some((weight) => weight.isCoded);
  const codedRows = isCoded && view !== undefined ? codedRowsOf(view, weights) : undefined;
  const blocked = isCoded && view !== undefined && codedRows === undefined ? blockedOf(view, weights) : undefined;
  if (isCoded && view !== undefined && codedRows === undefined && blocked === undefined) {
    const isAdapted = weights.some((weight) => formOf(weight).codec === 'low-rank');
    const which = isAdapted ? 'a weight with adapters' : 'quantized weights';
    const message = `tensor ${quoted(first.tensor.name)}: elements of ${which} cannot change places`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: first.tensor.name });
  }
  if (!isCoded) return gathered({ ...recipe, stored: weights.map(({ tensor }) => storedOf(tensor)) });
  if (codedRows !== undefined || blocked !== undefined) {
    const { type, parts } = first.tensor;
    const gathered = { width: shape.at(-1) ?? 1, coded: codedRows ?? blocked?.coded };
    return { name, shape, type, form: blocked?.form ?? first.tensor.form, parts, isRenamed: true, gathered };
  }
  if (recipe.ternary === true || changesElements({ ...recipe, ternary: 0 }))
    badTensor(first.tensor.name, 'its elements change, which are codes');
  if (zeroRows > 0) {
    const message = `tensor ${quoted(first.tensor.name)}: quantized weights cannot be filled up with rows of zeros`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: first.tensor.name });
  }
  return gatheredCodes(recipe, weights);
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
    const source = carryOut(recipe, byName);
    sources.push(source);
    const { bytes, byteOffset, name: from } = storedOf(source);
    const { dtype } = byName.get(recipe.sources[0] as string) as SourceWeight;
    const plain = plainType({ name: from, dtype, byteOffset });
    return { name, shape, dtype: float32 ? 'F32' : plain, bytes, byteOffset };
  });
  const view = { tensors: found, metadata: ggufMetadata(keys), pairs: keys.map(pairOf), alignment: defaultAlignment };
  return { view, sources };
}

/** Tensors of a result that are read from stored tensors. */

import { ScalepointError } from '../core/errors.js';
import { type CastForm, castTypeOf } from '../formats/codecs/cast.js';
import { elementsOf, rectanglesOf } from '../formats/codecs/elements.js';
import { codecOf, float32Form } from '../formats/codecs/registry.js';
import { quoted } from '../formats/files/bytes.js';
import type { ElementView, LogicalTensor, PlannedTensor, Preparation, SourceTensor } from '../formats/format.js';
import type { Recipe } from './recipe.js';

/**
 * GGUF type of a stored tensor before quantization: the float type that holds its values.
 * @throws ScalepointError `UNSUPPORTED_DTYPE`
 */
export function plainType({ name, dtype, byteOffset }: Pick<SourceTensor, 'name' | 'dtype' | 'byteOffset'>): string {
  const type = Object.hasOwn(castTypeOf, dtype) ? castTypeOf[dtype] : undefined;
  if (type !== undefined) return type;
  throw new ScalepointError('UNSUPPORTED_DTYPE', `tensor ${quoted(name)}: ${dtype} cannot be converted`, {
    tensor: name,
    byteOffset,
  });
}

/** A tensor of a result that is read from stored tensors. */
type Gathered =
  | 'name'
  | 'shape'
  | 'permuteHeads'
  | 'view'
  | 'add'
  | 'negativeExp'
  | 'ternary'
  | 'factor'
  | 'rowFactors'
  | 'zeroRows';
interface Gathering extends Pick<Recipe, Gathered> {
  /** Sources, all of one type and shape. */
  readonly stored: readonly SourceTensor[];
}

/** Describes how such a tensor is read. */
export function gathered(wish: Gathering): LogicalTensor {
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
  return { ...tensor, gathered: { width, view: headsView(permuteHeads, (from[0] ?? 1) / permuteHeads, width) } };
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

/** The view of heads of d rows in Llama's rotary layout. */
function headsView(heads: number, d: number, width: number): ElementView {
  const dims = [
    [heads, d * width],
    [d / 2, width],
    [2, (d / 2) * width],
    [width, 1],
  ] as const;
  return { offset: 0, dims };
}

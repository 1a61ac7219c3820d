/** States between layers as plain data, for files from which an interrupted run goes on. */
/** Sums over the inputs that some weights share. */
export interface InputSums {
  /** The weights, in llama.cpp's names. */
  readonly names: readonly string[];
  readonly columns: number;
  /** Number of matrices that share the columns. @defaultValue 1 */
  readonly matrices?: number | undefined;
  /** Rows that were counted. */
  rows: number;
  /** Rows that reached each matrix, for experts. @defaultValue `rows` for each */
  readonly counts?: Float64Array<ArrayBuffer> | undefined;
  /** Sum of squares of each column, of one matrix after the other. */
  readonly squares: Float64Array<ArrayBuffer>;
}

/** A layer that all tokens have passed. */
export interface PassedLayer {
  readonly layer: number;
  /** States behind it. */
  readonly states: Float32Array<ArrayBuffer>;
  /** Sums so far. */
  readonly sums: readonly InputSums[];
}

/** Arrays of a state. */
export type Numbers = Float32Array<ArrayBuffer> | Float64Array<ArrayBuffer>;

/** A state as a file holds it. */
export interface SavedState {
  /** Plain data about the arrays. */
  readonly about: unknown;
  readonly arrays: readonly Numbers[];
}

/** Plain data about sums. */
interface AboutSums extends Pick<InputSums, 'names' | 'columns' | 'rows'> {}

/** The state of a calibration behind a layer. */
export function savedPass({ layer, states, sums }: PassedLayer): SavedState {
  const about = { layer, sums: sums.map(({ names, columns, rows }): AboutSums => ({ names, columns, rows })) };
  const countsOf = ({ counts, rows }: InputSums) => counts ?? Float64Array.of(rows);
  return { about, arrays: [states, ...sums.flatMap((one) => [one.squares, countsOf(one)])] };
}

/** A calibration from its state; undefined if it is not one of that many floats of states. */
export function passFrom({ about, arrays }: SavedState, floats: number): PassedLayer | undefined {
  const { layer, sums } = (about ?? {}) as { layer?: unknown; sums?: unknown };
  const [states, ...others] = arrays;
  if (!(states instanceof Float32Array) || states.length !== floats) return undefined;
  if (!Number.isSafeInteger(layer) || !Array.isArray(sums) || others.length !== 2 * sums.length) return undefined;
  const made: InputSums[] = [];
  for (const [i, { names, columns, rows }] of (sums as AboutSums[]).entries()) {
    const [squares, counts] = [others[2 * i], others[2 * i + 1]];
    if (!(squares instanceof Float64Array) || !(counts instanceof Float64Array)) return undefined;
    if (squares.length !== columns * counts.length) return undefined;
    made.push({ names, columns, rows, squares, counts });
  }
  return { layer: layer as number, states, sums: made };
}

/** An evaluation behind a layer of one of its models. */
export interface PassedModel {
  /** Index of the model: 0, or 1 for the reference. */
  readonly model: number;
  readonly layer: number;
  /** States of the models up to this one. */
  readonly states: readonly Float32Array<ArrayBuffer>[];
}

export function savedEvaluation({ model, layer, states }: PassedModel): SavedState {
  return { about: { model, layer }, arrays: states };
}

/** An evaluation from its state; undefined if it is not one of a text of that many tokens. */
export function evaluationFrom({ about, arrays }: SavedState, tokens: number): PassedModel | undefined {
  const { model, layer } = (about ?? {}) as Partial<PassedModel>;
  const isState = (one: Numbers): one is Float32Array<ArrayBuffer> =>
    one instanceof Float32Array && one.length > 0 && one.length % tokens === 0;
  if ((model !== 0 && model !== 1) || !Number.isSafeInteger(layer)) return undefined;
  return arrays.length === model + 1 && arrays.every(isState)
    ? { model, layer: layer as number, states: arrays as readonly Float32Array<ArrayBuffer>[] }
    : undefined;
}

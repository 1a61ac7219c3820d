// Tables of tensors as tests write them by hand: the name in the folder, the name in GGUF, the shape in the folder, and changes on the way.
import { expect } from 'vitest';
import type { Conversion, Recipe } from '../../../web/src/architectures/recipe.js';
import { elements, type Weight } from './recipes.js';
import { Maker } from './tiny-huggingface.js';

/** A line of a table, such as `self_attn.q_proj.weight attn_q.weight 64x64 heads=4`. */
interface TableLine {
  readonly from: string;
  readonly to: string;
  readonly shape: readonly number[];
  /**
   * `+1`, `+1/5` and `+1/5**1.5` add these numbers, `heads=4` moves rows of 4 heads, `stack=3` counts `#` up to 3, `each=rk` puts letters in place of `@`, `rows=0+64` takes rows, `as=3x32x64` is the result's shape.
   * `ternary` rounds to three values, and `drop` leaves the tensor out of the result.
   * `fill=264` adds rows of zeros up to this number, `times=0.5` multiplies, `byrows=64*0.5,32*2` multiplies rows besides.
   * `-exp` takes -exp(x), and `columns=16:0,2,1,3` puts columns in blocks of 16 into another order.
   * `np=3x64x64[:,:,0::2]T` is NumPy's way to take elements: a shape, slices, and perhaps the transpose of the last two dimensions, or
   * by `T021` that of all of them.
   */
  readonly changes: ReadonlyMap<string, string>;
}

/** The tensors of a model: those outside of its layers, and those of each layer. */
export interface HandTable {
  readonly prefix: string;
  readonly outside: string;
  readonly layer: string;
  /** Lines of some layers only. */
  readonly some?: readonly { readonly layers: readonly number[]; readonly lines: string }[];
}

/** Numbers that are added to weights. */
const added: Readonly<Record<string, number>> = { '+1': 1, '+1/5': 1 / 5, '+1/5**1.5': 1 / 5 ** 1.5 };
const addedOf = (changes: ReadonlyMap<string, string>): { add?: number } => {
  const name = Object.keys(added).find((one) => changes.has(one));
  return name === undefined ? {} : { add: added[name]! };
};

const sizes = (text: string) => text.split('x').map(Number);

function linesOf(text: string): TableLine[] {
  const lines = text.split('\n').map((line) => line.trim());
  return lines
    .filter((line) => line !== '')
    .map((line) => {
      const [from, to, shape, ...changes] = line.split(/\s+/) as [string, string, string, ...string[]];
      const pairs = changes.map((one) => one.split('=') as [string, string]);
      return { from, to, shape: sizes(shape), changes: new Map(pairs.map(([name, value = '']) => [name, value])) };
    });
}

/** All lines of a model with the names of whole tensors. */
function wholeLines({ prefix, outside, layer, some = [] }: HandTable, layers: number): TableLine[] {
  const all = linesOf(outside);
  for (let i = 0; i < layers; i++) {
    const own = some.filter((one) => one.layers.includes(i)).flatMap(({ lines }) => linesOf(lines));
    for (const line of [...linesOf(layer), ...own])
      all.push({ ...line, from: `${prefix}${i}.${line.from}`, to: `blk.${i}.${line.to}` });
  }
  return all;
}

const namesOf = ({ from, changes }: TableLine) =>
  changes
    .get('each')
    ?.split('')
    .map((letter) => from.replace('@', letter)) ??
  Array.from({ length: Number(changes.get('stack') ?? 1) }, (_, i) => from.replace('#', String(i)));

/** Random weights of a model. */
export function weightsOfTable(table: HandTable, layers: number, seed = 1): Map<string, Weight> {
  const make = new Maker(seed);
  for (const line of wholeLines(table, layers))
    for (const name of namesOf(line)) {
      if (make.weights.has(name)) continue;
      const [rows = 1, ...rest] = line.shape;
      const isNorm = /norm/i.test(name) && name.endsWith('.weight') && addedOf(line.changes).add === undefined;
      if (rest.length === 0) make.vector(name, rows, isNorm ? 1 : 0);
      else {
        const columns = rest.at(-1) as number;
        make.matrix(name, (rows * rest.reduce((a, b) => a * b, 1)) / columns, columns);
        if (rest.length > 1) make.weights.set(name, { ...(make.weights.get(name) as Weight), shape: line.shape });
        // A norm of each head stays near 1.
        if (isNorm) {
          const own = make.weights.get(name) as Weight;
          make.weights.set(name, { ...own, values: own.values.map((value) => 1 + value) });
        }
      }
    }
  return make.weights;
}

/** `0+64,128+64` as windows. */
function windowsOf(text: string) {
  return text.split(',').map((one) => one.split('+').map(Number));
}

/** `64*0.5,32*2` as a factor for each row. */
function factorsOf(text: string): Float32Array {
  return Float32Array.from(
    text.split(',').flatMap((one) => {
      const [rows = 0, factor = 1] = one.split('*').map(Number);
      return new Array<number>(rows).fill(factor);
    }),
  );
}

/** Elements of an array by NumPy's rules. */
function sliced(text: string, values: Float32Array): Float32Array {
  const [, shape = '', slices, turn = ''] = /^([\dx]+)(?:\[(.*)\])?(T\d*)?$/.exec(text) as RegExpExecArray;
  const counts = sizes(shape);
  const taken = counts.map((n, k) => {
    const [start = '', stop = '', step = ''] = (slices?.split(',')[k] ?? ':').split(':');
    const all = Array.from({ length: n }, (_, i) => i);
    return all.slice(Number(start), stop === '' ? n : Number(stop)).filter((_, i) => i % Number(step || 1) === 0);
  });
  const strides = counts.map((_, k) => counts.slice(k + 1).reduce((a, b) => a * b, 1));
  const order = turn.length > 1 ? [...turn.slice(1)].map(Number) : counts.map((_, k) => k);
  if (turn === 'T') order.push(...order.splice(-2).reverse());
  let all = [0];
  for (const k of order) all = all.flatMap((at) => (taken[k] as number[]).map((i) => at + i * (strides[k] as number)));
  return Float32Array.from(all, (at) => values[at] as number);
}

/** Columns of a matrix, whose blocks are in another order. */
function inBlocks(text: string, values: Float32Array, width: number): Float32Array {
  const [size = 1, order = []] = text
    .split(':')
    .map((part, i) => (i === 0 ? Number(part) : part.split(',').map(Number))) as [number, number[]];
  return values.map((_, at) => {
    const [row, column] = [Math.floor(at / width), at % width];
    return values[row * width + (order[Math.floor(column / size)] as number) * size + (column % size)] as number;
  });
}

/** True if two arrays have the same bits, which takes a hundredth of the time of `toEqual`. */
const isSame = (a: Float32Array, b: Float32Array) =>
  Buffer.compare(new Uint8Array(a.buffer, a.byteOffset, a.byteLength), new Uint8Array(b.buffer)) === 0;

/** Compares the tensors of a conversion with a table, except for those that are computed. */
export function expectTensors({ tensors }: Conversion, table: HandTable, layers: number): void {
  const lines = wholeLines(table, layers).filter(({ changes }) => !changes.has('drop'));
  const expected = lines.map((line) => {
    const { to, shape, changes } = line;
    const stack = changes.get('stack') ?? changes.get('each')?.length;
    const rows = changes.get('rows');
    const windows = rows === undefined ? undefined : windowsOf(rows);
    const names = namesOf(line);
    const as = changes.get('as');
    const whole = as === undefined ? [...(stack === undefined ? [] : [Number(stack)]), ...shape] : sizes(as);
    const heads = changes.get('heads');
    const fill = changes.get('fill');
    if (fill !== undefined) whole[0] = Number(fill);
    const [times, byRows] = [changes.get('times'), changes.get('byrows')];
    const isFloat =
      whole.length === 1 ||
      !to.endsWith('.weight') ||
      /_norm\.weight$/.test(to) ||
      /(^|\.)(position_embd|token_types|ffn_gate_inp|ffn_gate_inp_shexp|shortconv\.conv|ssm_conv1d(_[qkv])?|time_mix_w[12]|time_mix_lerp_fused|altup_correct_coef|altup_predict_coef)\.weight$/.test(
        to,
      );
    return {
      name: to,
      shape: whole,
      sources: windows === undefined ? names : windows.map(() => names[0]),
      ...(windows === undefined ? {} : { windows }),
      ...(heads === undefined ? {} : { permuteHeads: Number(heads) }),
      ...addedOf(changes),
      ...(changes.has('-exp') ? { negativeExp: true } : {}),
      ...(fill === undefined ? {} : { zeroRows: Number(fill) - (shape[0] as number) }),
      ...(changes.has('ternary') ? { ternary: true } : {}),
      ...(times === undefined ? {} : { factor: Number(times) }),
      ...(byRows === undefined ? {} : { rowFactors: factorsOf(byRows) }),
      ...(isFloat ? { float32: true } : {}),
    };
  });
  const byName = (a: { name: string }, b: { name: string }) => (a.name < b.name ? -1 : 1);
  const got: Recipe[] = tensors.filter(({ values }) => values === undefined);
  const plain = got.map(({ view: _, ...recipe }) => recipe);
  expect(plain.sort(byName)).toEqual(expected.sort(byName));
  // Elements that change places are compared one by one.
  const weights = weightsOfTable(table, layers);
  const byTarget = new Map(got.map((recipe) => [recipe.name, recipe]));
  for (const { from, to, changes } of lines) {
    const [recipe, slices, columns] = [byTarget.get(to) as Recipe, changes.get('np'), changes.get('columns')];
    expect(recipe.view !== undefined, to).toBe((slices ?? columns) !== undefined);
    if ((slices ?? columns) === undefined) continue;
    const { values, shape } = weights.get(from) as Weight;
    const placed = slices === undefined ? inBlocks(columns!, values, shape.at(-1)!) : sliced(slices, values);
    expect(isSame(elements(recipe, weights), placed), to).toBe(true);
  }
}

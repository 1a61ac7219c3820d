// Reads one tensor at a time, tries two ways to store it, and sends the data of the pictures.
import { load, type Scalepoint } from 'scalepoint';
import { readFloats } from 'scalepoint/model';
import { readPlanned } from '../../src/tooling.js';
import { answerCalls } from '../shared/calls.js';
import { inputOf } from '../shared/page-files.js';
import { kindOf, planKind, type RestoredNumbers } from './kinds.js';
import type { LookAnswer, LookQuestion, Side, WeightPicture } from './look.js';

/** Most numbers that are tried at first. More of them follow. */
const quickNumbers = 1 << 17;
/** Most numbers that are tried at all. Of more, rows from the middle stand for the others. */
const mostNumbers = 1 << 24;
/** Numbers of the smallest window. */
const fewNumbers = 256;
const binCount = 48;
/** Most distinct values that are listed. */
const mostLevels = 1024;
/** Size of the picture of weights: at most, and the least around a window. */
const [mostRows, mostColumns] = [96, 160];
const [windowRows, windowColumns] = [24, 64];
/** Numbers beyond this multiple of the root mean square have the full color. */
const fullColor = 2.5;

let core: Promise<Scalepoint> | undefined;
/** Numbers of a tensor that are tried, and what the plan makes of them. */
interface TriedNumbers {
  readonly all: Float32Array;
  readonly width: number;
  readonly planned?: RestoredNumbers;
}

/** The tensor of the newest question, by the number of numbers that are tried. */
let tried: { readonly key: string; readonly byLimit: Map<number, TriedNumbers> } | undefined;
/** The newest question. Answers to earlier ones are dropped. */
let newest: LookQuestion | undefined;

/** Rows from the middle of a tensor, at most `most` numbers in all. */
function middleRows(values: Float32Array, width: number, most: number): Float32Array {
  const rows = Math.ceil(values.length / width);
  const wanted = Math.max(1, Math.floor(most / width));
  if (wanted >= rows) return values;
  const first = Math.floor((rows - wanted) / 2);
  return values.subarray(first * width, (first + wanted) * width);
}

function binsOf(values: ArrayLike<number>, low: number, high: number): Uint32Array {
  const counts = new Uint32Array(binCount);
  const width = (high - low) / binCount || 1;
  for (let i = 0; i < values.length; i++) {
    const bin = Math.floor(((values[i] as number) - low) / width);
    if (bin >= 0) counts[Math.min(bin, binCount - 1)]!++;
  }
  return counts;
}

function extremes(values: ArrayLike<number>): [number, number] {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (let i = 0; i < values.length; i++) {
    const x = values[i] as number;
    if (x < low) low = x;
    if (x > high) high = x;
  }
  return low <= high ? [low, high] : [0, 0];
}

/** The distinct values in ascending order; of more than `mostLevels`, the two at each end. */
function levelsOf(values: Float32Array): Pick<Side, 'levels' | 'hasMore'> {
  const known = new Set<number>();
  for (let i = 0; i < values.length && known.size <= mostLevels; i++) known.add(values[i] as number);
  if (known.size <= mostLevels) return { levels: Float32Array.from(known).sort(), hasMore: false };
  const [low, high] = extremes(values);
  let [second, last] = [high, low];
  for (let i = 0; i < values.length; i++) {
    const x = values[i] as number;
    if (x > low && x < second) second = x;
    if (x < high && x > last) last = x;
  }
  return { levels: Float32Array.of(low, second, last, high), hasMore: true };
}

/** The picture of the numbers of a window and around it, evenly spread if they are many. */
function pictureOf(
  all: Float32Array,
  after: readonly [Float32Array, Float32Array],
  width: number,
  [from, to]: readonly [number, number],
): WeightPicture {
  // A vector is wrapped, as a line of one pixel shows nothing.
  const wide = width === all.length ? Math.min(width, Math.max(1, Math.ceil(Math.sqrt(2 * width)))) : width;
  const high = Math.ceil(all.length / wide);
  const tall = Math.min(high, Math.max(windowRows, Math.ceil((to - from) / wide)));
  const broad = to - from < wide ? Math.min(wide, Math.max(windowColumns, to - from)) : wide;
  const [rows, columns] = [Math.min(tall, mostRows), Math.min(broad, mostColumns)];
  const top = Math.min(Math.floor(from / wide), high - tall);
  const left = Math.min(from % wide, wide - broad);
  const picked = [all, ...after].map(() => new Float32Array(rows * columns));
  for (let r = 0; r < rows; r++) {
    const y = top + Math.floor((r * tall) / rows);
    for (let c = 0; c < columns; c++) {
      const x = left + Math.floor((c * broad) / columns);
      const at = y * wide + x;
      // The last row of a wrapped vector may be shorter.
      for (const [i, values] of [all, ...after].entries()) picked[i]![r * columns + c] = values[at] ?? 0;
    }
  }
  const [before, a, b] = picked as [Float32Array, Float32Array, Float32Array];
  let squares = 0;
  for (const x of before) squares += x * x;
  const reach = fullColor * Math.sqrt(squares / before.length) || 1;
  const isSampled = rows < tall || columns < broad;
  return { rows, columns, of: [high, wide], around: [tall, broad], isSampled, reach, before, after: [a, b] };
}

/** Floats that each way of the newest question restores. Kept because a moving slider asks for them again. */
let restoredFor = '';
const restoredBy = new Map<string, RestoredNumbers>();

function restoredOf(sp: Scalepoint, key: string, id: string, all: Float32Array, width: number): RestoredNumbers {
  if (restoredFor !== key) restoredBy.clear();
  restoredFor = key;
  const known = restoredBy.get(id) ?? kindOf(id).apply(sp, all, [all.length / width, width]);
  restoredBy.set(id, known);
  return known;
}

/** Numbers more than half a step beyond the outermost levels, as a share. */
function clippedShare(values: Float32Array, levels: Float32Array): number {
  const last = levels.length - 1;
  if (last < 1) return 0;
  const low = levels[0]! - (levels[1]! - levels[0]!) * 0.51;
  const high = levels[last]! + (levels[last]! - levels[last - 1]!) * 0.51;
  let count = 0;
  for (const x of values) if (x < low || x > high) count++;
  return count / values.length;
}

/** Tries one way to store the numbers. @param part the range of them in the picture */
function sideOf(
  id: string,
  { restored, bytes, error }: RestoredNumbers,
  all: Float32Array,
  part: [number, number],
): Side {
  const shown = restored.subarray(...part);
  const { levels, hasMore } = levelsOf(shown);
  const errors = new Float32Array(shown.length);
  for (let i = 0; i < errors.length; i++) errors[i] = shown[i]! - all[part[0] + i]!;
  const [low, high] = extremes(errors);
  const reach = Math.max(-low, high);
  return {
    kind: id,
    error,
    bits: (8 * bytes) / all.length,
    levels,
    hasMore,
    clipped: clippedShare(all.subarray(...part), levels),
    reach,
    errors,
  };
}

/** Reads the numbers of a tensor, unless they are known. */
async function numbersFor({ key, files, name, planned }: LookQuestion, limit: number): Promise<TriedNumbers> {
  if (tried?.key !== key) tried = { key, byLimit: new Map() };
  const { byLimit } = tried;
  const known = byLimit.get(limit);
  if (known !== undefined) return known;
  const widthOf = (shape: readonly number[]) => Math.max(1, shape.at(-1) ?? 1);
  if (planned !== undefined) {
    const { options } = planned;
    const read = await readPlanned(inputOf(files), planned.name, { ...options, most: limit, workers: 0 });
    const { shape, before: all, after: restored, bytes, error } = read;
    const found = { all, width: widthOf(shape), planned: { restored, bytes, error } };
    byLimit.set(limit, found);
    return found;
  }
  const { data, shape } = await readFloats(inputOf(files), name, { workers: 0 });
  const width = widthOf(shape);
  for (const most of [quickNumbers, mostNumbers]) byLimit.set(most, { all: middleRows(data, width, most), width });
  return byLimit.get(limit) as TriedNumbers;
}

function answer(sp: Scalepoint, question: LookQuestion, numbers: TriedNumbers): LookAnswer {
  const { all, width, planned } = numbers;
  // The smallest window lies in a row, which may have a scale of its own. Each zoom shows half of what the one before shows.
  const least = Math.min(fewNumbers, width);
  const zooms = Math.ceil(Math.log2(all.length / least));
  const zoom = Math.min(question.window.zoom, zooms);
  const length = zoom === 0 ? all.length : least * 2 ** (zooms - zoom);
  const places = Math.ceil(all.length / length);
  const place = Math.min(question.window.place, places - 1);
  const part: [number, number] = [place * length, Math.min((place + 1) * length, all.length)];
  const key = `${question.key} ${all.length}`;
  for (const id of restoredBy.keys()) if (!question.kinds.includes(id)) restoredBy.delete(id);
  const restored = question.kinds.map((id) =>
    id === planKind && planned !== undefined ? planned : restoredOf(sp, key, id, all, width),
  );
  const [a, b] = question.kinds.map((id, i) => sideOf(id, restored[i]!, all, part)) as [Side, Side];
  const after = restored.map((one) => one.restored) as [Float32Array, Float32Array];
  const shown = all.subarray(...part);
  const [low, high] = extremes(shown);
  const reach = Math.max(a.reach, b.reach) || 1;
  const withBins = (side: Side) => ({ ...side, errors: binsOf(side.errors, -reach, reach) });
  return {
    numbers: all.length,
    exact: all.length >= question.numbers,
    window: { zoom, place },
    zooms,
    places,
    part,
    low,
    high,
    bins: binsOf(shown, low, high),
    reach,
    sides: [withBins(a), withBins(b)],
    labels: question.labels,
    picture: pictureOf(all, after, width, part),
    core: { version: sp.version, simd: sp.simd, buildId: sp.buildId },
  };
}

const pause = () => new Promise((done) => setTimeout(done));

const calls = {
  /** Answers with quick numbers first, then with all that are tried. A newer question ends it. */
  async look(question: LookQuestion, onProgress: (answer: LookAnswer) => void): Promise<void> {
    newest = question;
    core ??= load({ blocks: true });
    const sp = await core;
    for (const limit of question.numbers > quickNumbers ? [quickNumbers, mostNumbers] : [mostNumbers]) {
      if (question !== newest) return;
      const numbers = await numbersFor(question, limit);
      if (question !== newest) return;
      onProgress(answer(sp, question, numbers));
      // A newer question may have come.
      await pause();
    }
  },
};
export type LookCalls = typeof calls;

answerCalls(calls);

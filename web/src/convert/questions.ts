/** Answers the questions of codecs about a tensor, with tasks that observe all of it. */
import type { Rectangle, SetsCut, ValueRange } from '../formats/codecs/codec.js';
import type { PlannedTensor } from '../formats/format.js';
import { rectangleInput } from './rectangle-input.js';
import type { Answer, RangeTask, SetsTask } from './task.js';
import type { QuestionStep, Reply } from './tiles.js';

/** Carries out a task about a rectangle at once. */
export type Ask = (tensor: PlannedTensor, task: RangeTask | SetsTask, rectangle: Rectangle) => Promise<Partial<Answer>>;

/** The range of all elements of some rectangles. */
async function rangeOf(
  tensor: PlannedTensor,
  rectangles: readonly Rectangle[],
  requests: QuestionStep['requests'],
  ask: Ask,
): Promise<ValueRange> {
  const asked = rectangles.map((rectangle, i) => {
    const { rows, columns } = rectangle;
    const inputs = [rectangleInput(tensor.source, rectangle)] as const;
    return ask(tensor, { kind: 'range', rows, columns, inputs, cache: requests?.[i] }, rectangle);
  });
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const { range } of await Promise.all(asked)) {
    const [min, max] = range as ValueRange;
    low = Math.min(low, min);
    high = Math.max(high, max);
  }
  return [low, high];
}

/** The pairs of numbers of all sets. */
async function setsOf(
  tensor: PlannedTensor,
  { count, observed, pieceRows }: SetsCut,
  requests: QuestionStep['requests'],
  ask: Ask,
): Promise<Float32Array<ArrayBuffer>> {
  const all = new Float32Array(2 * count);
  for (let i = 0; i < 2 * count; i++) all[i] = i % 2 === 0 ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
  const add = async ({ rectangle, first }: (typeof observed)[number], i: number) => {
    const { rows, columns } = rectangle;
    const task: SetsTask = {
      kind: 'sets',
      rows,
      columns,
      inputs: [rectangleInput(tensor.source, rectangle)],
      to: tensor.form,
      cache: requests?.[i],
      pieceRows,
    };
    const { sets = new Float32Array(0) } = await ask(tensor, task, rectangle);
    for (let from = 0, to = 2 * first; from < sets.length; from += 2, to += 2) {
      if ((sets[from] as number) < (all[to] as number)) all[to] = sets[from] as number;
      if ((sets[from + 1] as number) > (all[to + 1] as number)) all[to + 1] = sets[from + 1] as number;
    }
  };
  await Promise.all(observed.map(add));
  return all;
}

/** Answers a question. */
export function answerTo({ tensor, cut, requests }: QuestionStep, ask: Ask): Promise<Reply> {
  return cut.kind === 'range' ? rangeOf(tensor, cut.rectangles, requests, ask) : setsOf(tensor, cut, requests, ask);
}

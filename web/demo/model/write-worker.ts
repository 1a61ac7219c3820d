// Continues a text with a model and with the result of a choice, side by side. Both stay in memory until the page ends this worker.
import { type TextReader, withReader } from '../../src/tooling.js';
import { answerCalls } from '../shared/calls.js';
import { isStuck } from '../shared/continuations.js';
import { inputOf } from '../shared/page-files.js';
import { tokenizerFor } from './ids.js';
import { makeResult } from './made.js';
import { withWorkers } from './workers.js';
import type { Agreement, WriteProgress, WriteQuestion, WriteSide } from './write.js';

/** Most tokens of a text: keys and values of as many are kept. */
const mostTokens = 1024;

/** Both models, and the tokenizer of the original. */
interface Pair {
  readonly key: string;
  readonly readers: readonly [TextReader, TextReader];
  readonly bytes: number;
  readonly tokenizer: Awaited<ReturnType<typeof tokenizerFor>>;
}

type OnProgress = (step: WriteProgress) => void;

let pair: Pair | undefined;
/** True once the visitor has stopped the text. */
let isStopped = false;

/** Opens a model, which stays open: the page ends this worker instead. */
function opened(input: Parameters<typeof withReader>[0], onProgress: (share: number) => void): Promise<TextReader> {
  const open = (workers: number) =>
    new Promise<TextReader>((resolve, reject) => {
      const options = { room: mostTokens, workers: workers > 0 ? (1 as const) : (0 as const), onProgress };
      withReader(input, options, (reader) => {
        resolve(reader);
        return new Promise(() => {});
      }).catch(reject);
    });
  return withWorkers(1, open);
}

/** Makes the result, and loads both models. */
async function open(question: WriteQuestion, onProgress: OnProgress): Promise<Pair> {
  // A tokenizer that cannot be read is found before the long part.
  const tokenizer = await tokenizerFor(question);
  const { result, bytes } = await makeResult(question, (share) => onProgress({ step: 'quantize', share }));
  const shares = [0, 0];
  const load = (side: 0 | 1) => (share: number) => {
    shares[side] = share;
    onProgress({ step: 'load', share: Math.min(...shares) });
  };
  const readers = await Promise.all([opened(inputOf(question.files), load(0)), opened(result, load(1))]);
  return { key: question.key, readers, bytes, tokenizer };
}

/** Continues a text. Reports each token. */
async function continued(
  reader: TextReader,
  begin: readonly number[],
  length: number,
  report: (tokens: readonly number[], facts: Pick<WriteSide, 'seconds' | 'isDone' | 'isStuck'>) => void,
): Promise<number[]> {
  const tokens: number[] = [];
  let [next] = await reader.read(begin, 0, 1);
  const since = performance.now();
  let isOver = false;
  while (!isOver) {
    const hasEnded = reader.ends.includes(next as number);
    if (!hasEnded) tokens.push(next as number);
    const stuck = isStuck(tokens);
    isOver = hasEnded || stuck || isStopped || tokens.length >= length;
    report(tokens, { seconds: (performance.now() - since) / 1000, isDone: isOver, isStuck: stuck });
    if (!isOver) [next] = await reader.read([next as number], begin.length + tokens.length - 1, 1);
  }
  return tokens;
}

async function write(question: WriteQuestion, onProgress: OnProgress): Promise<Agreement> {
  isStopped = false;
  if (pair?.key !== question.key) pair = await open(question, onProgress);
  const { readers, tokenizer, bytes } = pair;
  const [original, result] = readers;
  const { beginning, context } = original;
  const begin = [...(beginning === undefined ? [] : [beginning]), ...tokenizer.encode(question.begin)];
  const room = Math.min(mostTokens, context) - begin.length;
  if (begin.length === 0) throw new Error('the text has no token; write a word');
  if (room < 1) {
    const most = Math.min(mostTokens, context);
    throw new Error(
      `the text has ${begin.length} tokens, and at most ${most - 1} leave room for another word; shorten it`,
    );
  }
  onProgress({ step: 'read' });
  const given = tokenizer.decode(begin);
  const written = await Promise.all(
    readers.map((reader, side) =>
      continued(reader, begin, Math.min(question.length, room), (tokens, facts) => {
        // A character may be cut after some of its bytes.
        const text = tokenizer.decode([...begin, ...tokens]).slice(given.length);
        const shown = facts.isDone ? text : text.replace(/\uFFFD+$/, '');
        onProgress({ step: 'text', side: side as 0 | 1, text: shown, tokens: tokens.length, ...facts });
      }),
    ),
  );
  // Have the result read what the original wrote, and count the places where it would have written the same.
  const [theirs = []] = written;
  const read = [...begin.slice(-1), ...theirs].slice(0, theirs.length);
  const found = theirs.length === 0 ? [] : await result.read(read, begin.length - 1, read.length);
  return { same: theirs.filter((id, i) => id === found[i]).length, of: theirs.length, bytes };
}

const calls = {
  write,
  /** Ends the texts. Both models stay in memory. */
  stop() {
    isStopped = true;
  },
};
export type WriteCalls = typeof calls;

answerCalls(calls);

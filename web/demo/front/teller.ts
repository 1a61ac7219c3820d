import type { Scalepoint } from 'scalepoint';
import { differing, isStuck, verdictOf, wordsOf } from '../shared/continuations.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { asSentence, messageOf } from '../shared/problems.js';
import { siteRoot } from '../shared/site.js';
import { readSample, type Storage } from './network.js';
import type { Story, Telling } from './state.js';
import { type StoryConfig, type StoryModel, Storyteller } from './story-model.js';
import { type TokenizerFile, Vocabulary } from './story-words.js';

/** Widths that write side by side, the widest first. */
const widths = [32, 8, 4, 3, 2] as const;

/** Beginnings to choose from. */
const beginnings = [
  'Mia was a girl who lived near the lake. She had a dog named Rex.',
  'One windy morning, Tom went to the hill with a pony named Dot. In his hand he had a yellow kite.',
  'Nora had a cat named Coco. One foggy evening they went to the mill. Her uncle had given her a silver bell.',
  'Once there was a boy named Hugo. He had a fox, and the fox was named Biscuit.',
];

/** Most characters of a beginning. */
const longestBeginning = 300;

/** Tokens that are left for the story at least. */
const leastStory = 32;

/** Milliseconds of a frame that writing may take. */
const frameShare = 10;

async function fetched(name: string): Promise<Response> {
  const response = await fetch(new URL(`samples/storyteller/${name}`, siteRoot)).catch(() => undefined);
  // Some servers answer with their start page if a file is missing.
  if (!response?.ok || /html/.test(response.headers.get('content-type') ?? '')) {
    throw new TellerError(
      'The storyteller is not on this server, or the connection failed. Press “Write” to try again.',
    );
  }
  return response;
}

/** Fetches the model and its vocabulary. @throws TellerError */
async function fetchModel(core: Scalepoint): Promise<{ model: StoryModel; vocabulary: Vocabulary }> {
  const [config, tokenizer, weights] = await Promise.all([
    fetched('config.json').then((response) => response.json() as Promise<StoryConfig>),
    fetched('tokenizer.json').then((response) => response.json() as Promise<TokenizerFile>),
    fetched('model.safetensors').then((response) => response.arrayBuffer()),
  ]);
  return { model: { config, tensors: readSample(weights, core) }, vocabulary: new Vocabulary(tokenizer) };
}

const nextFrame = () => new Promise<void>((done) => requestAnimationFrame(() => done()));
const pause = () => new Promise<void>((done) => setTimeout(done));

const storageOf = (bits: number, { groups, search }: Telling): Storage => ({
  bits,
  granularity: groups ? 'group' : 'tensor',
  range: search ? 'mse' : 'min-max',
  codes: 'even',
});

/** The storyteller does not work here. The message is for the visitor. */
export class TellerError extends Error {}

/** Writes the same story with each width, side by side. */
export class Teller {
  readonly #core: Scalepoint;
  readonly #model: StoryModel;
  readonly #vocabulary: Vocabulary;
  readonly #made = new Map<string, Promise<Storyteller>>();
  /** The run that may write. A newer one ends the others. */
  #run = 0;

  private constructor(core: Scalepoint, { model, vocabulary }: { model: StoryModel; vocabulary: Vocabulary }) {
    this.#core = core;
    this.#model = model;
    this.#vocabulary = vocabulary;
  }

  /** @throws TellerError if the model cannot be fetched */
  static async open(core: Scalepoint): Promise<Teller> {
    return new Teller(core, await fetchModel(core));
  }

  #storyteller(bits: number, telling: Telling): Promise<Storyteller> {
    const storage = storageOf(bits, telling);
    const key = bits === 32 ? '32' : Object.values(storage).join();
    const made = this.#made.get(key) ?? Storyteller.create(this.#core, this.#model, storage, pause);
    this.#made.set(key, made);
    return made;
  }

  /** Writes, and shows the stories with every frame. Ends early if it is called again. */
  async write(telling: Telling, show: (stories: readonly Story[]) => void): Promise<void> {
    const run = ++this.#run;
    const isStale = () => run !== this.#run;
    const begin = telling.begin.trim().slice(0, longestBeginning);
    const tokens = this.#vocabulary.encode(begin);
    const most = this.#model.config.max_position_embeddings - leastStory;
    if (tokens.length > most) {
      throw new TellerError(
        `This beginning takes ${tokens.length} tokens, and the storyteller reads ${most}: its words are not those of its stories. Shorten it, or press “Another beginning”.`,
      );
    }
    let shown: readonly Story[] = widths.map((bits) => ({ bits, begin, size: '', words: [], marks: [], verdict: '' }));
    const change = (bits: number, part: Partial<Story>) => {
      shown = shown.map((story) => (story.bits === bits ? { ...story, ...part } : story));
    };
    show(shown);

    // Write the original first, unseen, so that words are compared with the whole of it.
    const [first] = widths;
    const original: number[] = [];
    const writer = (await this.#storyteller(first, telling)).write(tokens);
    for (let step = writer.next(), since = performance.now(); !step.done; step = writer.next()) {
      original.push(step.value);
      if (performance.now() - since < frameShare) continue;
      await nextFrame();
      if (isStale()) return;
      since = performance.now();
    }
    const originalWords = wordsOf(this.#vocabulary.decode(original));

    // Show a token of each story with every frame.
    const isCalm = matchMedia('(prefers-reduced-motion: reduce)').matches;
    const writers = [];
    for (const bits of widths) {
      const storyteller = await this.#storyteller(bits, telling);
      if (isStale()) return;
      change(bits, { size: formatBytes(storyteller.bytes) });
      const source: Iterator<number, unknown> = bits === first ? original.values() : storyteller.write(tokens);
      writers.push({ bits, source, tokens: [] as number[], done: false, stuck: false });
    }
    while (writers.some(({ done }) => !done)) {
      for (const story of writers) {
        if (story.done) continue;
        let since = performance.now();
        for (let step = story.source.next(); ; step = story.source.next()) {
          if (step.done) story.done = true;
          else story.tokens.push(step.value);
          story.stuck = isStuck(story.tokens);
          story.done ||= story.stuck;
          if (story.done || !isCalm) break;
          // A story that appears at once takes longer than a frame.
          if (performance.now() - since < frameShare) continue;
          await nextFrame();
          if (isStale()) return;
          since = performance.now();
        }
        const words = wordsOf(this.#vocabulary.decode(story.tokens) + (story.stuck ? ' …' : ''));
        const marks = differing(words, originalWords);
        const sentence =
          story.bits === first
            ? `${formatMany(words.length, 'word')}.`
            : verdictOf('story', words, originalWords, marks, story.stuck);
        change(story.bits, { words, marks, verdict: story.done ? sentence : '' });
      }
      show(shown);
      await nextFrame();
      if (isStale()) return;
    }
  }
}

/** Another beginning than the one that stands there. */
export function otherBeginning(now: string): string {
  return beginnings[(beginnings.indexOf(now.trim()) + 1) % beginnings.length] as string;
}

/** The message for a visitor if the storyteller does not work. */
export function explainTeller(error: unknown): string {
  return error instanceof TellerError ? error.message : `The storyteller stopped: ${asSentence(messageOf(error))}`;
}

import type { Scalepoint } from 'scalepoint';
import { byId, html, setText } from '../shared/dom.js';
import { FileError } from '../shared/file-error.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { messageOf } from '../shared/problems.js';
import { siteRoot } from '../shared/site.js';
import { readSample, type Storage } from './network.js';
import { type StoryConfig, type StoryModel, Storyteller } from './story-model.js';
import { differing, type TokenizerFile, Vocabulary, wordsOf } from './story-words.js';

/** Text for the storyteller to continue, and how its weights are stored. */
export interface Telling {
  readonly begin: string;
  /** The width that is lit. */
  readonly bits: number;
  /** True: a scale for each 32 numbers. False: one for each tensor. */
  readonly groups: boolean;
  /** True: the range of least squared error. False: that of all numbers. */
  readonly search: boolean;
}

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

/** Milliseconds of a frame that writing may take. */
const frameShare = 10;

async function fetched(name: string): Promise<Response> {
  const response = await fetch(new URL(`samples/storyteller/${name}`, siteRoot)).catch(() => undefined);
  // Some servers answer with their start page if a file is missing.
  if (!response?.ok || /html/.test(response.headers.get('content-type') ?? '')) {
    throw new FileError('The storyteller is not on this server, or the connection failed. Press “Write” to try again.');
  }
  return response;
}

/** Fetches the model and its vocabulary. @throws FileError */
async function fetchModel(core: Scalepoint): Promise<{ model: StoryModel; vocabulary: Vocabulary }> {
  const [config, tokenizer, weights] = await Promise.all([
    fetched('config.json').then((response) => response.json() as Promise<StoryConfig>),
    fetched('tokenizer.json').then((response) => response.json() as Promise<TokenizerFile>),
    fetched('model.safetensors').then((response) => response.arrayBuffer()),
  ]);
  return { model: { config, tensors: readSample(weights, core) }, vocabulary: new Vocabulary(tokenizer) };
}

/** A story ends that repeats up to this many tokens this many times. */
const longestPeriod = 6;
const repetitions = 6;

const nextFrame = () => new Promise<void>((done) => requestAnimationFrame(() => done()));
const pause = () => new Promise<void>((done) => setTimeout(done));

/** The words of a storyteller, and where they are shown. */
interface Card {
  readonly bits: number;
  readonly item: HTMLElement;
  readonly size: HTMLElement;
  readonly text: HTMLElement;
  readonly verdict: HTMLElement;
}

function cardOf(bits: number): Card {
  const size = html('span', { class: 'telling-size' });
  const text = html('p', { class: 'telling-text' });
  const verdict = html('p', { class: 'telling-verdict' });
  const title = html('h3', {}, `${bits} bits`, ' ', size);
  return { bits, item: html('li', { class: 'telling', 'data-bits': bits }, title, text, verdict), size, text, verdict };
}

/** Shows words, and marks those that differ. Nodes that are right already are left alone. */
function showWords(node: HTMLElement, begin: string, words: readonly string[], marks: readonly boolean[]): void {
  const [given = node.appendChild(html('span', { class: 'given' }))] = [...node.children];
  setText(given, begin);
  while (node.children.length > words.length + 1) node.lastElementChild?.remove();
  for (const [i, word] of words.entries()) {
    const isMarked = marks[i] === true;
    const old = node.children[i + 1];
    if (old?.textContent === word && (old.querySelector('mark') !== null) === isMarked) continue;
    const text = word.trimStart();
    const blank = word.slice(0, word.length - text.length);
    const made = html('span', {}, blank, isMarked ? html('mark', {}, text) : text);
    if (old === undefined) node.append(made);
    else old.replaceWith(made);
  }
}

/** True if the last tokens repeat a few again and again. */
function isStuck(tokens: readonly number[]): boolean {
  for (let period = 1; period <= longestPeriod; period++) {
    const repeated = tokens.slice(-period * repetitions);
    if (repeated.length === period * repetitions && repeated.every((token, i) => token === repeated[i % period]))
      return true;
  }
  return false;
}

/** The sentence about a whole story. */
function verdictOf(
  words: readonly string[],
  original: readonly string[],
  marks: readonly boolean[],
  stuck: boolean,
): string {
  if (stuck) return 'It fell apart, and repeats itself without end.';
  const count = marks.filter(Boolean).length;
  if (count === 0 && words.length === original.length) return 'Word for word the same story.';
  if (count === 0) return `The same words, but ${formatMany(original.length - words.length, 'word')} are missing.`;
  return `${count} of ${formatMany(words.length, 'word')} ${count === 1 ? 'differs' : 'differ'}.`;
}

const storageOf = (bits: number, { groups, search }: Telling): Storage => ({
  bits,
  granularity: groups ? 'group' : 'tensor',
  range: search ? 'mse' : 'min-max',
  codes: 'even',
});

/** Writes the same story with each width, side by side. */
export class Teller {
  readonly #core: Scalepoint;
  readonly #model: StoryModel;
  readonly #vocabulary: Vocabulary;
  readonly #cards: readonly Card[];
  readonly #list = byId('tellings', HTMLElement);
  readonly #words = byId('teller-words', HTMLElement);
  readonly #made = new Map<string, Promise<Storyteller>>();
  /** The run that may write. A newer one ends the others. */
  #run = 0;

  private constructor(core: Scalepoint, { model, vocabulary }: { model: StoryModel; vocabulary: Vocabulary }) {
    this.#core = core;
    this.#model = model;
    this.#vocabulary = vocabulary;
    this.#cards = widths.map(cardOf);
    this.#list.replaceChildren(...this.#cards.map(({ item }) => item));
  }

  /** @throws FileError if the model cannot be fetched */
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

  /** Lights the card of the chosen width. */
  choose(bits: number): void {
    for (const card of this.#cards) card.item.classList.toggle('chosen', card.bits === bits);
    this.#describe(bits);
  }

  /** Says what the chosen width did. */
  #describe(bits: number): void {
    const card = this.#cards.find((one) => one.bits === bits);
    const verdict = card?.verdict.textContent ?? '';
    const size = card?.size.textContent ?? '';
    setText(this.#words, verdict === '' || size === '' ? '' : `${bits} bits, ${size}: ${verdict}`);
  }

  /** Writes. Ends early if it is called again. */
  async write(telling: Telling): Promise<void> {
    const run = ++this.#run;
    const isStale = () => run !== this.#run || !this.#list.isConnected;
    if (isStale()) return;
    const begin = telling.begin.trim().slice(0, longestBeginning);
    const tokens = this.#vocabulary.encode(begin);
    for (const { text, verdict } of this.#cards) {
      showWords(text, begin, [], []);
      setText(verdict, '');
    }
    this.#words.classList.remove('failed');
    this.choose(telling.bits);

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
    const stories = [];
    for (const card of this.#cards) {
      const storyteller = await this.#storyteller(card.bits, telling);
      if (isStale()) return;
      setText(card.size, formatBytes(storyteller.bytes));
      const source: Iterator<number, unknown> = card.bits === first ? original.values() : storyteller.write(tokens);
      stories.push({ card, source, tokens: [] as number[], done: false, stuck: false });
    }
    while (stories.some(({ done }) => !done)) {
      for (const story of stories) {
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
        showWords(story.card.text, begin, words, marks);
        if (!story.done) continue;
        const isFirst = story.card.bits === first;
        setText(
          story.card.verdict,
          isFirst ? `${formatMany(words.length, 'word')}.` : verdictOf(words, originalWords, marks, story.stuck),
        );
      }
      await nextFrame();
      if (isStale()) return;
    }
    this.#describe(telling.bits);
  }
}

/** Another beginning than the one that stands there. */
export function otherBeginning(now: string): string {
  return beginnings[(beginnings.indexOf(now.trim()) + 1) % beginnings.length] as string;
}

/** The message for a visitor if the storyteller does not work. */
export function explainTeller(error: unknown): string {
  return error instanceof FileError ? error.message : `The storyteller stopped: ${messageOf(error)}`;
}

/** Statistics of language models that are run a layer at a time: the importance and the moments of the inputs of their products. */

import type { Opened } from '../convert/open.js';
import { type Note, noteOf } from '../core/note.js';
import { uniform } from '../core/uniform.js';
import { sha256Of } from '../formats/files/checksums.js';
import { type SavedState, stampFiles } from '../formats/files/state-file.js';
import { isHeldBack, tooFewToHoldBack } from '../formats/held-back.js';
import { momentsEnd } from '../formats/statistics.js';
import { measureDivergences, measuredWeights } from './divergence.js';
import { beginTexts, statesOf } from './evaluate.js';
import type { InputWatcher, RunnableLanguage } from './forward.js';
import { withLanguage } from './language.js';
import type { LayerWorkers } from './layer-workers.js';
import { MomentsLayout } from './moments-file.js';
import { type CalibrationOptions, type InputSums, withOutputFiles, writeImportance } from './statistics-output.js';
import { chunkedTokens, type LanguageData, progressReporter, type TokenProgress } from './texts.js';

// ------------------------------------------------------------------------------------------------------------------------ moments

/** Takes the moments of some inputs: means over rows, a square of their columns. */
export type TakeMoments = (name: string, moments: Float32Array<ArrayBuffer>, isHeldBack: boolean) => Promise<void>;

/** Inputs that wait for a worker to add their moments, at most. */
const mostWaiting = 8;

/**
 * Sums of the second moments of the inputs of a layer: 8 bytes for each entry, and 4 when one is finished. Each is kept by one worker. Rows that
 * are held back come last, so that the other sums are finished before.
 */
class LayerMoments {
  readonly #workers: LayerWorkers;
  readonly #take: TakeMoments;
  /** Number of rows that are not held back. */
  readonly #fitted: number;
  /** Columns and rows of each input so far. */
  readonly #seen = new Map<string, { readonly columns: number; rows: number }>();
  /** The worker that keeps the sums of each input, by the first weight of it. */
  readonly #keepers = new Map<string, number>();
  /** Columns of the inputs that each worker keeps, squared. */
  readonly #load: number[];
  readonly #waiting: Promise<unknown>[] = [];

  constructor(layerWorkers: LayerWorkers, fitted: number, take: TakeMoments) {
    this.#workers = layerWorkers;
    this.#fitted = fitted;
    this.#take = take;
    this.#load = new Array(layerWorkers.count).fill(0);
  }

  /** Divides the inputs of a layer among the workers, the largest first. Returns their names. */
  begin(inputs: readonly { readonly names: readonly string[]; readonly columns: number }[]): readonly string[] {
    this.#keepers.clear();
    this.#seen.clear();
    this.#load.fill(0);
    for (const { names, columns } of inputs.toSorted((a, b) => b.columns - a.columns)) {
      const keeper = this.#load.indexOf(Math.min(...this.#load));
      this.#load[keeper] = (this.#load[keeper] as number) + columns ** 2;
      this.#keepers.set(names[0] as string, keeper);
    }
    return [...this.#keepers.keys()];
  }

  /** Adds inputs in the order of their rows. */
  async add(name: string, x: Float32Array<ArrayBuffer>, columns: number): Promise<void> {
    const seen = this.#seen.get(name) ?? { columns, rows: 0 };
    this.#seen.set(name, seen);
    const rows = x.length / columns;
    const before = Math.max(0, Math.min(rows, this.#fitted - seen.rows));
    const isCut = before > 0 && before < rows;
    if (before > 0) await this.#send(name, isCut ? x.slice(0, before * columns) : x, columns);
    if (before < rows) {
      // Finish the first sums before held-back rows begin.
      if (seen.rows <= this.#fitted) await this.#handOver(name, columns, this.#fitted, false);
      await this.#send(name, isCut ? x.slice(before * columns) : x, columns);
    }
    seen.rows += rows;
  }

  async #send(name: string, x: Float32Array<ArrayBuffer>, columns: number): Promise<void> {
    const added = this.#workers.ask(this.#keepers.get(name) as number, { kind: 'addMoments', name, x, columns }, [
      x.buffer,
    ]);
    // Reported by the wait.
    added.catch(() => {});
    this.#waiting.push(added);
    if (this.#waiting.length > mostWaiting) await this.#waiting.shift();
  }

  /** Hands over the last moments of a layer, and frees the sums. */
  async finish(): Promise<void> {
    for (const [name, { columns, rows }] of this.#seen) {
      const isHeldBack = rows > this.#fitted;
      await this.#handOver(name, columns, isHeldBack ? rows - this.#fitted : rows, isHeldBack);
    }
  }

  async #handOver(name: string, columns: number, rows: number, isHeldBack: boolean): Promise<void> {
    await Promise.all(this.#waiting.splice(0));
    const keeper = this.#keepers.get(name) as number;
    const { values } = await this.#workers.ask(keeper, { kind: 'takeMoments', name, columns, rows });
    await this.#take(name, values, isHeldBack);
  }
}

// --------------------------------------------------------------------------------------------------------------------------- sums

/** A layer that all tokens have passed. */
interface PassedLayer {
  readonly layer: number;
  /** States behind it. */
  readonly states: Float32Array<ArrayBuffer>;
  /** Sums so far. */
  readonly sums: readonly InputSums[];
}

/** A calibration from its state; undefined if it is not one of that many layers, and floats of states. */
function passedLayerIn({ about, arrays }: SavedState, layers: number, floats: number): PassedLayer | undefined {
  const { layer, sums } = (about ?? {}) as { layer?: unknown; sums?: unknown };
  const [states, ...others] = arrays;
  if (!(states instanceof Float32Array) || states.length !== floats) return undefined;
  if (typeof layer !== 'number' || !Number.isSafeInteger(layer) || layer >= layers) return undefined;
  if (!Array.isArray(sums) || others.length !== 2 * sums.length) return undefined;
  const made: InputSums[] = [];
  for (const [i, { names, columns, rows }] of (sums as Pick<InputSums, 'names' | 'columns' | 'rows'>[]).entries()) {
    const [squares, counts] = [others[2 * i], others[2 * i + 1]];
    if (!(squares instanceof Float64Array) || !(counts instanceof Float64Array)) return undefined;
    if (squares.length !== columns * counts.length) return undefined;
    made.push({ names, columns, rows, squares, counts });
  }
  return { layer, states, sums: made };
}

/** Options of `collectFromTexts`. */
interface CollectTextsOptions {
  readonly onProgress: TokenProgress;
  /** Called for the inputs of each layer; undefined to collect squares alone. */
  readonly takeMoments?: TakeMoments | undefined;
  /** Number of tokens whose moments come first. Those of the others are held back. */
  readonly fitted: number;
  /** A layer that an earlier run has passed. */
  readonly passed?: PassedLayer | undefined;
  /** Called behind each layer. */
  readonly onLayer?: ((passed: PassedLayer) => Promise<void>) | undefined;
}

/**
 * Runs a model on texts and adds up the squares of the inputs of each product, the head's among them, which may be the table of the tokens.
 * @throws ScalepointError `NON_FINITE` naming the weight or the layer
 */
async function collectFromTexts(
  model: RunnableLanguage,
  ids: Uint32Array,
  textSize: number,
  { onProgress, takeMoments, fitted, passed, onLayer }: CollectTextsOptions,
): Promise<InputSums[]> {
  const { layerWorkers, forward, facts } = model;
  const { core } = layerWorkers;
  const all = new Map(passed?.sums.map((sums) => [sums.names[0] as string, sums]));
  const moments = takeMoments && new LayerMoments(layerWorkers, fitted, takeMoments);
  const take: InputWatcher['take'] = async ({ names, rows, columns, squares, x }, expert) => {
    const key = names[0] as string;
    const matrices = expert === undefined ? 1 : facts.experts;
    const sums = all.get(key) ?? {
      names,
      columns,
      rows: 0,
      squares: new Float64Array(columns * matrices),
      counts: new Float64Array(matrices),
    };
    all.set(key, sums);
    const matrix = expert ?? 0;
    const target = sums.squares.subarray(matrix * columns, (matrix + 1) * columns);
    const bytes = squares.byteLength;
    core.withMemory(bytes * 2, (at) => {
      core.module.HEAPF64.set(squares, at >>> 3);
      core.module.HEAPF64.set(target, (at + bytes) >>> 3);
      core.models.addSums(at, columns, at + bytes);
      target.set(core.module.HEAPF64.subarray((at + bytes) >>> 3, ((at + bytes) >>> 3) + columns));
    });
    if (sums.counts !== undefined) (sums.counts[matrix] as number) += rows;
    sums.rows += rows;
    if (x !== undefined) await moments?.add(key, x, columns);
  };
  const states = await statesOf(model, ids, textSize, {
    onTokens: onProgress,
    passed,
    watcher: (layer) => ({ watch: { squares: true, inputs: moments?.begin(forward.inputsOf(layer)) ?? [] }, take }),
    async onLayer(layer, states) {
      await moments?.finish();
      await onLayer?.({ layer, states, sums: [...all.values()] });
    },
  });
  const inputs = moments?.begin([forward.head]) ?? [];
  await forward.headInputs(states, { watch: { squares: true, inputs }, take });
  await moments?.finish();
  return [...all.values()];
}

// -------------------------------------------------------------------------------------------------------------------- calibration

/**
 * Puts what is held back of the data and of random tokens last, where a shorter chunk of the data stands already. With fewer than two whole
 * chunks of data, nothing is held back.
 * @returns the tokens in this order, and how many of them are not held back
 */
function heldBackLast(ids: Uint32Array<ArrayBuffer>, mixed: Uint32Array, size: number, share: number) {
  const whole = Math.floor(ids.length / size);
  const own: Uint32Array[] = [];
  const held: Uint32Array[] = [];
  for (const tokens of [ids, mixed]) {
    for (let i = 0; (i + 1) * size <= tokens.length; i++) {
      (whole >= 2 && isHeldBack(i, share) ? held : own).push(tokens.subarray(i * size, (i + 1) * size));
    }
  }
  const texts = new Uint32Array(ids.length + mixed.length);
  for (const [i, chunk] of [...own, ...held, ids.subarray(whole * size)].entries()) texts.set(chunk, i * size);
  return { texts, fitted: held.length === 0 ? texts.length : own.length * size };
}

/**
 * The least share of the tokens that a text could have, which is the smaller of its length and the vocabulary, for statistics that hold for
 * other texts. Measured with the model of stories: see `web/demo/guide/06-let-data-decide.md`.
 */
const leastSeen = 0.05;

/** Collects statistics of a language model. See `calibrateModel`. @param mix the share of random tokens */
export async function calibrateLanguage(
  opened: Opened,
  data: LanguageData,
  {
    output,
    overwrite,
    resume,
    moments,
    heldBack,
    isShareGiven,
    mix,
    ...own
  }: CalibrationOptions & { readonly mix: number },
) {
  const outputs = { output, overwrite, resume, signal: own.signal };
  return withOutputFiles(opened, outputs, moments ? [momentsEnd] : [], ({ main, beside, openState }) =>
    withLanguage(opened, own, async (language) => {
      const { forward, facts, beginning } = language;
      const { vocabulary } = forward;
      const limits = { vocabulary, context: facts.context, beginning };
      const { ids, size } = await chunkedTokens('data', data, [opened], { ...own, limits });
      // Mix in random tokens for a share of all tokens, in whole chunks.
      const random = uniform(1);
      const chunksMixed = Math.round((Math.floor(ids.length / size) * mix) / (1 - mix));
      const mixed = Uint32Array.from({ length: chunksMixed * size }, () => Math.floor(random() * vocabulary));
      const laidOut = heldBackLast(ids, mixed, size, heldBack);
      const { fitted } = laidOut;
      const texts = beginTexts(laidOut.texts, size, beginning);
      const held = texts.length - fitted;
      if (held === 0 && isShareGiven && heldBack > 0) throw tooFewToHoldBack('data', ids.length, 2 * size, 'tokens');

      // Find the state of an interrupted run.
      const state = await openState({
        'the model': resume && (await stampFiles(opened.model.files)),
        'the data': resume && (await sha256Of(new Uint8Array(texts.slice().buffer))),
        'the options': { size, moments, fitted },
      });
      const found = state?.take();
      const passed = found && passedLayerIn(found, facts.layers, texts.length * facts.hidden);
      if (found !== undefined && passed === undefined) throw state?.damaged();

      // Lay out the moments, and write those of each layer behind it, and the divergences at the end.
      const report = progressReporter(own, 'calibrate', 'tokens');
      const second = beside.get(momentsEnd);
      let takeMoments: TakeMoments | undefined;
      let finishMoments = async () => {};
      const passes = second === undefined ? facts.layers : 2 * facts.layers + 1;
      const onProgress: TokenProgress = (progress) => report({ ...progress, passes });
      const onMeasured: TokenProgress = ({ pass, ...rest }) => report({ ...rest, pass: facts.layers + pass, passes });
      if (second !== undefined) {
        const layers = Array.from({ length: facts.layers }, (_, i) => forward.inputsOf(i));
        const inputs = [...layers.flat(), forward.head].map((one) => ({ ...one, heldBack: held > 0 }));
        const counts = { tokens: fitted, heldBack: held, mixed: mixed.length };
        const layout = new MomentsLayout(inputs, counts, measuredWeights(language));
        const sink = second.sized(layout.size);
        const to = (await state?.moments(passed === undefined)) ?? sink;
        if (passed === undefined) await to.write(0, layout.header);
        takeMoments = (...numbers) => layout.write(to, ...numbers);
        finishMoments = async () => {
          await layout.writeDivergences(to, await measureDivergences(language, ids, size, onMeasured));
          if (to !== sink) await state?.copyMoments(layout.size, sink);
        };
      }

      // Run the model.
      const onLayer = async ({ layer, states, sums: all }: PassedLayer) => {
        const about = { layer, sums: all.map(({ names, columns, rows }) => ({ names, columns, rows })) };
        const arrays = all.flatMap((one) => [one.squares, one.counts ?? Float64Array.of(one.rows)]);
        await state?.save({ about, arrays: [states, ...arrays] });
      };
      const sums = await collectFromTexts(language, texts, size, { onProgress, takeMoments, fitted, passed, onLayer });
      await finishMoments();
      const chunks = Math.ceil(texts.length / size);
      const weights = await writeImportance(main, sums, { chunks, chunkSize: size });

      // Note a text of few different tokens.
      const notes: Note[] = [];
      const begun = beginTexts(ids, size, beginning);
      const seen = new Set(begun).size;
      if (seen < leastSeen * Math.min(begun.length, vocabulary)) {
        const text =
          `the data have ${seen} of the ${vocabulary} tokens that the model knows; weights made by them may be worse for other texts than ` +
          'without data, which errors on held-back data do not show: add texts of other kinds, or random tokens';
        notes.push(noteOf('fewTokens', { seen, vocabulary, tokens: begun.length }, text));
      }
      const more = second && { moments: second.result(), heldBackChunks: Math.ceil(held / size) };
      return { tokens: texts.length, mixedTokens: mixed.length, chunks, weights, notes, ...main.result(), ...more };
    }),
  );
}

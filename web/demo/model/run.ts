// Runs the conversion that saves.
import { type Progress, type QuantizeModelResult, quantizeModel, ScalepointError } from 'scalepoint/model';
import { announce } from '../shared/live.js';
import type { Store } from '../shared/store.js';
import { formatFor, infoOf, outputName } from './choice.js';
import { explain } from './explain.js';
import { chooseFolderPlace } from './folders.js';
import { choosePlace, type SavePlace } from './save.js';
import type { ModelSession } from './session.js';
import type { MeasuredError, State } from './state.js';
import { savingWorkers } from './workers.js';

/** The share that is done before the time left is shown. */
const leastShare = 0.02;
/** A run that takes longer than this announces each quarter, in seconds. */
const longSeconds = 5;

/** Saves the open model, one at a time. */
export class Runner {
  readonly #store: Store<State>;
  readonly #session: ModelSession;
  #controller: AbortController | undefined;

  constructor(store: Store<State>, session: ModelSession) {
    this.#store = store;
    this.#session = session;
  }

  cancel(): void {
    this.#controller?.abort(new DOMException('cancelled', 'AbortError'));
  }

  async start(): Promise<void> {
    const { model, choice, run } = this.#store.get();
    // The dialog may be open: one run at a time.
    if (model === undefined || choice === undefined || run.kind === 'asking' || run.kind === 'running') return;
    this.#store.set({ run: { kind: 'asking' }, problem: undefined });
    const format = formatFor(model, choice.to);
    const wanted = outputName(model.name, format, choice);
    const choose = infoOf(format).isFolder ? chooseFolderPlace : choosePlace;
    const place = await choose(wanted).catch((error: unknown) => explain(error));
    if (place === undefined || 'title' in place) {
      this.#store.set({ run: { kind: 'none' }, ...(place && { problem: place }) });
      return;
    }
    const name = place.output?.kind === 'directory' ? place.output.name : wanted;
    this.#controller = new AbortController();
    this.#session.rest();
    this.#store.set({
      run: { kind: 'running', tensor: '', bytesDone: 0, bytesTotal: 0, secondsLeft: undefined },
    });
    announce(`Quantizing ${model.name}`, 0);
    const begin = performance.now();
    try {
      const result = await this.#quantize(place, this.#controller.signal, begin);
      await place.finish(result);
      const seconds = (performance.now() - begin) / 1000;
      this.#store.set({ run: { kind: 'saved', name, seconds, result } });
      this.#session.learn(errorsOf(result));
      announce(`Saved ${name}`, 0);
    } catch (error) {
      await place.discard();
      this.#fail(error);
    } finally {
      this.#controller = undefined;
    }
  }

  #fail(error: unknown): void {
    if (this.#controller?.signal.aborted) {
      this.#store.set({ run: { kind: 'cancelled' } });
      announce('Cancelled', 0);
      return;
    }
    this.#store.set({ run: { kind: 'none' }, problem: explain(error, (name) => this.#session.keep(name)) });
  }

  async #quantize(place: SavePlace, signal: AbortSignal, begin: number): Promise<QuantizeModelResult> {
    const { model, choice } = this.#store.get();
    if (model === undefined || choice === undefined) throw new TypeError('there is no model');
    let quarters = 0;
    const onProgress = ({ tensor, bytesDone, bytesTotal }: Progress) => {
      const share = bytesDone / Math.max(bytesTotal, 1);
      const seconds = (performance.now() - begin) / 1000;
      const secondsLeft = share > leastShare ? (seconds / share) * (1 - share) : undefined;
      this.#store.set({ run: { kind: 'running', tensor, bytesDone, bytesTotal, secondsLeft } });
      const passed = Math.floor(4 * share);
      if (seconds < longSeconds || passed <= quarters || passed === 4) return;
      quarters = passed;
      announce(`${25 * quarters} percent`, 0);
    };
    const options = await this.#session.options(choice);
    const work = (workers: number) =>
      quantizeModel(model.files, {
        ...options,
        // The dialog has asked before replacing a file.
        ...(place.output === undefined ? {} : { output: place.output, overwrite: true }),
        workers,
        signal,
        onProgress,
      });
    return work(savingWorkers).catch((error: unknown) => {
      // If the page may not start workers, its own thread does the work.
      if (!(error instanceof ScalepointError && error.code === 'WORKER')) throw error;
      return work(0);
    });
  }
}

function errorsOf({ report }: QuantizeModelResult): ReadonlyMap<string, MeasuredError> {
  return new Map(
    report.tensors.flatMap(({ name, error }) => (error === undefined ? [] : [[name, { error, exact: true }]])),
  );
}

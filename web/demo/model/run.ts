// Runs the conversion that saves.
import { type PlanOptions, type Progress, type QuantizeModelResult, quantizeModel } from 'scalepoint/model';
import type { ModelFile } from '../shared/files.js';
import { announce } from '../shared/live.js';
import type { Store } from '../shared/store.js';
import { formatFor, infoOf, outputName } from './choice.js';
import { explain } from './explain.js';
import { chooseFolderPlace } from './folders.js';
import { choosePlace, type SavePlace } from './save.js';
import type { ModelSession } from './session.js';
import type { MeasuredError, State } from './state.js';
import { savingWorkers, withWorkers } from './workers.js';

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
    const { model, choice } = this.#store.get();
    const { shown } = this.#session;
    if (model === undefined || choice === undefined || !shown.begin(() => this.cancel())) return;
    const controller = new AbortController();
    this.#controller = controller;
    const format = formatFor(model, choice.to);
    const wanted = outputName(model.name, format, choice);
    const choose = infoOf(format).isFolder ? chooseFolderPlace : choosePlace;
    const place = await choose(wanted).catch((error: unknown) => explain(error));
    if (place === undefined || 'title' in place) {
      shown.end({ kind: 'none' }, place);
      return;
    }
    const name = place.output?.kind === 'directory' ? place.output.name : wanted;
    this.#store.set({
      run: { kind: 'running', tensor: '', bytesDone: 0, bytesTotal: 0, secondsLeft: undefined },
    });
    announce(`Quantizing ${model.name}`, 0);
    const begin = performance.now();
    try {
      await this.#session.rest();
      const options = await this.#session.options(model, choice);
      const result = await this.#quantize(model, options, place, controller.signal, begin);
      await place.finish(result);
      const seconds = (performance.now() - begin) / 1000;
      this.#session.learn(errorsOf(result));
      shown.end({ kind: 'saved', name, seconds, result });
      announce(`Saved ${name}`, 0);
    } catch (error) {
      await place.discard();
      if (controller.signal.aborted) {
        announce('Cancelled', 0);
        shown.end({ kind: 'cancelled' });
      } else shown.end({ kind: 'none' }, explain(error, this.#session));
    }
  }

  async #quantize(
    model: ModelFile,
    options: PlanOptions,
    place: SavePlace,
    signal: AbortSignal,
    begin: number,
  ): Promise<QuantizeModelResult> {
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
    const work = (workers: number) =>
      quantizeModel(model.files, {
        ...options,
        // The dialog has asked before replacing a file.
        ...(place.output === undefined ? {} : { output: place.output, overwrite: true }),
        workers,
        signal,
        onProgress,
      });
    return withWorkers(savingWorkers, work);
  }
}

function errorsOf({ report }: QuantizeModelResult): ReadonlyMap<string, MeasuredError> {
  return new Map(
    report.tensors.flatMap(({ name, error }) => (error === undefined ? [] : [[name, { error, exact: true }]])),
  );
}

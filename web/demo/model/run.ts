// Runs the conversion that saves.
import { type Progress, type QuantizeModelOptions, type QuantizeModelResult, quantizeModel } from 'scalepoint/model';
import { titleOf } from '../shared/files.js';
import { announce } from '../shared/live.js';
import { inputOf, type PageFile } from '../shared/page-files.js';
import type { Store } from '../shared/store.js';
import { formatFor, makesFolder, outputOf } from './choice.js';
import { explain } from './explain.js';
import { chooseFolderPlace } from './folders.js';
import { choosePlace, type SavedFiles, type SavePlace } from './save.js';
import type { ModelSession } from './session.js';
import type { MeasuredError, State } from './state.js';
import { secondsLeft } from './wording.js';
import { savingWorkers, withWorkers } from './workers.js';

/** A run that takes longer than this announces each quarter, in milliseconds. */
const longMilliseconds = 5000;

/** The reason of an end that the visitor asked for. */
export const cancelled = (): DOMException => new DOMException('cancelled', 'AbortError');

/** Quantizes a model into a place, which is given up after a failure. @param findOptions options, once they are known */
export async function saveTo(
  place: SavePlace,
  files: readonly PageFile[],
  findOptions: () => Promise<QuantizeModelOptions>,
): Promise<{ readonly result: QuantizeModelResult; readonly saved: SavedFiles }> {
  try {
    const options = await findOptions();
    // The dialog has asked before replacing a file.
    const output = place.output === undefined ? {} : { output: place.output, overwrite: true };
    const work = (workers: number) => quantizeModel(inputOf(files), { ...options, ...output, workers });
    const result = await withWorkers(savingWorkers, work);
    return { result, saved: await place.finish(result) };
  } catch (error) {
    await place.discard();
    throw error;
  }
}

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
    this.#controller?.abort(cancelled());
  }

  async start(): Promise<void> {
    const { model, choice } = this.#store.get();
    const { shown } = this.#session;
    if (model === undefined || choice === undefined || !shown.begin(() => this.cancel())) return;
    const controller = new AbortController();
    this.#controller = controller;
    const wanted = outputOf(model, choice);
    const choose = makesFolder(model, formatFor(model, choice.to)) ? chooseFolderPlace : choosePlace;
    const place = await choose(wanted).catch((error: unknown) => explain(error));
    if (place === undefined || 'title' in place) {
      shown.end({ kind: 'none' }, place);
      return;
    }
    const name = place.output?.kind === 'directory' ? place.output.name : wanted;
    this.#store.set({
      run: { kind: 'running', tensor: '', bytesDone: 0, bytesTotal: 0, secondsLeft: undefined },
    });
    announce(`Quantizing ${titleOf(model)}`, 0);
    const begin = performance.now();
    let quarters = 0;
    const onProgress = ({ tensor, bytesDone, bytesTotal }: Progress) => {
      const share = bytesDone / Math.max(bytesTotal, 1);
      const left = secondsLeft(share, begin);
      this.#store.set({ run: { kind: 'running', tensor, bytesDone, bytesTotal, secondsLeft: left } });
      const passed = Math.floor(4 * share);
      if (performance.now() - begin < longMilliseconds || passed <= quarters || passed === 4) return;
      quarters = passed;
      announce(`${25 * quarters} percent`, 0);
    };
    try {
      const { result, saved } = await saveTo(place, model.files, async () => {
        await this.#session.rest();
        return { ...(await this.#session.options(model, choice)), signal: controller.signal, onProgress };
      });
      const seconds = (performance.now() - begin) / 1000;
      const errors = result.report.tensors.flatMap(({ name, error }): [string, MeasuredError][] =>
        error === undefined ? [] : [[name, { error, exact: true }]],
      );
      this.#session.learn(new Map(errors), seconds);
      shown.end({ kind: 'saved', name, seconds, result, saved });
      announce(`Saved ${name}`, 0);
    } catch (error) {
      if (controller.signal.aborted) {
        announce('Cancelled', 0);
        shown.end({ kind: 'cancelled' });
      } else shown.end({ kind: 'none' }, explain(error, this.#session));
    }
  }
}

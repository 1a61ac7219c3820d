// Has a worker write with a model and its results.
import type { PlanOptions } from 'scalepoint/model';
import { callWorker, isEnded } from '../shared/calls.js';
import type { ModelFile } from '../shared/files.js';
import { inPageWords } from './explain.js';
import { packageError } from './workers.js';
import type { WriteQuestion, WriteSide, WriteState } from './write.js';
import type { WriteCalls } from './write-worker.js';

const initial: WriteState = {
  begin: 'Once there was a boy named Hugo. He had a fox, and the fox was named Biscuit.',
  length: 100,
  label: '',
  progress: undefined,
  given: '',
  sides: [],
  agreement: undefined,
  problem: '',
};

const emptySide: WriteSide = { text: '', tokens: 0, seconds: 0, isDone: false, isStuck: false };

/** Writes with one model and its results. */
export class Writer {
  readonly #model: ModelFile;
  readonly #draw: () => void;
  readonly #worker = callWorker<WriteCalls>(
    () => new Worker(new URL('./write-worker.ts', import.meta.url), { type: 'module' }),
    { work: 'writes texts', errorOf: packageError },
  );
  #state = initial;

  constructor(model: ModelFile, draw: () => void) {
    this.#model = model;
    this.#draw = draw;
  }

  get state(): WriteState {
    return this.#state;
  }

  set(change: Partial<WriteState>): void {
    this.#state = { ...this.#state, ...change };
    this.#draw();
  }

  /** Continues the text with the original and with the result of a choice. */
  async write(
    label: string,
    question: Pick<WriteQuestion, 'key' | 'floats' | 'tokenizer'>,
    options: Promise<PlanOptions>,
  ): Promise<void> {
    const { begin, length } = this.#state;
    const given = begin.trim();
    const sides = [emptySide, emptySide];
    this.set({ label, given, sides: [], agreement: undefined, problem: '', progress: { step: 'quantize', share: 0 } });
    try {
      const whole = { ...question, files: this.#model.files, options: await options, begin: given, length };
      const agreement = await this.#worker.call('write', whole, (progress) => {
        if (progress.step === 'text') {
          const { step: _, side, ...text } = progress;
          sides[side] = text;
        }
        this.set({ progress, ...(progress.step === 'text' && { sides: [...sides] }) });
      });
      this.set({ progress: undefined, agreement });
    } catch (error) {
      this.#worker.end();
      this.set({ progress: undefined, ...(!isEnded(error) && { problem: inPageWords(error) }) });
    }
  }

  /** Stops. Models that are loaded stay, for the next text. */
  stop(): void {
    const { progress } = this.#state;
    if (progress?.step === 'text') void this.#worker.call('stop', undefined as never);
    else this.#worker.end();
  }

  /** Stops, and frees the memory of both models. */
  rest(): void {
    this.#worker.end();
  }
}

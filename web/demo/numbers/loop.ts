import { callWorker, type WorkerCaller } from '../shared/calls.js';
import { byId, onFrame } from '../shared/dom.js';
import { asSentence, messageOf } from '../shared/problems.js';
import { countOf } from './data.js';
import { type State, slowSections } from './state.js';
import type { NumbersView, Section, ViewRequest } from './view.js';
import type { NumbersCalls } from './worker.js';

/** The worker, which holds the visitor's data. */
export type Client = WorkerCaller<NumbersCalls>;

export const startClient = (): Client =>
  callWorker(() => new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' }), {
    work: 'computes',
    isOnly: true,
  });

/** Most numbers that are quantized while a control moves. Of larger data a sample is taken. */
const liveLimit = 2 ** 18;
/** Most numbers that are quantized once the controls rest. Larger data stay a sample, and the page says so. */
const restLimit = 2 ** 24;
/** Time without a movement after which a control that was moved counts as resting. */
const restMilliseconds = 160;

const isSlow = (section: Section) => (slowSections as readonly Section[]).includes(section);

const widthOf = (id: string) => Math.round(byId(id, SVGSVGElement).getBoundingClientRect().width);

/** Asks the worker for what the page shows, one view at a time. Changes that come meanwhile make one more view. */
export class Loop {
  readonly #client: Client;
  readonly #state: State;
  readonly #draw: () => void;
  readonly #rested: () => void;
  #dirty = false;
  #running = false;
  #reading = false;
  /** Time of the last movement of a control. */
  #moved = Number.NEGATIVE_INFINITY;
  #rest: ReturnType<typeof setTimeout> | undefined;

  /** @param rested called when everything is drawn */
  constructor(client: Client, state: State, draw: () => void, rested: () => void) {
    this.#client = client;
    this.#state = state;
    this.#draw = draw;
    this.#rested = rested;
  }

  /**
   * Requests a view after a change.
   * @param isMoving true if more such changes are likely to follow at once, as from a slider. Slow sections wait for their end.
   * @param isQuiet true if the page counts as resting, because nothing that it says changes
   */
  schedule(isMoving = false, isQuiet = false): void {
    if (isMoving) this.#moved = performance.now();
    this.#dirty = true;
    clearTimeout(this.#rest);
    if (!isQuiet) {
      this.#state.isBusy = true;
      this.#draw();
    }
    void this.#run('live');
  }

  /** Starts or ends a read. The page is not at rest during one. */
  setReading(isReading: boolean): void {
    this.#reading = isReading;
    if (!isReading) this.schedule();
    else {
      this.#state.isBusy = true;
      this.#draw();
    }
  }

  async #ask(limit: number, sections: readonly Section[]): Promise<NumbersView> {
    const { settings, held, lineAt, row } = this.#state;
    const widths = { histogram: widthOf('histogram'), line: widthOf('numberline'), errors: widthOf('errors') };
    const dataId = settings.data === 'own' ? held?.id : undefined;
    const wish: ViewRequest = { settings, dataId, limit, widths, lineAt, row, open: sections };
    const view = await this.#client.call('view', wish);
    this.#state.problem = undefined;
    return view;
  }

  async #run(what: 'live' | 'rest'): Promise<void> {
    if (this.#running) return;
    this.#running = true;
    try {
      if (what === 'live') await this.#live();
      else await this.#atRest();
    } catch (error) {
      this.#state.problem = {
        title: 'The page stopped computing',
        text: `${asSentence(messageOf(error))} Load the page again. The link keeps the settings.`,
        action: { label: 'Load again', run: () => location.reload() },
      };
      this.#state.isBusy = false;
      this.#draw();
    } finally {
      this.#running = false;
    }
    clearTimeout(this.#rest);
    if (this.#dirty) void this.#run('live');
    else if (what === 'live') {
      const wait = Math.max(0, this.#moved + restMilliseconds - performance.now());
      this.#rest = setTimeout(() => void this.#run('rest'), wait);
    }
  }

  /** Draws while controls move. */
  async #live(): Promise<void> {
    while (this.#dirty) {
      await new Promise<void>(onFrame);
      this.#dirty = false;
      this.#state.view = await this.#ask(liveLimit, this.#quickSections());
      this.#draw();
    }
  }

  #quickSections(): readonly Section[] {
    return [...this.#state.open].filter((section) => !isSlow(section));
  }

  /** Draws the slow sections, until something changes. */
  async #atRest(): Promise<void> {
    const { view } = this.#state;
    if (view?.result?.exact === false && countOf(view.data) <= restLimit) {
      this.#state.view = await this.#ask(restLimit, this.#quickSections());
      if (this.#dirty) return;
      this.#draw();
    }
    let slow: State['slow'] = {};
    for (const section of slowSections) {
      if (this.#dirty || this.#state.view === undefined) return;
      if (!this.#state.open.has(section)) continue;
      const { [section]: part } = await this.#ask(restLimit, [section]);
      if (part !== undefined) slow = { ...slow, [section]: part };
    }
    if (this.#dirty) return;
    const { ladder, ...others } = this.#state.slow;
    const isKept = this.#state.view?.result !== undefined && ladder !== undefined;
    this.#state.slow = { ...others, ...(isKept && { ladder }), ...slow };
    this.#state.isBusy = this.#reading;
    this.#draw();
    this.#rested();
  }
}

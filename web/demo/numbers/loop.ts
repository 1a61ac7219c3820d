import { byId } from '../shared/dom.js';
import { asSentence, messageOf, showProblem } from '../shared/problems.js';
import type { Client } from './client.js';
import { countOf } from './data.js';
import { widthsNow } from './pictures.js';
import type { State } from './state.js';
import type { NumbersView, Section, ViewRequest } from './view.js';

/** Most numbers that are quantized while a control moves. Of larger data a sample is taken. */
const liveLimit = 2 ** 18;
/** Most numbers that are quantized once the controls rest. Larger data stay a sample, and the page says so. */
const restLimit = 2 ** 24;
/** Time without a movement after which a control that was moved counts as resting. */
const restMilliseconds = 160;
/** Sections that are computed when the controls rest, one after the other, so that a change waits for one of them at most. */
const slowSections = ['ladder', 'clipping', 'codes'] as const satisfies readonly Section[];

/** Access of the loop to the state. */
export interface LoopEvents {
  openSections(): readonly Section[];
  draw(): void;
  drawRest(): void;
  rested(): void;
}

/** The next request. */
function wishOf({ settings, own, lineAt, row }: State, limit: number, open: readonly Section[]): ViewRequest {
  const id = settings.data === 'own' ? own?.id : undefined;
  return { settings, own: id, limit, widths: widthsNow(), lineAt, row, open };
}

/** Asks the worker for what the page shows, one view at a time. Changes that come meanwhile make one more view. */
export class Loop {
  readonly #client: Client;
  readonly #state: State;
  readonly #events: LoopEvents;
  readonly #region = byId('result', HTMLElement);
  #dirty = false;
  #running = false;
  #reading = false;
  /** Time of the last movement of a control. */
  #moved = Number.NEGATIVE_INFINITY;
  #rest: ReturnType<typeof setTimeout> | undefined;

  constructor(client: Client, state: State, events: LoopEvents) {
    this.#client = client;
    this.#state = state;
    this.#events = events;
  }

  /**
   * Requests a view after a change.
   * @param moving true if more such changes are likely to follow at once, as from a slider. Slow sections wait for their end.
   */
  readonly schedule = (moving = false): void => {
    if (moving) this.#moved = performance.now();
    this.#dirty = true;
    clearTimeout(this.#rest);
    this.#region.ariaBusy = 'true';
    void this.#run('live');
  };

  /** Starts or ends a read. The page is not at rest during one. */
  readonly setReading = (reading: boolean): void => {
    this.#reading = reading;
    if (reading) this.#region.ariaBusy = 'true';
    else this.schedule();
  };

  #ask(limit: number, open: readonly Section[]): Promise<NumbersView> {
    return this.#client.call('view', wishOf(this.#state, limit, open));
  }

  #quickSections(): readonly Section[] {
    return this.#events.openSections().filter((section) => !(slowSections as readonly Section[]).includes(section));
  }

  async #run(what: 'live' | 'rest'): Promise<void> {
    if (this.#running) return;
    this.#running = true;
    try {
      if (what === 'live') await this.#live();
      else await this.#atRest();
    } catch (error) {
      showProblem('settings', {
        title: 'The page stopped computing',
        text: `${asSentence(messageOf(error))} Load the page again. The link keeps the settings.`,
        action: { label: 'Load again', run: () => location.reload() },
      });
    } finally {
      this.#running = false;
    }
    clearTimeout(this.#rest);
    if (this.#dirty) void this.#run('live');
    else if (what === 'live') this.#rest = setTimeout(() => void this.#run('rest'), this.#untilRest());
  }

  /** Milliseconds to wait until a moving control counts as resting. */
  #untilRest(): number {
    return Math.max(0, this.#moved + restMilliseconds - performance.now());
  }

  /** Draws while controls move. */
  async #live(): Promise<void> {
    while (this.#dirty) {
      await new Promise(requestAnimationFrame);
      this.#dirty = false;
      this.#state.view = await this.#ask(liveLimit, this.#quickSections());
      this.#events.draw();
    }
  }

  /** Draws the slow sections, until something changes. */
  async #atRest(): Promise<void> {
    const { view } = this.#state;
    if (view?.result?.exact === false && countOf(view.data) <= restLimit) {
      this.#state.view = await this.#ask(restLimit, this.#quickSections());
      if (this.#dirty) return;
      this.#events.draw();
    }
    for (const section of slowSections) {
      if (this.#dirty || this.#state.view === undefined) return;
      if (!this.#events.openSections().includes(section)) continue;
      const { [section]: part } = await this.#ask(restLimit, [section]);
      if (part !== undefined) this.#state.view = { ...this.#state.view, [section]: part };
    }
    if (this.#dirty) return;
    this.#events.drawRest();
    this.#events.rested();
    this.#region.ariaBusy = String(this.#reading);
  }
}

import { byId } from '../shared/dom.js';
import { messageOf, showProblem } from '../shared/problems.js';
import type { Client } from './client.js';
import { countOf } from './data.js';
import { widthsNow } from './pictures.js';
import type { State } from './state.js';
import type { Section, View, Wish } from './view.js';

/** Most numbers that are quantized while a control moves. Of larger data a sample is taken. */
const liveLimit = 2 ** 18;
/** Most numbers that are quantized once the controls rest. Larger data stay a sample, and the page says so. */
const restLimit = 2 ** 24;
/** Time without a change after which the controls count as resting. */
const restMilliseconds = 160;
/** Sections that are computed when the controls rest, one after the other, so that a change waits for one of them at most. */
const slowSections = ['ladder', 'clipping', 'codes'] as const satisfies readonly Section[];

/** What the loop does with the state. */
export interface LoopEvents {
  openSections(): readonly Section[];
  draw(): void;
  drawRest(): void;
  rested(): void;
}

/** Asks the worker for what the page shows, one view at a time. Changes that come meanwhile make one more view. */
export interface Loop {
  schedule(): void;
  /** Something is being read, so the page is not at rest. */
  setReading(reading: boolean): void;
}

/** What to ask for. */
function wishOf({ settings, own, lineAt, row }: State, limit: number, open: readonly Section[]): Wish {
  const id = settings.data === 'own' ? own?.id : undefined;
  return { settings, own: id, limit, widths: widthsNow(), lineAt, row, open };
}

/** Starts the loop. Nothing is asked for before the first `schedule`. */
export function startLoop(client: Client, state: State, events: LoopEvents): Loop {
  const region = byId('result', HTMLElement);
  let dirty = false;
  let running = false;
  let reading = false;
  let rest: ReturnType<typeof setTimeout> | undefined;

  const ask = async (limit: number, open: readonly Section[]): Promise<View> => client.view(wishOf(state, limit, open));
  const quick = () =>
    events.openSections().filter((section) => !(slowSections as readonly Section[]).includes(section));

  const live = async () => {
    while (dirty) {
      await new Promise(requestAnimationFrame);
      dirty = false;
      state.view = await ask(liveLimit, quick());
      events.draw();
    }
  };
  const atRest = async () => {
    const { view } = state;
    if (view?.result?.exact === false && countOf(view.data) <= restLimit) {
      state.view = await ask(restLimit, quick());
      if (dirty) return;
      events.draw();
    }
    for (const section of slowSections) {
      if (dirty || state.view === undefined) return;
      if (!events.openSections().includes(section)) continue;
      const part = await ask(restLimit, [section]);
      state.view = { ...state.view, ...(part[section] !== undefined && { [section]: part[section] }) };
    }
    if (dirty) return;
    events.drawRest();
    events.rested();
    region.ariaBusy = String(reading);
  };
  const run = async (work: () => Promise<void>) => {
    if (running) return;
    running = true;
    try {
      await work();
    } catch (error) {
      showProblem('settings', {
        title: 'The page stopped computing',
        text: `${messageOf(error)}. Load the page again.`,
      });
    } finally {
      running = false;
    }
    clearTimeout(rest);
    if (dirty) void run(live);
    else if (work === live) rest = setTimeout(() => void run(atRest), restMilliseconds);
  };
  const schedule = () => {
    dirty = true;
    clearTimeout(rest);
    region.ariaBusy = 'true';
    void run(live);
  };
  const setReading = (now: boolean) => {
    reading = now;
    if (now) region.ariaBusy = 'true';
    else schedule();
  };
  return { schedule, setReading };
}

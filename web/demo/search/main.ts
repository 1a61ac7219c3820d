import { callWorker, isEnded } from '../shared/calls.js';
import { copy } from '../shared/copy.js';
import { onFrame } from '../shared/dom.js';
import { startDropping } from '../shared/drop.js';
import { FileError, isUnreadable, UnreadFile, unreadableText } from '../shared/file-error.js';
import { announce } from '../shared/live.js';
import { failureText } from '../shared/problems.js';
import { showCore, startSite } from '../shared/site.js';
import { pageRenderer } from '../shared/template.js';
import { figuresKey, pictureKey, type SearchStep } from './messages.js';
import { defaults, linkOf, readLink, type Settings } from './settings.js';
import { figuresText, pageView, type SearchEvents, type State, settled } from './view.js';
import type { SearchCalls } from './worker.js';

const state: State = { settings: readLink(location.hash), figures: new Map(), pictures: new Map() };
const render = pageRenderer();

const worker = callWorker<SearchCalls>(() => new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' }), {
  work: 'searches',
  onLost: fail,
});

let isDue = false;
/** Draws with the next frame. */
function redraw(): void {
  if (isDue) return;
  isDue = true;
  onFrame(() => {
    isDue = false;
    const settings = settled(state);
    // Results of the settings before stay until new ones arrive.
    state.lastFigures = state.figures.get(figuresKey(settings)) ?? state.lastFigures;
    const picture = state.pictures.get(pictureKey(settings));
    if (picture !== undefined) state.lastPicture = { picture, settings };
    render(pageView(state, events));
  });
}

function hear(step: SearchStep): void {
  if (step.kind === 'core') showCore(step.facts);
  else if (step.kind === 'doing') state.doing = step;
  else if (step.kind === 'data') state.data = step.facts;
  else if (step.kind === 'figures') {
    state.figures.set(step.key, step.figures);
    if (step.key === figuresKey(settled(state))) announce(figuresText(step.figures));
  } else state.pictures.set(step.key, step.picture);
  redraw();
}

function fail(error: unknown): void {
  if (isEnded(error)) return;
  state.problem = isUnreadable(error) ? unreadableText : failureText(error);
  worker.end();
  redraw();
}

/** Opens a file, or makes vectors. @param left count of other files that came with it */
function open(file?: File, left = 0): void {
  Object.assign(state, { data: undefined, doing: undefined, problem: undefined, left });
  Object.assign(state, { lastFigures: undefined, lastPicture: undefined });
  state.figures.clear();
  state.pictures.clear();
  // Ending the worker stops its work and frees its memory.
  worker.end();
  worker.call('open', { file, settings: state.settings }, hear).catch(fail);
  redraw();
}

/** Puts the settings into the address: once a slider rests, because browsers limit how often pages do so. */
const link = () => history.replaceState(history.state, '', linkOf(state.settings));

function change(part: Partial<Settings>): void {
  state.settings = { ...state.settings, ...part };
  if (state.problem === undefined) worker.call('want', state.settings, hear).catch(fail);
  const known = state.figures.get(figuresKey(settled(state)));
  if (known !== undefined) announce(figuresText(known));
  redraw();
}

const events: SearchEvents = {
  change,
  link,
  set(part) {
    change(part);
    link();
  },
  reset: () => events.set(defaults),
  copy: () => void copy(location.href, 'Link'),
  open,
};

startSite();
startDropping((files) => {
  const lost = files.find((file) => file instanceof UnreadFile);
  const file = files.find(({ name }) => /\.(npy|safetensors|jsonl?|ndjson)$/i.test(name)) ?? files[0];
  if (lost !== undefined) fail(new FileError(`${lost.name}: ${lost.why}`));
  else if (file !== undefined) open(file, files.length - 1);
});
addEventListener('hashchange', () => change(readLink(location.hash)));
open();

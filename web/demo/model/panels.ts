// The panels of the page *Your model*, and what opens models. Loaded when a visitor is about to open one.
import { byId, html, setName, setText } from '../shared/dom.js';
import type { ModelFile } from '../shared/files.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { showProblem } from '../shared/problems.js';
import { createStore } from '../shared/store.js';
import { startActions } from './actions-panel.js';
import { startBytes } from './bytes-panel.js';
import { infoOf, presetFormat, settingsIn, withPreset } from './choice.js';
import { startLookView } from './look-panel.js';
import { startOffers } from './offers-panel.js';
import { startOutputs } from './outputs-panel.js';
import { Runner } from './run.js';
import { ModelSession } from './session.js';
import { startMore } from './settings-panel.js';
import { startSeveral } from './several-panel.js';
import { startSizes } from './sizes-panel.js';
import { initialState, isPlanned, type State } from './state.js';
import { startStatistics } from './statistics-panel.js';
import { startTable } from './tensors-panel.js';
import { startWorst } from './worst-panel.js';

/** Draws the file: name, format, and its parts if there are several. */
function drawFile(model: ModelFile): void {
  const elements = model.tensors.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  setName(byId('model-name', HTMLElement), model.name);
  const facts = [
    infoOf(model.format).label,
    formatMany(model.tensors.length, 'tensor'),
    formatMany(elements, 'number'),
    formatBytes(model.files.reduce((sum, { size }) => sum + size, 0)),
  ];
  setText(byId('model-facts', HTMLElement), facts.join(' · '));
  const files = byId('model-files', HTMLDetailsElement);
  files.hidden = model.files.length < 2;
  setText(byId('model-files-count', HTMLElement), formatMany(model.files.length, 'file'));
  byId('model-files-list', HTMLElement).replaceChildren(
    ...model.files.map(({ name, size }) =>
      html('li', {}, name, html('span', { class: 'hint' }, ` ${formatBytes(size)}`)),
    ),
  );
}

/** Shows the model once it is planned. Until then the page stays as it was before, so that nothing moves while the plan is made. */
function drawOpened(state: State, before: State | undefined): void {
  const { model, opening, several } = state;
  const opened = byId('opened', HTMLElement);
  if (model !== before?.model) {
    opened.hidden = true;
    if (model !== undefined) drawFile(model);
  }
  const isNew = model !== undefined && opened.hidden && isPlanned(state);
  if (isNew) opened.hidden = false;
  const { classList } = document.body;
  const isOpen = model !== undefined && (!opened.hidden || classList.contains('has-model'));
  classList.toggle('has-model', isOpen || several !== undefined);
  const header = opening === undefined ? '' : `Reading the header of ${opening}…`;
  const waiting = model === undefined || !opened.hidden ? header : `Planning ${model.name}…`;
  setText(byId('opening', HTMLElement), waiting);
  if (isNew) {
    // Scroll the file into view: the page may be scrolled, and the window small.
    byId('model-name', HTMLElement).focus({ preventScroll: true });
    opened.scrollIntoView({ block: 'start' });
  } else if (model === undefined && before?.model !== undefined) byId('choose', HTMLButtonElement).focus();
}

/** Says which settings the address carries, as long as no model is open. */
function drawLinked({ model }: State, before: State | undefined): void {
  if (before !== undefined && model === before.model) return;
  const carried = model === undefined ? settingsIn(location.hash) : [];
  byId('linked', HTMLElement).hidden = carried.length === 0;
  setText(
    byId('linked-words', HTMLElement),
    `This link carries settings: ${carried.join(', ')}. They apply to the model that you open.`,
  );
}

function drawProblem({ problem, model }: State, before: State | undefined): void {
  if (problem === before?.problem) return;
  showProblem(model === undefined ? 'file' : 'settings', problem);
  if (model === undefined) return;
  showProblem('file');
  // Messages are above the model, which may be scrolled away.
  if (problem !== undefined) byId('problems', HTMLElement).scrollIntoView({ block: 'nearest' });
}

/** Looks at a tensor. On a narrow window its panel is above the table, so it comes into view. */
function lookAt(session: ModelSession, name: string): void {
  session.look(name);
  requestAnimationFrame(() => {
    const panel = byId('look', HTMLElement);
    // Beside the table it is in view. Above it, it may be taller than the window, so its top decides.
    const isBeside = matchMedia('(min-width: 64rem)').matches;
    const { top } = panel.getBoundingClientRect();
    if (!isBeside || top < 0 || top > innerHeight / 2) panel.scrollIntoView({ block: 'start' });
    byId('look-name', HTMLElement).focus({ preventScroll: true });
  });
}

type Draw = (state: State, before: State | undefined) => void;

/** Ways to open models. */
export interface Opening {
  /** Opens files that were chosen. */
  open(files: readonly File[]): void;
  /** Opens files that were dropped, unless a panel takes them as data for the open model. */
  drop(files: readonly File[]): void;
}

/** Starts the panels. */
export function startPanels(): Opening {
  // Make the state and what changes it.
  const parts: Draw[] = [];
  const store = createStore(initialState, (state, before) => {
    for (const part of parts) part(state, before);
  });
  const session = new ModelSession(store);
  const runner = new Runner(store, session);
  const tensorEvents = { look: (name: string) => lookAt(session, name), keep: (name: string) => session.keep(name) };
  const outputs = startOutputs({ options: (model, choice) => session.options(model, choice) }, store.get);
  const onPreset = startOffers((preset) => {
    const { model, choice } = store.get();
    if (model === undefined || choice === undefined) return;
    const format = presetFormat(model, choice.to);
    session.choose(withPreset(format, choice, preset));
  });
  // Start the panels.
  parts.push(
    drawOpened,
    drawLinked,
    drawProblem,
    onPreset,
    startMore({ choose: (choice) => session.choose(choice) }, store.get),
    startActions(
      {
        start: () => void runner.start(),
        cancel: () => runner.cancel(),
        again: () => session.quantizeAgain(),
        undoKeep: () => session.undoKeep(),
      },
      store.get,
    ),
    startSizes(
      {
        measure: () => session.measureSizes(),
        cancel: () => session.cancelSizes(),
        choose: (size) => session.chooseSize(size),
      },
      store.get,
    ),
    startBytes(
      { options: (model, choice) => session.options(model, choice), choose: (choice) => session.choose(choice) },
      store.get,
    ),
    startStatistics((choice) => session.choose(choice), store.get),
    startSeveral(
      {
        open: (files) => void session.open(files),
        close: () => session.close(),
        begin: (cancel) => session.shown.begin(cancel),
        end: () => session.shown.end({ kind: 'none' }),
      },
      store.get,
    ),
    startWorst(tensorEvents),
    startTable(store, tensorEvents),
    startLookView((change) => session.compare(change), store.get),
    outputs.draw,
  );
  byId('close', HTMLButtonElement).addEventListener('click', () => session.close());
  store.set({});
  return {
    open: (files) => void session.open(files),
    drop(files) {
      if (!outputs.take(files)) void session.open(files);
    },
  };
}

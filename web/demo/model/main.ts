// Starts the page *Your model* and its panels.
import { presetTarget } from 'scalepoint/model';
import { byId, html, setName, setText } from '../shared/dom.js';
import { startDropping } from '../shared/drop.js';
import { formatBytes, formatMany } from '../shared/format.js';
import { takeFiles } from '../shared/handover.js';
import { messageOf, showProblem } from '../shared/problems.js';
import { sampleFile } from '../shared/sample.js';
import { startSite } from '../shared/site.js';
import { createStore } from '../shared/store.js';
import { startActions } from './actions-panel.js';
import { formatFor, infoOf, settingsIn, withTarget } from './choice.js';
import { startOffers } from './offers-panel.js';
import { Runner } from './run.js';
import { ModelSession } from './session.js';
import { startMore } from './settings-panel.js';
import { initialState, type State } from './state.js';
import { startTable } from './tensors-panel.js';
import { startWorst } from './worst-panel.js';

/** Draws the file: name, format, and its parts if there are several. */
function drawFile(state: State, before: State | undefined): void {
  const { model, opening } = state;
  document.body.classList.toggle('has-model', model !== undefined || state.several !== undefined);
  byId('opened', HTMLElement).hidden = model === undefined;
  setText(byId('opening', HTMLElement), opening === undefined ? '' : `Reading the header of ${opening}…`);
  if (model === before?.model) return;
  if (model === undefined) {
    if (before?.model !== undefined) byId('choose', HTMLButtonElement).focus();
    return;
  }
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
  // Scroll the file into view: the page may be scrolled, and the window small.
  const name = byId('model-name', HTMLElement);
  name.focus({ preventScroll: true });
  byId('opened', HTMLElement).scrollIntoView({ block: 'start' });
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

/** Forgets the settings of the address. */
function startLinked(): void {
  byId('linked-forget', HTMLButtonElement).addEventListener('click', () => {
    history.replaceState(history.state, '', location.pathname);
    byId('linked', HTMLElement).hidden = true;
    byId('choose', HTMLButtonElement).focus();
  });
}

function drawProblem({ problem, model }: State, before: State | undefined): void {
  if (problem === before?.problem) return;
  showProblem(model === undefined ? 'file' : 'settings', problem);
  if (model !== undefined) showProblem('file');
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

/** A part of the page that is loaded when it is first wanted: with the first model. @param load sets it up, and returns what draws it */
function later(
  load: () => Promise<Draw>,
  current: () => State,
  isWanted = ({ model }: State) => model !== undefined,
): Draw {
  let draw: Draw | undefined;
  let isLoading = false;
  const start = async () => {
    draw = await load();
    draw(current(), undefined);
  };
  return (state, before) => {
    draw?.(state, before);
    if (!isWanted(state) || isLoading) return;
    isLoading = true;
    // Without a network, the page does without the part.
    void start().catch(() => {});
  };
}

function startChoosing(session: ModelSession, takes: (files: readonly File[]) => boolean): void {
  const picker = byId('file', HTMLInputElement);
  for (const id of ['choose', 'another']) {
    byId(id, HTMLButtonElement).addEventListener('click', () => picker.click());
  }
  picker.addEventListener('change', () => {
    const files = [...(picker.files ?? [])];
    // Cleared, so that choosing the same file again is a change.
    picker.value = '';
    if (files.length > 0) void session.open(files);
  });
  byId('sample', HTMLButtonElement).addEventListener('click', () => {
    sampleFile().then(
      (file) => session.open([file]),
      (error: unknown) => showProblem('file', { title: 'The sample could not be loaded', text: messageOf(error) }),
    );
  });
  byId('close', HTMLButtonElement).addEventListener('click', () => session.close());
  startDropping((files) => {
    if (!takes(files)) void session.open(files);
  });
}

function start(): void {
  startSite();
  // Make the state and what changes it.
  const parts: Draw[] = [];
  const store = createStore(initialState, (state, before) => {
    for (const part of parts) part(state, before);
  });
  const session = new ModelSession(store);
  const runner = new Runner(store, session);
  const tensorEvents = { look: (name: string) => lookAt(session, name), keep: (name: string) => session.keep(name) };
  let takesData: (files: readonly File[]) => boolean = () => false;
  const onPreset = startOffers((preset) => {
    const { model, choice } = store.get();
    if (model === undefined || choice === undefined) return;
    session.choose(withTarget(formatFor(model, choice.to), choice, presetTarget(formatFor(model, choice.to), preset)));
  });
  // Start the panels; some are loaded when first needed.
  parts.push(
    drawFile,
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
    later(async () => {
      const { startSizes } = await import('./sizes-panel.js');
      const events = {
        measure: () => session.measureSizes(),
        cancel: () => session.cancelSizes(),
        choose: (size: string) => session.chooseSize(size),
      };
      return startSizes(events, store.get);
    }, store.get),
    later(async () => {
      const { startBytes } = await import('./bytes-panel.js');
      return startBytes(
        { options: (choice) => session.options(choice), choose: (choice) => session.choose(choice) },
        store.get,
      );
    }, store.get),
    later(async () => {
      const { startStatistics } = await import('./statistics-panel.js');
      return startStatistics((choice) => session.choose(choice), store.get);
    }, store.get),
    later(
      async () => {
        const { startSeveral } = await import('./several-panel.js');
        const events = {
          open: (files: readonly File[]) => void session.open(files),
          close: () => session.closeSeveral(),
        };
        return startSeveral(events, store.get);
      },
      store.get,
      ({ several }) => several !== undefined,
    ),
    startWorst(tensorEvents),
    startTable(store, tensorEvents),
    later(async () => {
      const { startLookView } = await import('./look-panel.js');
      return startLookView((change) => session.compare(change), store.get);
    }, store.get),
    later(async () => {
      const { startOutputs } = await import('./outputs-panel.js');
      const { draw, take } = startOutputs({ options: (choice) => session.options(choice) }, store.get);
      takesData = take;
      return draw;
    }, store.get),
  );
  startLinked();
  store.set({});
  // Take files that another page handed over.
  startChoosing(session, (files) => takesData(files));
  const files = takeFiles();
  if (files !== undefined) void session.open(files);
}

start();

// The panels of the page *Your model*, and what opens models. Loaded when a visitor is about to open one.
import { byId, setText } from '../shared/dom.js';
import { type ModelFile, titleOf } from '../shared/files.js';
import { formatBytes, formatMany } from '../shared/format.js';
import type { KeptModel } from '../shared/kept.js';
import { showProblem } from '../shared/problems.js';
import { takeSampleData } from '../shared/sample.js';
import { createStore } from '../shared/store.js';
import { breakable, html, nothing, render, renderWithFocus, type TemplateResult } from '../shared/template.js';
import { notesText, reportView, savedView, saveView } from './actions-panel.js';
import { BytesPanel } from './bytes-panel.js';
import { infoOf, settingsIn } from './choice.js';
import { LookPanel } from './look-panel.js';
import { offersNothing, offersView } from './offers-panel.js';
import { OutputsPanel } from './outputs-panel.js';
import { ProgramsPanel } from './programs-panel.js';
import { PushPanel } from './push-panel.js';
import { Runner } from './run.js';
import { ModelSession } from './session.js';
import { SettingsPanel } from './settings-panel.js';
import { SeveralPanel } from './several-panel.js';
import { countNumbers, totalBytes } from './sizes.js';
import { SizesPanel } from './sizes-panel.js';
import { initialState, isOpen, isPlanned, isSaving, type OpenState, type State } from './state.js';
import { StatisticsPanel } from './statistics-panel.js';
import { rememberedColumns, TensorsPanel } from './tensors-panel.js';
import { worstView } from './worst-panel.js';
import { WritePanel } from './write-panel.js';

/** The file: name, format, and its parts if there are several. */
function fileView(model: ModelFile, session: ModelSession): TemplateResult {
  const { format, tensors, files, hub } = model;
  const facts = [
    infoOf(format).label,
    formatMany(tensors.length, 'tensor'),
    formatMany(
      tensors.reduce((sum, { shape }) => sum + countNumbers(shape), 0),
      'number',
    ),
    formatBytes(totalBytes(files)),
    ...(hub === undefined ? [] : [`${hub.name} on ${hub.host}`]),
  ];
  return html`
    <div class="file-head">
      <div class="file-name">
        <h1 id="model-name" tabindex="-1">${breakable(titleOf(model))}</h1>
        <p class="hint" id="model-facts">${facts.join(' · ')}</p>
        <details class="more" id="model-files" ?hidden=${files.length < 2}>
          <summary id="model-files-count">${formatMany(files.length, 'file')}</summary>
          <ul id="model-files-list">${files.map(
            ({ name, size }) => html`<li>${name}<span class="hint"> ${formatBytes(size)}</span></li>`,
          )}</ul>
        </details>
      </div>
      <div class="row">
        <button type="button" id="another" @click=${() => byId('choose', HTMLButtonElement).click()}>Another file…</button>
        <button type="button" id="close" @click=${() => session.close()}>Close</button>
      </div>
    </div>`;
}

/** Says which settings the address carries, as long as no model is open. */
function drawLinked({ model }: State): void {
  const carried = model === undefined ? settingsIn(location.hash) : [];
  byId('linked', HTMLElement).hidden = carried.length === 0;
  setText(
    byId('linked-words', HTMLElement),
    `This link carries settings: ${carried.join(', ')}. They apply to the model that you open.`,
  );
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

/** Ways to open models. */
export interface Opening {
  /** Opens files that were chosen. */
  open(files: readonly File[]): void;
  /** Opens files that were dropped, unless a panel takes them as data for the open model. */
  drop(files: readonly File[]): void;
  /** Opens something that was open before. */
  reopen(kept: KeptModel): void;
  /** Opens a model of the hub. @param endpoint address of the hub */
  openHub(name: string, endpoint: string): void;
}

/** Starts the panels. */
export function startPanels(): Opening {
  /** Data that the open model came with, which it takes once it is drawn. */
  let given: readonly File[] | undefined;
  const columns = rememberedColumns();
  const store = createStore({ ...initialState, columns }, draw);
  const redraw = () => store.set({});
  const session = new ModelSession(store);
  const runner = new Runner(store, session);
  const events = { look: (name: string) => lookAt(session, name), keep: (name: string) => session.keep(name) };
  const sizes = new SizesPanel(session, redraw);
  const outputs = new OutputsPanel(session, redraw);
  const writing = new WritePanel(session, outputs, redraw);
  const programs = new ProgramsPanel(session, redraw);
  const bytes = new BytesPanel(session, redraw);
  const settings = new SettingsPanel(session, redraw);
  const statistics = new StatisticsPanel(session, store.get, redraw);
  const tensors = new TensorsPanel(store, events);
  const look = new LookPanel(session, redraw);
  const several = new SeveralPanel(session, redraw);
  const push = new PushPanel(session, store.get, redraw);

  /** The page below its head, while a model is open. */
  const openView = (state: OpenState) => html`
    ${fileView(state.model, session)}
    <div class="decide">
      ${offersNothing(state) ? nothing : programs.view(state, () => offersView(state, session))}
      ${saveView(state, session, runner)}
      ${offersNothing(state) ? nothing : sizes.view(state)}
    </div>
    <div class="linked" id="ask-measure" ?hidden=${state.measuring !== 'asks'}>
      <p>Errors are not measured yet: that downloads numbers from ${state.model.hub?.host}.</p>
      <button type="button" class="small" id="measure-errors" data-next="#model-run" ?disabled=${isSaving(state.run)} @click=${() => session.measureErrors()}>Measure the errors</button>
    </div>
    <p class="hint" id="model-notes">${notesText(state)}</p>
    ${savedView(state, { panel: push.view(state), button: push.button(state) })}
    ${outputs.view(state)}
    ${writing.view(state)}
    ${bytes.view(state)}
    ${settings.view(state, statistics.view(state))}
    <div class="bench">
      <div class="bench-list">
        ${worstView(state, events)}
        ${tensors.view(state, reportView(state, outputs.sameTopOf(state.choice)))}
      </div>
      ${look.view(state)}
    </div>`;

  const [opened, list, problems, choose] = ['opened', 'several', 'problems', 'choose'].map((id) =>
    byId(id, HTMLElement),
  ) as [HTMLElement, HTMLElement, HTMLElement, HTMLElement];

  function draw(state: State, before: State | undefined): void {
    const { model, opening, several: models, problem, run } = state;
    // The model shows once it is planned. Until then the page stays as it was, so that nothing moves while the plan is made.
    if (model !== before?.model) opened.hidden = true;
    const isNew = model !== undefined && opened.hidden && isPlanned(state);
    if (isNew) opened.hidden = false;
    list.hidden = models === undefined;
    statistics.follow(model);
    if (before?.run.kind === 'saved' && run !== before.run) before.run.saved.drop();
    if (!isOpen(state)) {
      outputs.rest();
      writing.rest();
    }
    renderWithFocus(() => {
      render(isOpen(state) ? openView(state) : nothing, opened);
      render(models === undefined ? nothing : several.view(models), list);
    });
    if (model !== before?.model) given = model && takeSampleData(model.files);
    if (given !== undefined && outputs.take(given)) given = undefined;
    const { classList } = document.body;
    const hasModel = model !== undefined && (!opened.hidden || classList.contains('has-model'));
    classList.toggle('has-model', hasModel || models !== undefined);
    const header = opening === undefined ? '' : `Reading the header of ${opening}…`;
    const waiting = model === undefined || !opened.hidden ? header : `Planning ${titleOf(model)}…`;
    setText(byId('opening', HTMLElement), waiting);
    if (model !== before?.model || before === undefined) drawLinked(state);
    // Show what is wrong. Messages are above the model, which may be scrolled away.
    if (problem !== before?.problem) {
      showProblem(model === undefined ? 'file' : 'settings', problem);
      if (model !== undefined) {
        showProblem('file');
        if (problem !== undefined) problems.scrollIntoView({ block: 'nearest' });
      }
    }
    // Leaving would end the work.
    globalThis.onbeforeunload = isSaving(run) || state.isPushing ? (event) => event.preventDefault() : null;
    // Move the focus with the page.
    const works = isSaving(run);
    const focus = (id: string) => byId(id, HTMLElement).focus({ preventScroll: true });
    if (isNew) {
      focus('model-name');
      // The page may be scrolled, and the window small. What is wrong stands above the model.
      (problem === undefined ? opened : problems).scrollIntoView({ block: 'start' });
    } else if (models !== undefined && models !== before?.several) focus('several-title');
    else if (model === undefined && models === undefined && (before?.model ?? before?.several) !== undefined)
      choose.focus();
    else if (model !== undefined && works !== isSaving(before?.run ?? run) && document.activeElement === document.body)
      focus(works ? 'model-cancel' : 'model-run');
  }

  store.set({});
  return {
    open: (files) => void session.open(files),
    drop(files) {
      if (!outputs.take(files)) void session.open(files);
    },
    reopen: (kept) => void session.reopen(kept),
    openHub: (name, endpoint) => void session.openHub(name, endpoint),
  };
}

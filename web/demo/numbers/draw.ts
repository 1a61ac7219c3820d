import { byId, showFacts } from '../shared/dom.js';
import { showProblem } from '../shared/problems.js';
import { html, render } from '../shared/template.js';
import { showClipping } from './clipping.js';
import type { Controls } from './controls.js';
import { explainQuantizing, type WaysOut } from './explain.js';
import { ladderRows } from './ladder.js';
import { showBar, showCurves, showErrors, showHistogram, showLine } from './pictures.js';
import { dataFacts, resultFacts } from './results.js';
import type { Settings } from './settings.js';
import { snippet } from './snippet.js';
import type { State } from './state.js';
import { showTable } from './table.js';
import { showTwin } from './twin.js';

/** Draws the page. */
export function draw(state: State, controls: Controls, ways: WaysOut): void {
  const { view } = state;
  if (view === undefined) return;
  const { failure, settings, statistics, data } = view;
  showProblem('settings', failure && explainQuantizing(failure, statistics, settings, ways));
  document.body.classList.toggle('failed', view.result === undefined);
  controls.show(state.settings, { shape: data.shape, parts: view.partCount });
  showFacts({ ...dataFacts(view), ...resultFacts(view), snippet: snippet(data, settings) });
  showHistogram(view);
  showBar(view, state.bar);
  showLine(view);
  showErrors(view);
  showTable(view);
  if (byId('twin', HTMLDetailsElement).open) showTwin(view.part?.levels, view.codeCounts, view.bars);
}

/** Draws the sections that are computed when the controls rest. */
export function drawRest({ view, settings }: State, choose: (settings: Settings) => void): void {
  if (view === undefined) return;
  if (view.result === undefined || view.ladder !== undefined) {
    showFacts({ 'ladder-basis': view.ladder?.basis ?? 'the same numbers' });
    render(ladderRows(view.ladder, settings, choose), byId('ladder', HTMLElement));
  }
  showClipping(view.clipping, view);
  showCurves(view);
  const legend = view.codes?.map(({ name, style }) => html`<li class="style-${style}">${name}</li>`);
  if (legend !== undefined) render(legend, byId('codes-legend', HTMLElement));
}

import {
  formatBytes,
  formatCode,
  formatCount,
  formatDecibels,
  formatMany,
  formatReal,
  formatShare,
} from '../shared/format.js';
import { html, nothing, type TemplateResult } from '../shared/template.js';
import { countOf } from './data.js';
import { partWord, typeName } from './settings.js';
import type { NumbersView, Result } from './view.js';

/** A figure as text for people, with its exact value in the `value` attribute for programs. A dash without a value. */
const figureView = (id: string, value: number | undefined, format: (value: number) => string): TemplateResult =>
  html`<data id=${id} value=${value ?? nothing}>${value === undefined ? '–' : format(value)}</data>`;

/** The largest error in steps, or the kind of parts with the worst of them. */
function stepsText({ parts, firstScale, comparison }: Result, settings: NumbersView['settings']): string {
  if (parts.count > 1) return `the worst of ${formatMany(parts.count, partWord(settings))}`;
  if (settings.codes !== 'integers' || firstScale === undefined) return '';
  const steps = comparison.maxAbsoluteError / firstScale;
  return steps > 1 ? `${formatReal(steps, 3)} steps` : `${formatReal(steps, 2)} of a step`;
}

/** The numbers that were measured, in words. */
function basisText({ exact, used }: Result, count: number): string {
  if (!exact) return `a sample: ${formatCount(used)} of ${formatCount(count)}`;
  return used === 1 ? 'one number' : `all ${formatCount(used)} numbers`;
}

const formatRatio = (ratio: number) => `${formatReal(ratio, 3)}×`;

/** The four figures that matter most. */
export function figuresPanel(view: NumbersView | undefined): TemplateResult {
  const result = view?.result;
  const { comparison, bytes } = result ?? {};
  const basis = result === undefined || view === undefined ? '…' : basisText(result, countOf(view.data));
  return html`<section class="figures-panel" aria-labelledby="figures-title">
    <h2 id="figures-title" class="hidden">What it costs, what it saves</h2>
    <dl class="figures">
      <div class="key-figure"><dt>SQNR</dt><dd>${figureView('figure-sqnrDb', comparison?.sqnrDb, formatDecibels)}</dd><dd class="hint">signal over noise</dd></div>
      <div class="key-figure"><dt>Largest error</dt><dd>${figureView('figure-maxAbsoluteError', comparison?.maxAbsoluteError, formatReal)}</dd><dd class="hint">${result && view && stepsText(result, view.settings)}</dd></div>
      <div class="key-figure"><dt>Smaller by</dt><dd>${figureView('figure-ratio', bytes?.ratio, formatRatio)}</dd><dd class="hint">${bytes && `${formatBytes(bytes.before)} become ${formatBytes(bytes.after)}`}</dd></div>
      <div class="key-figure"><dt>Bits per number</dt><dd>${figureView('figure-bitsPerWeight', bytes?.bitsPerWeight, formatReal)}</dd><dd class="hint">with scales and zero points</dd></div>
    </dl>
    <p class="badge" ?hidden=${view !== undefined && result === undefined}>Measured on <span id="basis">${basis}</span></p>
  </section>`;
}

/** Six more measures of the error. */
export function measuresView(result: Result | undefined): TemplateResult {
  const measure = (name: 'mse' | 'rmse' | 'meanAbsoluteError' | 'relativeL2' | 'cosine', label: string) =>
    html`<div><dt>${label}</dt><dd>${figureView(`figure-${name}`, result?.comparison[name], (value) => formatReal(value, name === 'cosine' ? 6 : 4))}</dd></div>`;
  return html`<dl class="figures small">
    ${measure('mse', 'MSE')}${measure('rmse', 'RMSE')}${measure('meanAbsoluteError', 'Mean |error|')}${measure('relativeL2', 'Relative L2')}${measure('cosine', 'Cosine')}
    <div><dt>Clipped</dt><dd>${figureView('figure-clipped', result?.clipped, formatShare)}</dd></div>
  </dl>`;
}

/** The table of the bytes before and after. */
export function bytesView(view: NumbersView | undefined): TemplateResult {
  const result = view?.result;
  const bytes = result?.bytes;
  const scales = result?.exact ? `${formatMany(result.parts.count, 'scale')}, float32` : 'Scales, float32';
  const always = result?.firstZeroPoint === undefined ? 'none' : `always ${formatCode(result.firstZeroPoint)}`;
  const row = (name: 'before' | 'codes' | 'scales' | 'zeroPoints' | 'after', label: string) =>
    html`<tr><th scope="row">${label}</th><td class="number">${figureView(`bytes-${name}`, bytes?.[name], formatBytes)}</td></tr>`;
  return html`<table class="bytes">
    <tbody>
      ${row('before', view === undefined ? 'Before' : `Before, ${view.data.stored.name}`)}
      ${row('codes', 'Codes, packed')}
      ${row('scales', view?.settings.codes === 'blocks' ? 'Scales: part of the blocks' : result ? scales : 'Scales')}
      ${row('zeroPoints', bytes?.zeroPoints === 0 ? `Zero points: ${always}` : 'Zero points')}
    </tbody>
    <tfoot>${row('after', 'After')}</tfoot>
  </table>`;
}

/** The result in one sentence, for screen readers. */
export function sentence({ settings, result }: NumbersView): string {
  if (result === undefined) return '';
  const { comparison, bytes, exact } = result;
  const how =
    settings.codes === 'integers'
      ? [typeName(settings), settings.scheme, settings.granularity].join(', ')
      : settings.codes === 'blocks'
        ? typeName(settings)
        : `${typeName(settings)}, ${settings.granularity}`;
  return `${how}: SQNR ${formatDecibels(comparison.sqnrDb)}, largest error ${formatReal(comparison.maxAbsoluteError, 3)}, ${formatReal(bytes.ratio, 3)} times smaller${exact ? '' : ', measured on a sample'}.`;
}

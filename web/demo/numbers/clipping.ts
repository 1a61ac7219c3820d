import { byId, showFacts } from '../shared/dom.js';
import { formatCount, formatDecibels, formatMany, formatReal, formatShare } from '../shared/format.js';
import { drawLines } from '../shared/lines.js';
import { html, render } from '../shared/template.js';
import type { ClippingView, NumbersView } from './view.js';

/** Numbers of a part below which entropy keeps all of them: as many as its histogram has bins. */
const fewForEntropy = 2048;

/** Caption of the curve: the gain of clipping. */
function captionOf({ marks, length }: ClippingView, clipped: number): string {
  const first = 'Smaller steps err less inside and clip more outside.';
  const best = marks.reduce((a, b) => (b.y > a.y ? b : a));
  const gain = best.y - marks[0]!.y;
  if (!(Number.isFinite(gain) && gain > 0.005)) return `${first} Here nothing is gained by clipping.`;
  const name = `${best.label[0]?.toUpperCase()}${best.label.slice(1)}`;
  const now = clipped > 0 ? `, and ${formatShare(clipped / length)} is clipped now` : '';
  return `${first} ${name} gains ${formatReal(gain, 3)} dB over min-max here${now}.`;
}

/** Note about entropy, which gains nothing on few numbers. */
const entropyNote = ({ length }: ClippingView) =>
  length < fewForEntropy
    ? ` Entropy equals min-max here: it compares histograms of ${formatCount(fewForEntropy)} bins, and with ${formatMany(length, 'number')} most bins are empty.`
    : '';

/** Draws SQNR against the scale, and fills the table of range methods. */
export function showClipping(clipping: ClippingView | undefined, { settings, part }: NumbersView): void {
  const isInteger = settings.codes === 'integers';
  const node = byId('clipping', SVGSVGElement);
  node.toggleAttribute('hidden', !isInteger);
  showFacts({
    'methods-table': { hidden: !isInteger },
    ...(!isInteger && {
      'clipping-caption':
        'Only integers have a range to choose. Lists of values and blocks take their scale from the largest number.',
    }),
    ...(isInteger &&
      clipping && { 'clipping-caption': captionOf(clipping, part?.clipped ?? 0) + entropyNote(clipping) }),
  });
  if (!isInteger || clipping === undefined) return;
  const { width, height } = node.getBoundingClientRect();
  const { points, marks } = clipping;
  const text = marks.map(({ label, x, y }) => `${label}: ${formatReal(x, 3)} % of the range, ${formatDecibels(y)}`);
  drawLines(
    node,
    {
      series: [{ name: 'clipping', style: 0, points }],
      marks,
      unit: '% of the min-max step',
      width: Math.round(width),
      height: Math.round(height),
    },
    'SQNR against the size of the step',
    `${text.join('. ')}.`,
  );
  const rows = marks.map(
    ({ method, label, x, y }) => html`<tr class=${method === settings.range ? 'current' : ''}
      ><th scope="row">${label}</th><td class="number">${formatReal(x, 4)}\u00a0%</td><td class="number">${formatDecibels(y)}</td></tr>`,
  );
  render(rows, byId('methods', HTMLElement));
}

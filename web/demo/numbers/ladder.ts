import { byId, html, setText } from '../shared/dom.js';
import { formatBytes, formatDecibels, formatReal } from '../shared/format.js';
import type { Settings } from './settings.js';
import type { NumbersView, Rung } from './view.js';

/** SQNR in dB at which a bar fills its cell. 16 bits reach about 90 dB. */
const fullBar = 96;

const isCurrent = ({ change }: Rung, { codes, bits, block }: Settings) =>
  change.codes === codes &&
  (codes !== 'integers' || change.bits === bits) &&
  (codes !== 'blocks' || change.block === block);

/** The settings with the type of a row. Rows of other kinds than integers leave the width of integers alone. */
const changed = (settings: Settings, { change: { codes, bits, block } }: Rung): Settings => ({
  ...settings,
  codes,
  ...(codes === 'integers' && { bits }),
  ...(codes === 'blocks' && { block }),
});

function rowOf(rung: Rung, settings: Settings, choose: (settings: Settings) => void): HTMLTableRowElement {
  const current = isCurrent(rung, settings);
  const key = rung.change.codes === 'integers' ? String(rung.change.bits) : rung.name;
  const button = html(
    'button',
    { type: 'button', class: 'link', 'data-bits': key, 'aria-pressed': String(current) },
    rung.name,
  );
  button.addEventListener('click', () => choose(changed(settings, rung)));
  const bar = html('span', { class: 'bar-fill' });
  const share = rung.sqnrDb === Number.POSITIVE_INFINITY ? 1 : Math.max(0, Math.min(1, rung.sqnrDb / fullBar));
  bar.style.setProperty('--share', String(share || 0));
  const text = html('span', {}, formatDecibels(rung.sqnrDb));
  return html(
    'tr',
    { class: current ? 'current' : false },
    html('th', { scope: 'row' }, button),
    html('td', { class: 'grow' }, html('span', { class: 'meter' }, bar, text)),
    html('td', { class: 'number' }, formatReal(rung.bytes.bitsPerWeight, 3)),
    html('td', { class: 'number size' }, formatBytes(rung.bytes.after)),
  );
}

/** Shows SQNR and bytes of every type in a table with bars. */
export function showLadder(
  ladder: NumbersView['ladder'],
  settings: Settings,
  choose: (settings: Settings) => void,
): void {
  const body = byId('ladder', HTMLElement);
  setText(byId('ladder-basis', HTMLElement), ladder?.basis ?? 'the same numbers');
  // Replacing the rows drops the focus of a button, so it is restored below.
  const focused = document.activeElement instanceof HTMLButtonElement ? document.activeElement.dataset.bits : undefined;
  body.replaceChildren(...(ladder?.rungs ?? []).map((rung) => rowOf(rung, settings, choose)));
  if (focused !== undefined) body.querySelector<HTMLElement>(`[data-bits="${focused}"]`)?.focus();
}

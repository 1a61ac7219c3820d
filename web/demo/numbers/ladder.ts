import { formatBytes, formatDecibels, formatReal } from '../shared/format.js';
import { html, type TemplateResult } from '../shared/template.js';
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

/** SQNR and bytes of every type, as rows of a table with bars. */
export function ladderRows(
  ladder: NumbersView['ladder'],
  settings: Settings,
  choose: (settings: Settings) => void,
): readonly TemplateResult[] {
  return (ladder?.rungs ?? []).map((rung) => {
    const { change, name, sqnrDb, bytes } = rung;
    const isChosen = isCurrent(rung, settings);
    const share = sqnrDb === Number.POSITIVE_INFINITY ? 1 : Math.max(0, Math.min(1, sqnrDb / fullBar)) || 0;
    return html`<tr class=${isChosen ? 'current' : ''}
      ><th scope="row"><button type="button" class="link" data-bits=${change.codes === 'integers' ? change.bits : name} aria-pressed=${String(isChosen)}
        @click=${() => choose(changed(settings, rung))}>${name}</button></th
      ><td class="grow"><span class="meter"><span class="bar-fill" .style=${`--share: ${share}`}></span><span>${formatDecibels(sqnrDb)}</span></span></td
      ><td class="number">${formatReal(bytes.bitsPerWeight, 3)}</td
      ><td class="number size">${formatBytes(bytes.after)}</td></tr>`;
  });
}

// Panel of the three presets.
import { type Preset, presets } from '../../src/tooling.js';
import { formatBytes } from '../shared/format.js';
import { html, live, nothing, remembered, type TemplateResult } from '../shared/template.js';
import { infoOf, presetFormat } from './choice.js';
import type { ModelSession } from './session.js';
import { isSaving, type Offer, type OpenState, quantizedFile, totalSqnr } from './state.js';
import { closeness, presetTitles, shortDecibels } from './wording.js';

/** SQNR in dB at which the meter of a card is full. */
const fullMeter = 60;

/** The smallest saving that makes a preset worth offering, as a share of the file. */
const leastGain = 0.01;

/** True if a preset hardly makes the file smaller. */
function changesNothing({ converted, bytesAfter = 0, bytesBefore = 0 }: Offer): boolean {
  return converted === 0 || bytesAfter > bytesBefore * (1 - leastGain);
}

const foundQuantized = remembered(
  (model: OpenState['model'], plan: OpenState['plan'], offers: OpenState['offers'], isQuantized: boolean) =>
    quantizedFile({ model, plan, offers, isQuantized }),
);

/** Facts about a file that is quantized already; undefined for others, and once the visitor wants it quantized again. */
export const findQuantized = ({ model, plan, offers, isQuantized }: OpenState) =>
  foundQuantized(model, plan, offers, isQuantized);

/** True for a file that is quantized already, if no preset has anything to offer for it. */
export const offersNothing = (state: OpenState): boolean =>
  presets.every((preset) => {
    const offer = state.offers[preset];
    return offer?.isQuantized === true || (offer?.bytesAfter !== undefined && changesNothing(offer));
  }) && findQuantized(state) !== undefined;

/** The reason why a preset leaves the file as it is. */
function whyNothing({ to, converted = 0 }: Offer, { model }: OpenState): string {
  if (converted > 0) return 'Hardly smaller: the tensors are so small that their names and scales outweigh them.';
  // Shapes and indices are not weights.
  const types = [...new Set(model.tensors.map(({ dtype }) => dtype))].filter(
    (type) => !/^([IU](16|32|64)|BOOL)$/.test(type),
  );
  // Floats are what a file has already only where the preset stores floats of 16 bits.
  const isHalf = /^(bf|f|fp|bfloat|float)16$/i.test(to);
  if (types.every((type) => (isHalf ? /^F(32|64)$/ : /^B?F\d+$/).test(type)))
    return 'Changes nothing: no tensor fits this type.';
  return `Changes nothing: this file is ${types.slice(0, 3).join(', ')} already.`;
}

/** A meter. It is empty until the loss is known. */
const meter = (share: number) =>
  html`<span class="offer-meter" aria-hidden="true" .style=${`--share: ${share}`}></span>`;

/** The loss of a preset, in a line with a meter. */
export function lossView(
  { errors, exact }: Offer,
  { measuring, problem, plan }: OpenState,
): TemplateResult | typeof nothing {
  if (errors === undefined) {
    const gaveUp = measuring === 'no' && problem !== undefined;
    const words = gaveUp ? 'error unknown' : measuring === 'asks' ? 'error not measured' : 'measuring the error…';
    return html`${meter(0)}<span class="offer-loss pending">${words}</span>`;
  }
  // The choice's own plan knows which tensors are kept. The other presets convert what they can.
  const tensors = (plan?.tensors ?? []).map(({ kept: _, ...tensor }) => tensor);
  const sqnr = totalSqnr(tensors, errors);
  if (sqnr === undefined) return nothing;
  const share = Math.max(0.02, Math.min(1, sqnr / fullMeter));
  const decibels = `${exact ? '' : 'about '}${shortDecibels(sqnr)}`;
  return html`${meter(share)}<span class="offer-loss"><strong>${closeness(sqnr)}</strong> · ${decibels}</span>`;
}

function cardView(preset: Preset, offer: Offer | undefined, state: OpenState): TemplateResult {
  const title = html`<span class="offer-title">${presetTitles[preset]}</span>`;
  if (offer === undefined) return html`${title}<span class="offer-size">…</span>`;
  const { to, isQuantized, obstacle, bytesAfter = 0, bytesBefore = 1 } = offer;
  const head = html`<span class="offer-head">${title}<span class="offer-target">${to}</span></span>`;
  const note = isQuantized ? 'Quantized already.' : obstacle;
  if (note !== undefined) return html`${head}<span class="offer-note">${note}</span>`;
  const size = html`<span class="offer-size">${formatBytes(bytesAfter)}</span>`;
  if (changesNothing(offer)) return html`${head}${size}<span class="offer-note">${whyNothing(offer, state)}</span>`;
  const share = Math.round((1 - bytesAfter / bytesBefore) * 100);
  return html`${head}${size}<span class="offer-saved">${share} % smaller</span>${lossView(offer, state)}`;
}

/** The cards of the presets, which are radio buttons. */
export function offersView(state: OpenState, session: ModelSession): TemplateResult {
  const { offers, choice, model, run } = state;
  const { targets } = infoOf(presetFormat(model, choice.to));
  const chosen = choice.size === undefined ? targets.find(({ name }) => name === choice.to)?.preset : undefined;
  return html`
    <fieldset class="offers" id="offers"><legend class="hidden">Size</legend>
      ${presets.map(
        (preset) => html`<label class="offer covered"
          ><input type="radio" name="preset" value=${preset} .checked=${live(preset === chosen)} ?disabled=${isSaving(run)}
            @change=${() => session.choosePreset(preset)}
          ><span class="offer-card">${cardView(preset, offers[preset], state)}</span></label>`,
      )}
    </fieldset>`;
}

// Panel of the three presets.
import { type Preset, presets } from '../../src/tooling.js';
import { byId, html } from '../shared/dom.js';
import { formatBytes } from '../shared/format.js';
import { infoOf, presetFormat } from './choice.js';
import { isSaving, type Offer, type State, totalSqnr } from './state.js';
import { closeness, shortDecibels } from './wording.js';

export const presetTitles: Readonly<Record<Preset, string>> = { small: 'Small', balanced: 'Balanced', safe: 'Safe' };

/** SQNR in dB at which the meter of a card is full. */
const fullMeter = 60;

/** The smallest saving that makes a preset worth offering, as a share of the file. */
const leastGain = 0.01;

/** True if a preset hardly makes the file smaller. */
function changesNothing({ converted, bytesAfter = 0, bytesBefore = 0 }: Offer): boolean {
  return converted === 0 || bytesAfter > bytesBefore * (1 - leastGain);
}

/** The reason why a preset leaves the file as it is. */
function whyNothing({ to, converted = 0 }: Offer, { model }: State): string {
  if (converted > 0) return 'Hardly smaller: the tensors are so small that their names and scales outweigh them.';
  // Shapes and indices are not weights.
  const types = [...new Set((model?.tensors ?? []).map(({ dtype }) => dtype))].filter(
    (type) => !/^([IU](16|32|64)|BOOL)$/.test(type),
  );
  // Floats are what a file has already only where the preset stores floats of 16 bits.
  const isHalf = /^(bf|f|fp|bfloat|float)16$/i.test(to);
  if (types.every((type) => (isHalf ? /^F(32|64)$/ : /^B?F\d+$/).test(type)))
    return 'Changes nothing: no tensor fits this type.';
  return `Changes nothing: this file is ${types.slice(0, 3).join(', ')} already.`;
}

/** A meter. It is empty until the loss is known. */
function meterOf(share: number): HTMLElement {
  const meter = html('span', { class: 'offer-meter', 'aria-hidden': 'true' });
  meter.style.setProperty('--share', String(share));
  return meter;
}

/** The loss of a preset, in a line with a meter. */
function lossOf(offer: Offer, state: State): Node[] {
  if (offer.errors === undefined) {
    const gaveUp = state.measuring === 'no' && state.problem !== undefined;
    return [
      meterOf(0),
      html('span', { class: 'offer-loss pending' }, gaveUp ? 'error unknown' : 'measuring the error…'),
    ];
  }
  // The choice's own plan knows which tensors are kept. The other presets convert what they can.
  const sqnr = totalSqnr(
    (state.plan?.tensors ?? []).map((tensor) => {
      const { kept: _, ...rest } = tensor;
      return rest;
    }),
    offer.errors,
  );
  if (sqnr === undefined) return [];
  const about = offer.exact ? '' : 'about ';
  return [
    meterOf(Math.max(0.02, Math.min(1, sqnr / fullMeter))),
    html('span', { class: 'offer-loss' }, html('strong', {}, closeness(sqnr)), ` · ${about}${shortDecibels(sqnr)}`),
  ];
}

function contentOf(preset: Preset, offer: Offer | undefined, state: State): Node[] {
  const title = html('span', { class: 'offer-title' }, presetTitles[preset]);
  if (offer === undefined) return [title, html('span', { class: 'offer-size' }, '…')];
  const target = html('span', { class: 'offer-target' }, offer.to);
  const head = html('span', { class: 'offer-head' }, title, target);
  if (offer.isQuantized) return [head, html('span', { class: 'offer-note' }, 'Quantized already.')];
  if (offer.obstacle !== undefined) return [head, html('span', { class: 'offer-note' }, offer.obstacle)];
  const { bytesAfter = 0, bytesBefore = 1 } = offer;
  const size = html('span', { class: 'offer-size' }, formatBytes(bytesAfter));
  if (changesNothing(offer)) return [head, size, html('span', { class: 'offer-note' }, whyNothing(offer, state))];
  const share = Math.round((1 - bytesAfter / bytesBefore) * 100);
  const saved = html('span', { class: 'offer-saved' }, `${share} % smaller`);
  return [head, size, saved, ...lossOf(offer, state)];
}

/** Sets up the cards of the presets. They are radio buttons. */
export function startOffers(onPreset: (preset: Preset) => void) {
  const box = byId('offers', HTMLElement);
  const cards = presets.map((preset) => {
    const radio = html('input', { type: 'radio', name: 'preset', value: preset });
    radio.addEventListener('change', () => onPreset(preset));
    const content = html('span', { class: 'offer-card' });
    box.append(html('label', { class: 'offer covered' }, radio, content));
    return { preset, radio, content };
  });
  return (state: State, before: State | undefined) => {
    const { offers, choice, model, run, plan, measuring, problem } = state;
    const same =
      offers === before?.offers &&
      choice === before.choice &&
      run === before.run &&
      plan === before.plan &&
      measuring === before.measuring &&
      problem === before.problem;
    if (same || model === undefined || choice === undefined) return;
    for (const { preset, radio, content } of cards) {
      const target = infoOf(presetFormat(model, choice.to)).targets.find((one) => one.preset === preset)?.name;
      radio.checked = target === choice.to && choice.size === undefined;
      radio.disabled = isSaving(run);
      content.replaceChildren(...contentOf(preset, offers[preset], state));
    }
  };
}

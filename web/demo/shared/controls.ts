// Controls, charts and messages of the pages, as templates.
import { html, live, nothing, picture, type TemplateResult } from './template.js';

/** The stops of a slider, below it. @param at index of the one that is marked */
export const stopsView = (stops: readonly (number | string)[], at: number): TemplateResult =>
  html`<span class="stops" aria-hidden="true">${stops.map(
    (stop, i) => html`<span class=${i === at ? 'current' : ''}>${stop}</span>`,
  )}</span>`;

/** A slider with its name and its value above it. */
export interface SliderField {
  readonly id: string;
  readonly label: string;
  readonly min?: number;
  readonly max: number;
  readonly at: number;
  /** The value in words. */
  readonly words: string;
  /** The text beside the name. The default is `words`. */
  readonly value?: string;
  readonly stops?: readonly (number | string)[];
  readonly hint?: string;
  readonly isBig?: boolean;
  /** True if something else decides. No stop is marked then. */
  readonly isUnused?: boolean;
  slide(at: number): void;
}

/** The value of a slider that was moved. */
export const valueAt = ({ target }: Event): number => (target as HTMLInputElement).valueAsNumber;

export function sliderView(field: SliderField): TemplateResult {
  const { id, label, min = 0, max, at, words, value = words, stops, hint, isBig, isUnused } = field;
  return html`<div class="field ${isBig ? 'big' : ''} ${isUnused ? 'unused' : ''}">
    <span class="pair"><label for=${id} id="${id}-label">${label}</label> <output id="${id}-value" for=${id}>${value}</output></span>
    <input type="range" name=${id} id=${id} min=${min} max=${max} step="1" .value=${live(String(at))} aria-valuetext=${words}
      aria-describedby=${hint === undefined ? nothing : `${id}-hint`} @input=${(event: Event) => field.slide(valueAt(event))}>
    ${stops === undefined ? nothing : stopsView(stops, isUnused ? -1 : at)}
    ${hint === undefined ? nothing : html`<p class="hint" id="${id}-hint">${hint}</p>`}
  </div>`;
}

/** A slider below its name, with a stop for each value. */
export function fieldSlider(
  field: Required<Pick<SliderField, 'id' | 'label' | 'at' | 'words' | 'stops' | 'slide'>>,
): TemplateResult {
  const { id, label, at, words, stops, slide } = field;
  return html`<label class="field">${label}
    <input type="range" id=${id} min="0" max=${stops.length - 1} step="1" .value=${live(String(at))} aria-valuetext=${words}
      @input=${(event: Event) => slide(valueAt(event))}>
    ${stopsView(stops, at)}
  </label>`;
}

/** A choice of one of a few. */
export interface ChoiceField<Value extends string> {
  readonly name: string;
  readonly legend: string;
  /** True if the legend is for screen readers alone. */
  readonly isPlain?: boolean;
  /** Labels of the values. */
  readonly options: Readonly<Record<Value, string>>;
  readonly chosen: Value;
  readonly hint?: string | undefined;
  readonly isDisabled?: boolean;
  choose(value: Value): void;
}

export function choiceView<Value extends string>(field: ChoiceField<Value>): TemplateResult {
  const { name, legend, isPlain = false, options, chosen, hint, isDisabled = false } = field;
  return html`<fieldset class="segments">
    <legend class=${isPlain ? 'hidden' : nothing}>${legend}</legend>
    ${Object.entries<string>(options).map(
      ([value, label]) => html`<label
        ><input type="radio" name=${name} value=${value} .checked=${live(value === chosen)} ?disabled=${isDisabled}
          @change=${() => field.choose(value as Value)}><span>${label}</span></label>`,
    )}
    ${hint === undefined ? nothing : html`<p class="hint" id="${name}-hint">${hint}</p>`}
  </fieldset>`;
}

/** A switch. */
export interface SwitchField {
  readonly id: string;
  readonly label: string;
  readonly isOn: boolean;
  readonly isDisabled?: boolean;
  readonly hint?: string | undefined;
  toggle(isOn: boolean): void;
}

export function switchView({ id, label, isOn, isDisabled = false, hint, toggle }: SwitchField): TemplateResult {
  const box = html`<label class="check"><input type="checkbox" name=${id} id=${id} .checked=${live(isOn)} ?disabled=${isDisabled}
    aria-describedby=${hint === undefined ? nothing : `${id}-hint`}
    @change=${({ target }: Event) => toggle((target as HTMLInputElement).checked)}> <span>${label}</span></label>`;
  return hint === undefined ? box : html`<div>${box}<p class="hint" id="${id}-hint">${hint}</p></div>`;
}

/** A list to choose from, with its hint below it. */
export interface ListField<Value extends string> {
  readonly id: string;
  readonly name?: string;
  readonly label: string;
  /** Labels of the values. */
  readonly options: Readonly<Record<Value, string>>;
  readonly chosen: Value;
  readonly hint?: string | undefined;
  choose(value: Value): void;
}

export function listView<Value extends string>(field: ListField<Value>): TemplateResult {
  const { id, name = id, label, options, chosen, hint } = field;
  return html`<label class="field">${label}
      <select name=${name} id=${id} aria-describedby=${hint === undefined ? nothing : `${id}-hint`}
        @change=${({ target }: Event) => field.choose((target as HTMLSelectElement).value as Value)}>${Object.entries<string>(
          options,
        ).map(
          ([value, text]) => html`<option value=${value} .selected=${live(value === chosen)}>${text}</option>`,
        )}</select>
    </label>
    ${hint === undefined ? nothing : html`<p class="hint" id="${id}-hint">${hint}</p>`}`;
}

/** A button that opens the file dialog. @param take gets the chosen files, if there are any */
export function filesView(label: string, take: (files: readonly File[]) => void): TemplateResult {
  const choose = ({ target }: Event) => {
    const input = target as HTMLInputElement;
    const files = [...(input.files ?? [])];
    // Cleared, so that choosing the same file again is a change.
    input.value = '';
    if (files.length > 0) take(files);
  };
  return html`<button type="button" id="choose"
    @click=${({ target }: Event) => ((target as Element).nextElementSibling as HTMLInputElement).click()}>${label}</button
    ><input type="file" id="file" class="hidden" multiple tabindex="-1" aria-label="Files" @change=${choose}>`;
}

/** A chart, with the texts that screen readers use. `draw` replaces them: see `redraw`. */
export const chartView = (
  id: string,
  draw: (node: SVGSVGElement) => void,
  facts: readonly unknown[],
  style = 'chart',
): TemplateResult =>
  html`<svg class=${style} id=${id} role="img" aria-labelledby="${id}-name ${id}-desc" ${picture(draw, facts)}
    ><title id="${id}-name">Chart</title><desc id="${id}-desc">Nothing is drawn yet.</desc></svg>`;

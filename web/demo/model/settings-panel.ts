// Panel of all settings: target, options, data and rules, and the same as a command and as code.
import type { ModelFormat } from 'scalepoint/model';
import { problemOf, ruleFrom, sayProblem } from '../../src/tooling.js';
import { copy } from '../shared/copy.js';
import { nameInFolder } from '../shared/files.js';
import { html, live, scrollBox, type TemplateResult } from '../shared/template.js';
import {
  codeOf,
  commandOf,
  commandParts,
  formatFor,
  formatsOf,
  groupsOf,
  hashOf,
  infoOf,
  initialChoice,
  type ModelChoice,
  optionNames,
  outputName,
  settingsIn,
  targetLabel,
  usualFormat,
  withTarget,
} from './choice.js';
import { type Control, controlsFor, hasTower, valueAt, withValue } from './controls.js';
import type { ModelSession } from './session.js';
import { isSaving, type OpenState } from './state.js';

/** The first error in a text of rules, one a line; undefined if all are right. */
function ruleProblem(format: ModelFormat, rules: readonly string[]): string | undefined {
  for (const text of rules) {
    try {
      const { to } = ruleFrom(text);
      const known = infoOf(format).ruleTargets;
      if (to !== undefined && !known.includes(to))
        return `“${to}” is not a type. Types are ${known.join(', ')} and keep.`;
    } catch (error) {
      const problem = problemOf(error);
      if (problem === undefined) throw error;
      return `${sayProblem(problem)}.`;
    }
  }
  return undefined;
}

/** Parts of the command up to this length stay in one line, as they fit into the narrowest window. */
const unbrokenLength = 26;

/** The command. A flag does not break, nor leave its value. */
function commandView(name: string, choice: ModelChoice): readonly (string | TemplateResult)[] {
  const parts = commandParts(name, choice).flatMap((part) => {
    const [flag = '', ...value] = part.split(' ');
    return part.length <= unbrokenLength || value.length === 0 ? [part] : [flag, value.join(' ')];
  });
  return parts.map((part, i) => {
    const space = i === 0 ? '' : ' ';
    return part.length > unbrokenLength ? space + part : html`${space}<span class="unbroken">${part}</span>`;
  });
}

/** The section "More". */
export class SettingsPanel {
  readonly #session: ModelSession;
  readonly #redraw: () => void;
  /** Rules as they are being written, as long as the choice stays. */
  #draft: { readonly text: string; readonly problem?: string | undefined; readonly choice: ModelChoice } | undefined;

  constructor(session: ModelSession, redraw: () => void) {
    this.#session = session;
    this.#redraw = redraw;
  }

  #writeRules(text: string, { model, choice }: OpenState, isDone: boolean): void {
    const lines = text.split('\n').flatMap((line) => line.trim() || []);
    const problem = isDone ? ruleProblem(formatFor(model, choice.to), lines) : this.#draft?.problem;
    this.#draft = { text, problem, choice };
    if (isDone && problem === undefined) this.#session.choose({ ...choice, rules: lines });
    this.#redraw();
  }

  #targetsView({ model, choice }: OpenState): readonly TemplateResult[] {
    const { size } = choice;
    const option = (target: Parameters<typeof targetLabel>[0]) =>
      html`<option value=${target.name} .selected=${live(size === undefined && target.name === choice.to)}>${targetLabel(target)}</option>`;
    const groups = formatsOf(model)
      .flatMap((format) => groupsOf(format))
      .map(({ label, targets }) => html`<optgroup label=${label}>${targets.map(option)}</optgroup>`);
    const isSized = size !== undefined;
    const mixed = html`<option value="mixed" id="model-mixed" ?hidden=${!isSized} ?disabled=${!isSized} .selected=${live(isSized)}>${isSized ? `a mixture of ${size}` : ''}</option>`;
    return [mixed, ...groups];
  }

  #controlView(control: Control, { choice }: OpenState): TemplateResult {
    const at = valueAt(control, choice.words);
    const set = (value: number) => this.#session.choose({ ...choice, words: withValue(control, choice.words, value) });
    const id = `option-${control.option}`;
    if (control.values.length === 2) {
      const toggle = ({ target }: Event) => set(Number((target as HTMLInputElement).checked));
      return html`<label class="check"><input type="checkbox" id=${id} .checked=${live(at === 1)} @change=${toggle}><span>${control.label}</span></label>`;
    }
    const options = control.values.map(
      ({ label }, i) => html`<option value=${i} .selected=${live(i === at)}>${label}</option>`,
    );
    const select = ({ target }: Event) => set(Number((target as HTMLSelectElement).value));
    return html`<label class="field">${control.label}<select id=${id} @change=${select}>${options}</select></label>`;
  }

  /** @param data the control *Let data decide* */
  view(state: OpenState, data: TemplateResult): TemplateResult {
    const { model, choice, run } = state;
    const session = this.#session;
    if (this.#draft?.choice !== choice) this.#draft = undefined;
    const format = formatFor(model, choice.to);
    const controls = controlsFor(
      infoOf(format),
      optionNames(format, choice.to),
      format !== model.format,
      hasTower(model),
    );
    const carried = settingsIn(hashOf(usualFormat(model), choice));
    const name = model.hub === undefined ? model.name : `hf:${model.hub.name}`;
    const copied = (what: string, text: () => string) => () => void copy(text(), what);
    const { text = choice.rules.join('\n'), problem } = this.#draft ?? {};
    const choose = ({ target }: Event) => {
      const to = (target as HTMLSelectElement).value as ModelChoice['to'];
      session.choose(withTarget(formatFor(model, to), choice, to));
    };
    const write = ({ target, type }: Event) =>
      this.#writeRules((target as HTMLTextAreaElement).value, state, type === 'change');
    return html`
      <details class="more settings" id="more">
        <summary>More: types, groups, ranges, rules, command and code</summary>
        <fieldset class="plain" id="more-fields" ?disabled=${isSaving(run)}>
          <legend class="hidden">All settings</legend>
          <div class="settings-grid">
            <div class="fields">
              <label class="field">Weights become <select id="model-target" @change=${choose}>${this.#targetsView(state)}</select></label>
              <div class="fields" id="model-options">${controls.map((control) => this.#controlView(control, state))}</div>
              ${data}
            </div>
            <div class="fields">
              <label class="field">Rules, one a line
                <textarea id="model-rules" rows="4" spellcheck="false" autocomplete="off" placeholder="lm_head=keep" aria-describedby="rules-hint rules-problem"
                  aria-invalid=${String(problem !== undefined)} .value=${live(text)} @input=${write} @change=${write}></textarea>
              </label>
              <p class="hint" id="rules-hint">Part of a name as a regular expression, then = and a type or keep. The first rule that fits decides.</p>
              <p class="rules-problem" id="rules-problem" role="alert">${problem ?? ''}</p>
              <div class="row"><button type="button" id="model-reset" @click=${() => session.choose(initialChoice(usualFormat(model)))}>Reset the settings</button></div>
            </div>
            <div class="fields">
              <p class="field">The same without this page</p>
              <pre class="scroll snippet wrap" data-name="The same on the command line" ${scrollBox()}><code id="model-command">${commandView(name, choice)}</code></pre>
              <div class="row">
                <button type="button" id="model-copy-command" @click=${copied('Command', () => commandOf(name, format, choice))}>Copy as command</button>
                <button type="button" id="model-copy-code" @click=${copied('Code', () => codeOf(name, format, choice, outputName(nameInFolder(model), format, choice)))}>Copy as code</button>
                <button type="button" id="model-link" @click=${() => void copy(location.href, 'Link to the settings')}>Copy link to settings</button>
              </div>
              <p class="hint" id="model-carried">${
                carried.length === 0
                  ? 'The link carries no settings: these are the usual ones.'
                  : `The link carries ${carried.join(', ')}, and nothing else of the file.`
              }</p>
            </div>
          </div>
        </fieldset>
      </details>`;
  }
}

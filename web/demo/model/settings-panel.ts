// Panel of all settings: target, options and rules.
import type { ModelFormat } from 'scalepoint/model';
import { problemOf, ruleFrom, sayProblem } from '../../src/tooling.js';
import { copy } from '../shared/copy.js';
import { byId, html, setText } from '../shared/dom.js';
import {
  codeOf,
  commandOf,
  commandParts,
  formatFor,
  formatsOf,
  hashOf,
  infoOf,
  initialChoice,
  type ModelChoice,
  settingsIn,
  usualFormat,
  withTarget,
} from './choice.js';
import { type Control, controlsFor, hasTower, valueAt, withValue } from './controls.js';
import { isSaving, type State } from './state.js';

/** A control for an option, at its value. */
function controlNode(control: Control, choice: ModelChoice, onChange: (choice: ModelChoice) => void): HTMLElement {
  const at = valueAt(control, choice.words);
  const set = (value: number) => onChange({ ...choice, words: withValue(control, choice.words, value) });
  const id = `option-${control.option}`;
  if (control.values.length === 2) {
    const box = html('input', { type: 'checkbox', id });
    box.checked = at === 1;
    box.addEventListener('change', () => set(Number(box.checked)));
    return html('label', { class: 'check' }, box, html('span', {}, control.label));
  }
  const options = control.values.map(({ label }, i) => html('option', { value: i }, label));
  const select = html('select', { id }, ...options);
  select.value = String(at);
  select.addEventListener('change', () => set(Number(select.value)));
  return html('label', { class: 'field' }, control.label, select);
}

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

/** Draws the command so that a flag does not break, nor leave its value. */
function drawCommand(name: string, choice: ModelChoice): void {
  const parts = commandParts(name, choice).flatMap((part) => {
    if (part.length <= unbrokenLength) return [part];
    const [flag = '', ...value] = part.split(' ');
    return value.length === 0 ? [part] : [flag, value.join(' ')];
  });
  byId('model-command', HTMLElement).replaceChildren(
    ...parts.flatMap((part, i) => [
      ...(i === 0 ? [] : [' ']),
      part.length > unbrokenLength ? part : html('span', { class: 'unbroken' }, part),
    ]),
  );
}

/** Sets up the section "More": the target, its options, rules, and the same as a command and as code. */
export function startMore(session: { choose(choice: ModelChoice): void }, current: () => State) {
  const target = byId('model-target', HTMLSelectElement);
  const rules = byId('model-rules', HTMLTextAreaElement);
  const options = byId('model-options', HTMLElement);
  const now = () => {
    const { model, choice } = current();
    return model === undefined || choice === undefined ? undefined : { model, choice };
  };
  // Follow the visitor.
  target.addEventListener('change', () => {
    const there = now();
    if (there)
      session.choose(withTarget(formatFor(there.model, target.value), there.choice, target.value as ModelChoice['to']));
  });
  rules.addEventListener('change', () => {
    const there = now();
    const lines = rules.value.split('\n').flatMap((line) => line.trim() || []);
    const problem = there && ruleProblem(formatFor(there.model, there.choice.to), lines);
    setText(byId('rules-problem', HTMLElement), problem ?? '');
    rules.setAttribute('aria-invalid', String(problem !== undefined));
    if (there && problem === undefined) session.choose({ ...there.choice, rules: lines });
  });
  byId('model-reset', HTMLButtonElement).addEventListener('click', () => {
    const there = now();
    if (there) session.choose(initialChoice(usualFormat(there.model)));
  });
  const onCopy = (id: string, what: string, text: typeof commandOf) =>
    byId(id, HTMLButtonElement).addEventListener('click', () => {
      const there = now();
      if (there) void copy(text(there.model.name, formatFor(there.model, there.choice.to), there.choice), what);
    });
  onCopy('model-copy-command', 'Command', commandOf);
  onCopy('model-copy-code', 'Code', codeOf);
  byId('model-link', HTMLButtonElement).addEventListener(
    'click',
    () => void copy(location.href, 'Link to the settings'),
  );

  return (state: State, before: State | undefined) => {
    const { model, choice, run } = state;
    byId('more-fields', HTMLFieldSetElement).disabled = isSaving(run);
    if (model === undefined || choice === undefined || choice === before?.choice) return;
    // List the targets of a new model.
    if (model !== before?.model) {
      const lists = formatsOf(model).map((format) => {
        const { label, targets } = infoOf(format);
        const names = targets.flatMap(({ name, about, copies, needs }) =>
          copies || needs !== undefined
            ? []
            : html('option', { value: name }, about === undefined ? name : `${name}: ${about}`),
        );
        return { label, names };
      });
      const groups = lists.map(({ label, names }) => html('optgroup', { label }, ...names));
      const mixed = html('option', { value: 'mixed', id: 'model-mixed' });
      target.replaceChildren(mixed, ...(lists.length > 1 ? groups : lists.flatMap(({ names }) => names)));
    }
    // Show the choice. Keep the focus where controls are drawn anew.
    const mixed = byId('model-mixed', HTMLOptionElement);
    mixed.hidden = choice.size === undefined;
    mixed.disabled = mixed.hidden;
    setText(mixed, choice.size === undefined ? '' : `a mixture of ${choice.size}`);
    target.value = choice.size === undefined ? choice.to : mixed.value;
    rules.value = choice.rules.join('\n');
    const focused = document.activeElement?.id;
    const format = formatFor(model, choice.to);
    options.replaceChildren(
      ...controlsFor(format, choice.to, format !== model.format, hasTower(model)).map((control) =>
        controlNode(control, choice, session.choose),
      ),
    );
    if (focused?.startsWith('option-')) document.getElementById(focused)?.focus();
    drawCommand(model.name, choice);
    const carried = settingsIn(hashOf(usualFormat(model), choice));
    setText(
      byId('model-carried', HTMLElement),
      carried.length === 0
        ? 'The link carries no settings: these are the usual ones.'
        : `The link carries ${carried.join(', ')}, and nothing else of the file.`,
    );
  };
}

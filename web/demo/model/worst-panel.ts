// Panel of the tensors that lose most.
import { byId, html, replaceKeepingFocus, setText } from '../shared/dom.js';
import { formatBytes, formatDecibels } from '../shared/format.js';
import { isSaving, outliersOf, type State, worstOf } from './state.js';

/** Number of layers in the list. */
const most = 5;
/** SQNR in dB at which a bar is empty. At 0 dB, when the error is as large as the numbers, it is full. */
const noLoss = 60;

/** Says which layers stand out. */
function verdictOf(state: State): string {
  const outliers = outliersOf(state);
  if (outliers === undefined) return '';
  const { names, median } = outliers;
  const all = `the median is ${formatDecibels(median)}.`;
  if (names.length === 0) return `No layer stands out: ${all}`;
  return `${names.length === 1 ? `${names[0]} stands` : `${names.length} layers stand`} out: ${all}`;
}

/** Number of tensors that are converted and not measured yet. */
function pendingOf({ plan, errors }: State): number {
  return (plan?.tensors ?? []).filter(({ name, kept, shape }) => {
    return kept === undefined && !shape.includes(0) && !errors.has(name);
  }).length;
}

/** Sets up the list of the layers with the largest errors, each with a button that keeps it. */
export function startWorst(events: { look(name: string): void; keep(name: string): void }) {
  const list = byId('worst', HTMLElement);
  const section = byId('worst-section', HTMLElement);
  return (state: State, before: State | undefined) => {
    const { errors, plan, run, measuring, model, problem } = state;
    const same = errors === before?.errors && plan === before.plan && run.kind === before.run.kind;
    if (same && measuring === before?.measuring && model === before.model && problem === before.problem) return;
    const worst = worstOf(state, most);
    // Rows have their room before they are measured, so that nothing moves when they come.
    const pending = problem === undefined ? pendingOf(state) : 0;
    section.hidden = worst.length + pending === 0;
    list.style.setProperty('--rows', String(Math.min(most, worst.length + pending)));
    const isExact = worst.length > 0 && worst.every(({ name }) => errors.get(name)?.exact);
    const part = isExact ? 'Measured on all numbers.' : 'Measured on a sample of each tensor.';
    const basis = worst.length === 0 && pending > 0 ? '' : part;
    const now = measuring === 'all' ? ' Now measuring all of them…' : measuring === 'sample' ? ' Still measuring…' : '';
    setText(byId('worst-basis', HTMLElement), `${basis}${now}`.trim());
    setText(byId('worst-words', HTMLElement), verdictOf(state));
    replaceKeepingFocus(
      list,
      worst.map(({ name, bytesBefore, bytesAfter }) => {
        const sqnr = errors.get(name)?.error.sqnrDb ?? 0;
        const bar = html('span', { class: 'worst-bar', 'aria-hidden': 'true' });
        bar.style.setProperty('--share', String(Math.max(0.02, Math.min(1, 1 - sqnr / noLoss))));
        const look = html(
          'button',
          { type: 'button', class: 'link name', title: name, 'data-worst': name },
          html('bdi', {}, name),
        );
        look.addEventListener('click', () => events.look(name));
        const disabled = isSaving(run);
        const keep = html(
          'button',
          { type: 'button', class: 'small', 'data-keep': name, disabled: disabled && '' },
          html('span', {}, 'Keep'),
          html('span', { class: 'hidden' }, ` ${name}`),
          html('span', { class: 'cost' }, ` +${formatBytes(Math.max(0, bytesBefore - bytesAfter))}`),
        );
        keep.addEventListener('click', () => events.keep(name));
        return html('li', {}, look, bar, html('span', { class: 'worst-db' }, formatDecibels(sqnr)), keep);
      }),
      // The layer that was kept has left the list.
      () => [list.querySelector<HTMLElement>('[data-keep]'), byId('model-run', HTMLElement)],
    );
  };
}

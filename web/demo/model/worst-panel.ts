// Panel of the tensors that lose most.
import { formatBytes, formatDecibels } from '../shared/format.js';
import { html, remembered, repeat, type TemplateResult } from '../shared/template.js';
import { isSaving, type OpenState, outliersOf, type State, worstOf } from './state.js';

/** Number of layers in the list. */
const most = 5;
/** SQNR in dB at which a bar is empty. At 0 dB, when the error is as large as the numbers, it is full. */
const noLoss = 60;

/** Says which layers stand out. */
function verdictOf(state: Pick<State, 'plan' | 'errors'>): string {
  const outliers = outliersOf(state);
  if (outliers === undefined) return '';
  const { names, median } = outliers;
  const all = `the median is ${formatDecibels(median)}.`;
  if (names.length === 0) return `No layer stands out: ${all}`;
  return `${names.length === 1 ? `${names[0]} stands` : `${names.length} layers stand`} out: ${all}`;
}

const figuresOf = remembered((plan: State['plan'], errors: State['errors']) => ({
  worst: worstOf({ plan, errors }, most),
  verdict: verdictOf({ plan, errors }),
  /** Number of tensors that are converted and not measured yet. */
  pending: (plan?.tensors ?? []).filter(
    ({ name, kept, shape }) => kept === undefined && !shape.includes(0) && !errors.has(name),
  ).length,
}));

/** The list of the layers with the largest errors, each with a button that keeps it. */
export function worstView(
  { plan, errors, measuring, problem, run }: OpenState,
  events: { look(name: string): void; keep(name: string): void },
): TemplateResult {
  const { worst, verdict, pending: unmeasured } = figuresOf(plan, errors);
  // Rows have their room before they are measured, so that nothing moves when they come.
  const pending = problem === undefined && measuring !== 'asks' ? unmeasured : 0;
  const isExact = worst.length > 0 && worst.every(({ name }) => errors.get(name)?.exact);
  const part = isExact ? 'Measured on all numbers.' : 'Measured on a sample of each tensor.';
  const basis = worst.length === 0 && pending > 0 ? '' : part;
  const now = measuring === 'all' ? ' Now measuring all of them…' : measuring === 'sample' ? ' Still measuring…' : '';
  const row = ({ name, bytesBefore, bytesAfter }: (typeof worst)[number]) => {
    const sqnr = errors.get(name)?.error.sqnrDb ?? 0;
    const share = Math.max(0.02, Math.min(1, 1 - sqnr / noLoss));
    // The layer that is kept leaves the list.
    return html`<li
      ><button type="button" class="link name" title=${name} data-worst=${name} data-next="#worst [data-keep] then #model-run"
        @click=${() => events.look(name)}><bdi>${name}</bdi></button
      ><span class="worst-bar" aria-hidden="true" .style=${`--share: ${share}`}></span
      ><span class="worst-db">${formatDecibels(sqnr)}</span
      ><button type="button" class="small" data-keep=${name} data-next="#worst [data-keep] then #model-run" ?disabled=${isSaving(run)}
        @click=${() => events.keep(name)}><span>Keep</span><span class="hidden"> ${name}</span><span class="cost"> +${formatBytes(Math.max(0, bytesBefore - bytesAfter))}</span></button
    ></li>`;
  };
  return html`
    <section class="worst" id="worst-section" aria-labelledby="worst-title" ?hidden=${worst.length + pending === 0}>
      <div class="head">
        <h2 id="worst-title">Largest errors</h2>
        <p class="hint" id="worst-basis" role="status">${`${basis}${now}`.trim()}</p>
        <p class="hint" id="worst-words">${verdict}</p>
      </div>
      <ol id="worst" .style=${`--rows: ${Math.min(most, worst.length + pending)}`}>${repeat(worst, ({ name }) => name, row)}</ol>
    </section>`;
}

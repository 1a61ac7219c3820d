/** Output of `quantize --min-output`. */
import type { ModelReport } from '../model.js';
import {
  counted,
  formatBytes,
  nameText,
  type Paint,
  printable,
  type TableColumn,
  type TableRow,
  table,
  withDecibels,
} from './text.js';

type Repair = NonNullable<ModelReport['repair']>;
type Judged = Repair['outputs'][number];

/** Most outputs in lines of text. */
const mostOutputs = 5;

const columns: readonly TableColumn[] = [
  { title: 'raised', align: 'left' },
  { title: 'type', align: 'left' },
  { title: 'bytes', align: 'right' },
  { title: 'worst output', align: 'left' },
  { title: 'before', align: 'right' },
  { title: 'after', align: 'right' },
];

/** An output by name. */
const outputText = ({ backend, output }: Judged) => (output === '' ? backend : `${nameText(output)} on ${backend}`);

/** The measure of the bound. */
function valueText({ kind }: Repair['bound'], { cosine, sqnrDb, failure }: Judged): string {
  if (failure !== undefined) return 'failed';
  return kind === 'cosine' ? cosine.toFixed(6) : withDecibels(sqnrDb);
}

/** Lines about tensors that were raised, and the outputs. */
export function repairText(repair: Repair | undefined, width: number, paint: Paint): string[] {
  if (repair === undefined) return [];
  const { bound, steps, outputs, runs } = repair;
  // A row for each tensor; the first of a step says what the step brought.
  const rows = steps.flatMap(({ tensors, before, after }) =>
    tensors.map(({ name, from, to, bytes }, i): TableRow => {
      const brought = i === 0 ? [outputText(after), valueText(bound, before), valueText(bound, after)] : ['', '', ''];
      return { cells: [nameText(name), `${from} → ${to}`, `+${formatBytes(bytes)}`, ...brought] };
    }),
  );
  const wanted = bound.kind === 'cosine' ? `a cosine of ${bound.least}` : `${bound.least} dB`;
  const count = new Set(steps.flatMap(({ tensors }) => tensors.map(({ name }) => name))).size;
  const raised = count === 0 ? 'nothing was raised' : `${counted(count, 'tensor')} raised`;
  // Name the worst outputs: decoders have dozens. Those that failed have no number.
  const rank = (one: Judged) => (one.failure === undefined ? one[bound.kind] : Number.NEGATIVE_INFINITY);
  const worst = [...outputs].sort((a, b) => (rank(a) < rank(b) ? -1 : 1)).slice(0, mostOutputs);
  return [
    '',
    ...(rows.length === 0 ? [] : [...table(columns, rows, width, paint), '']),
    `outputs are to have ${wanted} at least: ${raised}, ${counted(runs, 'result')} run`,
    ...worst.map((one) => {
      const { cosine, sqnrDb, failure } = one;
      const numbers = `cosine ${cosine.toFixed(6)}, SQNR ${withDecibels(sqnrDb)}`;
      return `${outputText(one)}: ${failure === undefined ? numbers : printable(failure)}`;
    }),
    ...(worst.length < outputs.length ? [`${outputs.length - worst.length} more outputs are better`] : []),
  ];
}

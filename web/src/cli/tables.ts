/** Tables of plans and reports. */
import { basename } from 'node:path';
import type { ModelPlan, ModelReport, PlannedTensorInfo } from '../model.js';
import type { ModelFit, ModelTotals } from '../tooling.js';
import {
  countText,
  formatBytes,
  formatDecibels,
  formatError,
  formatShape,
  left,
  lowestLine,
  nameText,
  outputLine,
  printable,
  right,
  spaced,
  type TableRow,
  table,
  withDecibels,
} from './text.js';

/** The columns that plans and reports begin with. */
const firstColumns = [...left('tensor', 'dtype', 'shape'), ...right('before', 'after')];

function firstCells({ name, shape, from, to, bytesBefore, bytesAfter }: PlannedTensorInfo): string[] {
  const type = from === to ? from : `${from} → ${to}`;
  return [nameText(name), type, formatShape(shape), formatBytes(bytesBefore), formatBytes(bytesAfter)];
}

/** Share of the bytes that a target converts, without those that rules keep. */
export function convertedShare(tensors: readonly PlannedTensorInfo[]): number {
  const open = tensors.filter(({ kept }) => kept?.kind !== 'rule');
  const sum = (list: readonly PlannedTensorInfo[]) => list.reduce((all, { bytesBefore }) => all + bytesBefore, 0);
  return sum(open) === 0 ? 0 : sum(open.filter(({ kept }) => kept === undefined)) / sum(open);
}

/** A target that converts a smaller share has next to no effect. */
export const leastConverted = 0.01;

/** A small share in percent. */
export const shareText = (share: number): string => `${(100 * share).toPrecision(1)} %`;

function totalsText(file: string, tensors: readonly PlannedTensorInfo[], totals: ModelTotals): string[] {
  const { quantized, cast, kept, bytesBefore, bytesAfter, ratio, bitsPerWeight, fellBack = 0 } = totals;
  const counts = [
    ...(quantized > 0 || cast === 0 ? [`${quantized} quantized`] : []),
    ...(cast > 0 ? [`${cast} cast`] : []),
    `${kept} kept`,
  ].join(', ');
  const converted = convertedShare(tensors);
  const isLittle = quantized + cast > 0 && converted < leastConverted;
  const little = isLittle ? `; ${shareText(converted)} of the bytes, nearly nothing` : '';
  const share = (100 * fellBack).toPrecision(2);
  const others = fellBack === 0 ? '' : `; ${share} % of the elements in other types, whose blocks divide their rows`;
  return [
    `${printable(basename(file))}: ${countText(tensors.length, 'tensor')}, ${counts}${little}${others}`,
    `${formatBytes(bytesBefore)} → ${formatBytes(bytesAfter)}, ratio ${ratio.toFixed(2)}, ${bitsPerWeight.toFixed(2)} bits per weight`,
  ];
}

/** The line about the loss of a result of a given size. */
function fitLines(fit: ModelFit | undefined): string[] {
  if (fit === undefined) return [];
  const { error, bound, isDivergence } = fit;
  const gap = bound === 0 ? Number.POSITIVE_INFINITY : 100 * (error / bound - 1);
  const least = error === bound ? 'the least in this size' : `at most ${gap.toPrecision(2)} % above the least`;
  const what = isDivergence
    ? `expected divergence ${error.toPrecision(3)} nats`
    : `predicted error ${error.toPrecision(3)}`;
  return [`${what}, ${least}`];
}

/** Lines of a plan. @param written the files that would be written beside the output */
export function planText(
  file: string,
  output: string | null,
  { tensors, totals, fit }: ModelPlan,
  written: readonly string[],
): string[] {
  const rows = tensors.map((tensor): TableRow => {
    const { kept } = tensor;
    return { cells: [...firstCells(tensor), kept?.text ?? ''], ...(kept === undefined ? {} : { style: 'dim' }) };
  });
  const lines = spaced(table([...firstColumns, ...left('kept because')], rows));
  const what = output === null ? 'would be' : `would write ${printable(output)}:`;
  lines.push(...totalsText(file, tensors, totals), ...fitLines(fit), `${what} ${countText(totals.bytesAfter, 'byte')}`);
  for (const path of written) lines.push(`would write ${printable(path)}`);
  return lines;
}

/** Lines of a report. */
export function reportText(
  file: string,
  { tensors, totals, repair, folding }: ModelReport,
  stream: NodeJS.WriteStream,
  fit?: ModelFit,
): string[] {
  // Leave out the tensors of a copy.
  const rows = tensors.flatMap((tensor): TableRow[] => {
    const { error, kept } = tensor;
    if (kept?.kind === 'copy') return [];
    const cells = firstCells(tensor);
    if (error === undefined) return [{ cells, remark: `kept: ${kept?.text}`, style: 'dim' }];
    return [{ cells: [...cells, formatDecibels(error.sqnrDb), formatError(error.maxAbsoluteError)] }];
  });
  const lines = spaced(table([...firstColumns, ...right('SQNR dB', 'max error')], rows, stream));
  // Count the values that the errors leave out.
  const inexact = tensors.filter(({ error }) => error !== undefined && error.nonFinite > 0);
  const pairs = inexact.reduce((sum, { error }) => sum + (error?.nonFinite ?? 0), 0);
  const where = inexact.length === 1 ? nameText(inexact[0]?.name ?? '') : countText(inexact.length, 'tensor');
  lines.push(
    ...totalsText(file, tensors, totals),
    ...fitLines(fit),
    ...lowestLine(tensors),
    ...outputLine(tensors),
    ...(pairs === 0 ? [] : [`${countText(pairs, 'pair')} left out of the errors, NaN or infinite: ${where}`]),
    ...foldingText(folding),
    ...repairText(repair, stream),
  );
  return lines;
}

// --------------------------------------------------------------------------------------------------- --fold-outliers, --min-output

/** Most channels of a norm in lines of text. */
const mostChannels = 4;

/** Lines about norms that were folded. */
function foldingText(folding: ModelReport['folding']): string[] {
  if (folding === undefined) return [];
  const { norms, judged } = folding;
  if (judged === undefined) return ['outliers: no norm can be folded'];
  const { before, after } = judged;
  const values = [before, after].map(({ failure, sqnrDb }) =>
    failure === undefined ? withDecibels(sqnrDb) : 'failed',
  );
  const outputs = `worst output ${values.join(' → ')} on samples held back`;
  return [
    norms.length === 0
      ? `outliers: nothing folded; ${outputs}`
      : `outliers: ${countText(norms.length, 'norm')} folded; ${outputs}`,
    ...norms.map(({ value, exponents }) => {
      const channels = [...exponents.entries()].filter(([, exponent]) => exponent !== 0);
      const largest = channels.toSorted(([, a], [, b]) => Math.abs(b) - Math.abs(a)).slice(0, mostChannels);
      const list = largest.map(
        ([channel, exponent]) => `${channel} ${exponent > 0 ? '÷' : '×'} ${2 ** Math.abs(exponent)}`,
      );
      return `  ${nameText(value)}: ${countText(channels.length, 'channel')}: ${list.join(', ')}${channels.length > list.length ? ', …' : ''}`;
    }),
  ];
}

type Repair = NonNullable<ModelReport['repair']>;
type Judged = Repair['outputs'][number];

/** Most outputs in lines of text. */
const mostOutputs = 5;

const repairColumns = [
  ...left('raised', 'type'),
  ...right('bytes'),
  ...left('worst output'),
  ...right('before', 'after'),
];

/** An output by name. */
const outputText = ({ backend, output }: Judged) => (output === '' ? backend : `${nameText(output)} on ${backend}`);

/** The measure of the bound. */
function repairValue({ kind }: Repair['bound'], { cosine, sqnrDb, failure }: Judged): string {
  if (failure !== undefined) return 'failed';
  return kind === 'cosine' ? cosine.toFixed(6) : withDecibels(sqnrDb);
}

/** Lines about tensors that were raised, and the outputs. */
function repairText(repair: Repair | undefined, stream: NodeJS.WriteStream): string[] {
  if (repair === undefined) return [];
  const { bound, steps, outputs, runs } = repair;
  // A row for each tensor; the first of a step says what the step brought.
  const rows = steps.flatMap(({ tensors, before, after }) =>
    tensors.map(({ name, from, to, bytes }, i): TableRow => {
      const brought =
        i === 0 ? [outputText(after), repairValue(bound, before), repairValue(bound, after)] : ['', '', ''];
      return { cells: [nameText(name), `${from} → ${to}`, `+${formatBytes(bytes)}`, ...brought] };
    }),
  );
  const wanted = bound.kind === 'cosine' ? `a cosine of ${bound.least}` : `${bound.least} dB`;
  const count = new Set(steps.flatMap(({ tensors }) => tensors.map(({ name }) => name))).size;
  const raised = count === 0 ? 'nothing was raised' : `${countText(count, 'tensor')} raised`;
  // Name the worst outputs: decoders have dozens. Those that failed have no number.
  const rank = (one: Judged) => (one.failure === undefined ? one[bound.kind] : Number.NEGATIVE_INFINITY);
  const worst = [...outputs].sort((a, b) => (rank(a) < rank(b) ? -1 : 1)).slice(0, mostOutputs);
  return [
    '',
    ...spaced(table(repairColumns, rows, stream)),
    `outputs are to have ${wanted} at least: ${raised}, ${countText(runs, 'result')} run`,
    ...worst.map((one) => {
      const { cosine, sqnrDb, failure } = one;
      const numbers = `cosine ${cosine.toFixed(6)}, SQNR ${withDecibels(sqnrDb)}`;
      return `${outputText(one)}: ${failure === undefined ? numbers : printable(failure)}`;
    }),
    ...(worst.length < outputs.length ? [`${outputs.length - worst.length} more outputs are better`] : []),
  ];
}

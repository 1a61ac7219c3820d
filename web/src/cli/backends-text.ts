/** Output of `compare --backend`. */
import type { CompareReport } from '../model.js';
import type { BackendReport, BackendRun, GpuAdapter, GpuPlacement, NodeCheck } from '../tooling.js';
import {
  countText,
  errorCells,
  errorColumns,
  formatDecibels,
  listText,
  nameText,
  painter,
  printable,
  type TableColumn,
  type TableRow,
  table,
  terminalColumns,
} from './text.js';

/** Most operators in a line. */
const mostOperators = 6;

/** A duration in three digits. */
function timeText(seconds: number): string {
  const [value, unit] = seconds < 1 ? [seconds * 1000, 'ms'] : [seconds, 's'];
  return `${value >= 100 ? value.toFixed(0) : value.toPrecision(3)} ${unit}`;
}

/** A relative error. */
const errorText = (error: number) => (error === 0 ? '0' : Number.isFinite(error) ? error.toExponential(1) : 'infinite');

/** Reasons that a model did not run. */
const reasons = {
  noAdapter: 'not run: there is no WebGPU',
  needsFloat16: 'not run: it computes in float16, and this GPU does not',
  noSession: 'onnxruntime cannot load it',
  notRun: 'the run failed',
} as const satisfies Record<Exclude<BackendRun['kind'], 'ran'>, string>;

function adapterText({ vendor, architecture, isSoftware, hasFloat16 }: GpuAdapter): string {
  const name = [vendor, architecture].filter((part) => part !== '').join(' ') || 'a GPU without a name';
  return `${name}${isSoftware ? ' in software' : ''}${hasFloat16 ? '' : ', without float16'}`;
}

function placementText({ onGpu, onCpu, copies }: GpuPlacement): string {
  const away = onCpu.reduce((sum, { count }) => sum + count, 0);
  if (away === 0) return `all ${countText(onGpu, 'node')} on the GPU`;
  const list = listText(
    onCpu.map(({ op, count }) => `${count} ${printable(op)}`),
    mostOperators,
  );
  return `${away} of ${countText(onGpu + away, 'node')} on the processor (${list}), ${copies} ${copies === 1 ? 'copy' : 'copies'} between both a run`;
}

/** @param reference the model that nodes are held to */
function nodesText({ compared, off, first, unknown }: NodeCheck, reference: string): string[] {
  const left = unknown.length === 0 ? [] : [`no bound is known for ${listText(unknown.map(printable), mostOperators)}`];
  if (first === undefined)
    return [`${countText(compared, 'value')} of nodes equal those of ${reference}, up to rounding`, ...left];
  const { node, op, output, error, tolerance, inputs } = first;
  const name = node === '' || node === output ? '' : `, node ${nameText(node)}`;
  const before = inputs.flatMap(({ name: input, error: own }) =>
    own === undefined ? [] : [`${nameText(input)} ${errorText(own)}`],
  );
  return [
    `${off} of ${countText(compared, 'value')} of nodes differ from those of ${reference} by more than rounding`,
    `the first is ${nameText(output)} (${printable(op)}${name}): off by ${errorText(error)}, rounding explains ${errorText(tolerance)}`,
    ...(before.length === 0 ? [] : [`errors of its inputs: ${listText(before, 4)}`]),
    ...left,
  ];
}

/** Lines about one model on a backend. */
function linesOf(label: string, run: BackendRun, reference: string): string[] {
  if (run.kind !== 'ran') {
    const isSaid = run.kind === 'noAdapter';
    return [`${label}: ${reasons[run.kind]}${isSaid ? '' : `: ${printable(run.text.split('\n')[0] ?? '')}`}`];
  }
  const { placement, nodes } = run;
  const lines = [...(placement ? [placementText(placement)] : []), ...(nodes ? nodesText(nodes, reference) : [])];
  return lines.map((line) => `${label}: ${line}`);
}

const columns: readonly TableColumn[] = [
  { title: 'backend', align: 'left' },
  { title: 'model', align: 'left' },
  { title: 'first', align: 'right' },
  { title: 'one run', align: 'right' },
  ...errorColumns,
  { title: 'own dB', align: 'right' },
];

function rowOf(backend: string, model: string, run: BackendRun): TableRow {
  if (run.kind !== 'ran') return { cells: [backend, model], remark: 'not run', style: 'dim' };
  const { times, outputs } = run;
  const [first, ...others] = outputs;
  const worst = first && others.reduce((most, one) => (one.error.sqnrDb < most.error.sqnrDb ? one : most), first);
  const own = outputs.flatMap((output) => (output.own === undefined ? [] : [output.own.sqnrDb]));
  return {
    cells: [
      backend,
      model,
      timeText(times.firstSeconds),
      timeText(times.seconds),
      ...(worst === undefined ? ['', '', ''] : errorCells(worst.error)),
      own.length === 0 ? '' : formatDecibels(Math.min(...own)),
    ],
  };
}

/** Lines about the models on each backend. */
export function backendText({ backends }: Pick<CompareReport, 'backends'>): string[] {
  if (backends === undefined) return [];
  const rows = backends.flatMap(({ backend, a, b }) => [rowOf(backend, 'A', a), rowOf('', 'B', b)]);
  const about = ({ backend, runtime, adapter, a, b }: BackendReport) => [
    `${backend}: ${printable(runtime)}${adapter === undefined ? '' : `, ${printable(adapterText(adapter))}`}`,
    ...linesOf(`${backend}, A`, a, 'A on wasm'),
    ...linesOf(`${backend}, B`, b, backend === 'wasm' ? 'A' : 'B on wasm'),
  ];
  return [
    '',
    ...table(columns, rows, terminalColumns(process.stdout), painter(process.stdout)),
    'of the worst output, against A on wasm; own dB: against the same model on wasm',
    ...(backends.some(({ adapter }) => adapter?.isSoftware)
      ? ['times on WebGPU are those of a program on the processor, not of a GPU']
      : []),
    '',
    ...backends.flatMap(about),
  ];
}

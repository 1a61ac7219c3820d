/** Output of `compare --backend`. */
import type { CompareReport } from '../model.js';
import type { BackendReport, BackendRun, GpuAdapter } from '../tooling.js';
import {
  countText,
  errorCells,
  errorColumns,
  formatDecibels,
  left,
  listText,
  nameText,
  printable,
  right,
  type TableRow,
  table,
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

/** Lines about one model on a backend. @param reference the model that nodes are held to */
function backendLines(label: string, run: BackendRun, reference: string): string[] {
  if (run.kind !== 'ran') {
    const reason = run.kind === 'noAdapter' ? '' : `: ${printable(run.text.split('\n')[0] ?? '')}`;
    return [`${label}: ${reasons[run.kind]}${reason}`];
  }
  const { placement, nodes } = run;
  const lines: string[] = [];
  if (placement !== undefined) {
    const { onGpu, onCpu, copies } = placement;
    const away = onCpu.reduce((sum, { count }) => sum + count, 0);
    const operators = onCpu.map(({ op, count }) => `${count} ${printable(op)}`);
    lines.push(
      away === 0
        ? `all ${countText(onGpu, 'node')} on the GPU`
        : `${away} of ${countText(onGpu + away, 'node')} on the processor (${listText(operators, mostOperators)}), ` +
            `${copies} ${copies === 1 ? 'copy' : 'copies'} between both a run`,
    );
  }
  if (nodes !== undefined) {
    const { compared, off, first, unknown } = nodes;
    const values = countText(compared, 'value');
    if (first === undefined) lines.push(`${values} of nodes equal those of ${reference}, up to rounding`);
    else {
      const { node, op, output, error, tolerance, inputs } = first;
      const name = node === '' || node === output ? '' : `, node ${nameText(node)}`;
      const before = inputs.flatMap(({ name: input, error: own }) =>
        own === undefined ? [] : [`${nameText(input)} ${errorText(own)}`],
      );
      lines.push(
        `${off} of ${values} of nodes differ from those of ${reference} by more than rounding`,
        `the first is ${nameText(output)} (${printable(op)}${name}): off by ${errorText(error)}, rounding explains ${errorText(tolerance)}`,
        ...(before.length === 0 ? [] : [`errors of its inputs: ${listText(before, 4)}`]),
      );
    }
    if (unknown.length > 0) lines.push(`${listText(unknown.map(printable), mostOperators)} were not compared`);
  }
  return lines.map((line) => `${label}: ${line}`);
}

const columns = [...left('backend', 'model'), ...right('first', 'one run'), ...errorColumns, ...right('own dB')];

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

/** A GPU in words. */
const gpuText = ({ vendor, architecture, isSoftware, hasFloat16 }: GpuAdapter) => {
  const name = [vendor, architecture].filter((part) => part !== '').join(' ') || 'a GPU without a name';
  return `${name}${isSoftware ? ' in software' : ''}${hasFloat16 ? '' : ', without float16'}`;
};

/** Lines about the models on each backend. */
export function backendText({ backends }: Pick<CompareReport, 'backends'>): string[] {
  if (backends === undefined) return [];
  const rows = backends.flatMap(({ backend, a, b }) => [rowOf(backend, 'A', a), rowOf('', 'B', b)]);
  const about = ({ backend, runtime, adapter, a, b }: BackendReport) => [
    `${backend}: ${printable(runtime)}${adapter === undefined ? '' : `, ${printable(gpuText(adapter))}`}`,
    ...backendLines(`${backend}, A`, a, 'A on wasm'),
    ...backendLines(`${backend}, B`, b, backend === 'wasm' ? 'A' : 'B on wasm'),
  ];
  return [
    '',
    ...table(columns, rows),
    'of the worst output, against A on wasm; own dB: against the same model on wasm',
    ...(backends.some(({ adapter }) => adapter?.isSoftware)
      ? ['times on WebGPU are those of a program on the processor, not of a GPU']
      : []),
    '',
    ...backends.flatMap(about),
  ];
}

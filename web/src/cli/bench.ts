/** The command `bench`. */

import { cpus } from 'node:os';
import { type BenchOptions, type BenchPart, type BenchRow, benchParts, runBench } from '../bench.js';
import { problemOf } from '../tooling.js';
import { benchFlags } from './flags.js';
import { choiceOf, parseArguments, wholeOf } from './parse.js';
import { abortOnSignal, effort, printJson, UsageError } from './process.js';
import { painter, printLines } from './text.js';
import { benchUsage } from './usage.js';
import { usageError } from './wording.js';

const titles: Readonly<Record<BenchPart, string>> = {
  arrays: 'Arrays in wasm memory',
  blocks: "ggml's blocks",
  layers: 'Layers: y = x W',
};

/** A time in a few digits. */
function inMilliseconds(ms: number): string {
  return ms < 0.1 ? ms.toFixed(4) : ms < 10 ? ms.toFixed(3) : ms.toFixed(1);
}

function times(ratio: number | undefined): string {
  return ratio === undefined ? '' : `${ratio < 99.5 ? ratio.toPrecision(3) : ratio.toFixed(0)} x`;
}

/** A row of the table: 80 columns. */
function line(cells: readonly [string, string, string, string, string, string]): string {
  const [operation, size, ms, rate, limit, plain] = cells;
  return `${operation.padEnd(28)}${size.padEnd(22)}${ms.padStart(8)}${rate.padStart(7)}${limit.padStart(7)}${plain.padStart(8)}`.trimEnd();
}

type BenchValues = ReturnType<typeof parseArguments<typeof benchFlags>>['values'];

/** Options of the benchmark, from the command line. @throws UsageError */
function optionsOf(values: BenchValues): BenchOptions {
  const only = choiceOf('only', values.only, benchParts);
  const size = wholeOf('size', values.size);
  const width = wholeOf('width', values.width);
  return {
    quick: values.quick ?? false,
    signal: abortOnSignal('interrupted before all was measured'),
    ...(only !== undefined && { only }),
    ...(size !== undefined && { size }),
    ...(width !== undefined && { width }),
  };
}

/** Measures the library on this machine. Returns the exit code. */
export async function bench(args: string[]): Promise<number> {
  const { values, positionals } = parseArguments(args, benchFlags);
  if (values.help) {
    process.stdout.write(benchUsage());
    return 0;
  }
  if (positionals.length > 0) throw new UsageError(`bench takes no file, got ${JSON.stringify(positionals[0])}`);
  const options = optionsOf(values);
  const engine = `Node ${process.versions.node}`;
  const processor = cpus()[0]?.model.trim() ?? 'unknown processor';
  if (values.json) printJson({ ...(await measuredQuietly(options)), engine, processor });
  else {
    const { version, tier } = await measured({ ...options, onRow: rowPrinter() });
    const paint = painter(process.stdout);
    const lines = [
      '',
      `scalepoint ${version}, ${tier === 'simd' ? 'SIMD' : 'scalar'}, one thread, ${engine}, ${processor}`,
      paint('dim', 'limit: our time as a multiple of a loop that only moves the same bytes'),
      paint('dim', 'JS: the time of plain JavaScript as a multiple of ours'),
      ...(values.verbose ? [effort()] : []),
    ];
    printLines(lines);
  }
  return 0;
}

/** Measures, and shows the progress on a terminal. The caller prints JSON at the end. */
async function measuredQuietly(options: BenchOptions) {
  const shows = process.stderr.isTTY === true;
  const draw = (text: string) => shows && process.stderr.write(`\r\x1b[2K${text}`);
  draw('measuring');
  return measured({ ...options, onRow: ({ operation }) => draw(`measured: ${operation}`) }).finally(() => draw(''));
}

/** Prints rows as soon as they are measured. All of them take a minute. */
function rowPrinter(): (row: BenchRow) => void {
  const paint = painter(process.stdout);
  let part: BenchPart | undefined;
  return (row) => {
    const lines: string[] = [];
    if (row.part !== part) {
      part = row.part;
      const unit = row.unit.replace(/ ?floats\/s| weights\/s/, '/s').slice(0, 6);
      lines.push('', paint('bold', line([titles[part], '', 'ms', unit, 'limit', 'JS'])));
    }
    const rate = row.rate < 100 ? row.rate.toFixed(1) : row.rate.toFixed(0);
    const { operation, size, milliseconds, limit, plain } = row;
    lines.push(line([operation, size, inMilliseconds(milliseconds), rate, times(limit), times(plain)]));
    printLines(lines);
  };
}

/** Runs the benchmark. Options that it does not accept are wrong usage. */
async function measured(options: BenchOptions) {
  try {
    return await runBench(options);
  } catch (error) {
    const problem = problemOf(error);
    if (problem?.option !== 'size' && problem?.option !== 'width') throw error;
    throw usageError({ ...problem, option: `--${problem.option}` });
  }
}

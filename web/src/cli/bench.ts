/** The command `bench`. */

import { cpus } from 'node:os';
import { type BenchPart, type BenchRow, runBench } from '../bench.js';
import { benchFlags } from './flags.js';
import { makeCommand } from './parse.js';
import { abortOnSignal, effort, printJson, UsageError } from './process.js';
import { painter, printLines } from './text.js';
import { asUsage } from './wording.js';

const titles: Readonly<Record<BenchPart, string>> = {
  arrays: 'Arrays in wasm memory',
  blocks: "ggml's blocks",
  layers: 'Layers: y = x W',
};

/** A ratio in three digits. */
function times(ratio: number | undefined): string {
  return ratio === undefined ? '' : `${ratio < 99.5 ? ratio.toPrecision(3) : ratio.toFixed(0)} x`;
}

/** A row of the table: 80 columns. */
function line(cells: readonly [string, string, string, string, string, string]): string {
  const [operation, size, ms, rate, limit, plain] = cells;
  return `${operation.padEnd(28)}${size.padEnd(22)}${ms.padStart(8)}${rate.padStart(7)}${limit.padStart(7)}${plain.padStart(8)}`.trimEnd();
}

/** Measures the library on this machine. */
export const bench = makeCommand({
  about: 'measure speed on this machine',
  usage: ['bench [options]'],
  text: () =>
    "Measures the library on this machine, on one thread: arrays, ggml's blocks and layers, beside a loop that only reads and " +
    'writes memory, and beside plain JavaScript. They run in turns, and the fastest turn of each counts, so the ratios also ' +
    'hold on a busy machine. Takes about a minute; with --quick some seconds.',
  flags: () => benchFlags,
  examples: () => ['bench --quick', "bench --only layers --json | jq '.rows[].milliseconds'"],
  async carryOut({ values, words, positionals }) {
    if (positionals.length > 0) throw new UsageError(`bench takes no file, got ${JSON.stringify(positionals[0])}`);
    const { quick = false, only, size, width } = values;
    const options = { quick, only, size, width, signal: abortOnSignal('interrupted before all was measured') };
    const run = (onRow: (row: BenchRow) => void) =>
      runBench({ ...options, onRow }).catch((error: unknown) => Promise.reject(asUsage(error, words)));
    const engine = `Node ${process.versions.node}`;
    const processor = cpus()[0]?.model.trim() ?? 'unknown processor';
    if (values.json) {
      // Show the progress on a terminal.
      const shows = process.stderr.isTTY === true;
      const draw = (text: string) => shows && process.stderr.write(`\r\x1b[2K${text}`);
      draw('measuring');
      const result = await run(({ operation }) => draw(`measured: ${operation}`)).finally(() => draw(''));
      printJson({ ...result, engine, processor });
      return 0;
    }
    const { version, tier } = await run(rowPrinter());
    const paint = painter(process.stdout);
    printLines([
      '',
      `scalepoint ${version}, ${tier === 'simd' ? 'SIMD' : 'scalar'}, one thread, ${engine}, ${processor}`,
      paint('dim', 'limit: our time as a multiple of a loop that only moves the same bytes'),
      paint('dim', 'JS: the time of plain JavaScript as a multiple of ours'),
      ...(values.verbose ? [effort()] : []),
    ]);
    return 0;
  },
});

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
    const time = milliseconds.toFixed(milliseconds < 0.1 ? 4 : milliseconds < 10 ? 3 : 1);
    lines.push(line([operation, size, time, rate, times(limit), times(plain)]));
    printLines(lines);
  };
}

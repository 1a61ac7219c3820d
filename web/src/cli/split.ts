/** The command `split`: copies a model into several files. */
import { formats } from '../tooling.js';
import { convertingFlags } from './flags.js';
import { dryRun } from './plan.js';
import { UsageError } from './process.js';
import { convert } from './quantize.js';
import { makeQuantizeCommand, type QuantizeLine } from './request.js';
import { wrongFlag } from './wording.js';

/** Flags that cut a result into several files. */
export function cuttingFlags(): string[] {
  const options = formats.flatMap(({ options: { entries } }) => [entries.shardSize, entries.splitTensors]);
  return [...new Set(options.flatMap((option) => option?.flags ?? []).map(({ name }) => name))];
}

/** Copies a model. @param check checks the flags about files. Returns the exit code */
export function copyModel(
  line: QuantizeLine,
  command: string,
  check: (words: QuantizeLine['words']) => void,
): Promise<number> {
  const { values, words } = line;
  const other = convertingFlags.find((name) => words[name] !== undefined);
  if (other !== undefined) {
    const hint = { kind: 'takenBy', call: 'scalepoint quantize', name: `--${other}` } as const;
    throw wrongFlag(other, { kind: 'absent' }, words[other], hint);
  }
  check(words);
  const copy: QuantizeLine = { ...line, values: { ...values, to: 'copy' } };
  return values['dry-run'] ? dryRun(copy, command) : convert(copy, command);
}

export const split = makeQuantizeCommand((line) =>
  copyModel(line, 'split', (words) => {
    if (words.part !== undefined || cuttingFlags().some((name) => words[name] !== undefined)) return;
    throw new UsageError('split needs --split-size SIZE, such as 1.9GB, or --split-tensors N');
  }),
);

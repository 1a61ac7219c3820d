/** Models in several files, and in one again. Both are copies, which `quantize` makes. */

import { formats } from '../tooling.js';
import { UsageError } from './process.js';
import { copyCommand } from './quantize.js';
import { mergeUsage, splitUsage } from './usage.js';
import { wrongFlag } from './wording.js';

/** Flags that cut a result into several files. */
function cuts(): string[] {
  const names = ['shardSize', 'splitTensors'];
  const all = formats().flatMap(({ options }) => names.flatMap((name) => options.entries[name]?.flags ?? []));
  return [...new Set(all.map(({ name }) => name))];
}

/** Cuts a model into several files. Returns the exit code. */
export function split(args: string[]): Promise<number> {
  return copyCommand(args, 'split', splitUsage, (words) => {
    if (words.part !== undefined || cuts().some((name) => words[name] !== undefined)) return;
    throw new UsageError('split needs --split-size SIZE, such as 1.9GB, or --split-tensors N');
  });
}

/** Makes one file of a model in several. Returns the exit code. */
export function merge(args: string[]): Promise<number> {
  return copyCommand(args, 'merge', mergeUsage, (words) => {
    const cut = [...cuts(), 'part'].find((name) => words[name] !== undefined);
    if (cut === undefined) return;
    throw wrongFlag(cut, { kind: 'absent' }, words[cut], {
      kind: 'takenBy',
      call: 'scalepoint split',
      name: `--${cut}`,
    });
  });
}

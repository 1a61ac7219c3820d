/** The command `split`: copies a model into several files. */
import { formats } from '../tooling.js';
import { convertingFlags, type FlagGroup, writingFlags } from './flags.js';
import { formatFlags } from './format-flags.js';
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
  const other = Object.keys(convertingFlags).find((name) => words[name] !== undefined);
  if (other !== undefined) {
    const hint = { kind: 'takenBy', call: 'scalepoint quantize', name: `--${other}` } as const;
    throw wrongFlag(other, { kind: 'absent' }, words[other], hint);
  }
  check(words);
  const copy: QuantizeLine = { ...line, values: { ...values, to: 'copy' } };
  return values['dry-run'] ? dryRun(copy, command) : convert(copy, command);
}

/** The flags in the help of a copy. @param options options of formats that it takes @param output about the flag --output */
export function copyGroups(options: readonly string[], output: string): readonly FlagGroup[] {
  const { 'help-all': _, ...writing } = writingFlags;
  const taken = formatFlags((name) => options.includes(name));
  return [{ flags: { ...taken, ...writing, output: { ...writing.output, about: output, rest: () => '' } } }];
}

export const split = makeQuantizeCommand({
  about: 'copy a model into several files',
  line: () => 'split FILE --split-size 1.9GB',
  usage: ['split FILE --split-size SIZE [-o OUT]'],
  text: () =>
    'Copies a model into several files; no tensor is cut. GGUF is split as by gguf-split, and safetensors get an index as ' +
    'by transformers. scalepoint quantize takes the same options, to convert and split at once.',
  groups: () =>
    copyGroups(
      ['shardSize', 'splitTensors', 'part', 'metadata'],
      'name of the whole model, or a folder; by default that of FILE: model.gguf becomes model-00001-of-00003.gguf and so on',
    ),
  examples: () => [
    'split model.gguf --split-size 1.9GB',
    'split model.safetensors --shard-size 5GB -o shards/model.safetensors',
  ],
  carryOut: (line) =>
    copyModel(line, 'split', (words) => {
      if (words.part !== undefined || cuttingFlags().some((name) => words[name] !== undefined)) return;
      throw new UsageError('split needs --split-size SIZE, such as 1.9GB, or --split-tensors N');
    }),
});

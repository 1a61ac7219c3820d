/** The options of safetensors results, and which of them go together. */

import { rangeError } from '../../core/errors.js';
import { type Hint, mention, oneOf, onlyWith, without } from '../../core/option-problem.js';
import { checkRules, optionTable, type Rule } from '../options.js';
import { checkStatistics } from '../statistics-options.js';
import type { SafetensorsChoices } from './layouts/layout.js';
import { checkGranularity, optionEntries, type SafetensorsOptions } from './options.js';
import { granularityFor, safetensorsTargets, targetRow, targetsWith } from './targets.js';

/** A target in a result: the main one, or that of a rule. */
interface TargetUse {
  /** Prefix of option paths: empty, or `rules[2].`. */
  readonly path: string;
  readonly to: string;
  readonly row: ReturnType<typeof targetRow>;
  readonly rule: Rule | undefined;
}

/** The hint that names the target beside an option. */
const besideTarget = (to: string): Hint => ({ kind: 'with', options: [mention('to', to)] });

/** Refuses several kinds of codes, and options that do not apply to any of the targets. */
function checkKinds(choices: SafetensorsChoices, uses: readonly TargetUse[]): void {
  const { to, scheme, granularity, packed, include, range, search } = choices;
  const isTaken = (option: string) => uses.some(({ row }) => row?.options.includes(option));
  // All codes of a file have one kind, as a configuration requires.
  const coded = uses.filter(({ row }) => row?.kind !== undefined);
  const odd = coded.find(({ row }) => row?.kind !== coded[0]?.row?.kind);
  if (odd !== undefined) throw rangeError(`${odd.path}to`, without('to', coded[0]?.to), odd.to);
  if (search === 'best' && !isTaken('search')) throw rangeError('search', onlyWith('to', ...targetsWith('search')), to);
  // Rules select their weights themselves.
  if (include !== undefined && !targetRow(to)?.options.includes('include'))
    throw rangeError('include', onlyWith('to', ...targetsWith('include')), to);
  if (uses.some(({ row }) => row?.kind === 'integers')) return;
  const float8 = uses.find(({ row }) => row?.kind === 'floats')?.to;
  const allowed: string[] = [];
  if (float8 !== undefined) {
    // Allow the values that float8 has anyway.
    const beside = besideTarget(float8);
    if (granularity?.kind === 'per-group')
      throw rangeError('granularity.kind', oneOf(['per-channel']), granularity.kind, beside);
    if (scheme === 'asymmetric') throw rangeError('scheme', oneOf(['symmetric']), scheme, beside);
    if (packed === true) throw rangeError('packed', without('to', float8), packed);
    allowed.push('granularity', 'scheme', 'packed');
  }
  for (const option of ['granularity', 'scheme', 'packed', 'range', 'importance', 'method', 'activations'] as const) {
    if (choices[option] === undefined || allowed.includes(option) || isTaken(option)) continue;
    throw rangeError(option, onlyWith('to', ...targetsWith(option)), to);
  }
  // Scales of all other codes have one search.
  const single = coded.find(({ row }) => row?.kind !== 'floats');
  if (single !== undefined && range !== undefined && range !== 'min-max' && range !== 'mse')
    throw rangeError('range', oneOf(['min-max', 'mse']), range, besideTarget(single.to));
}

/** Refuses forms that loaders do not know. */
function checkIntegers(choices: SafetensorsChoices, uses: readonly TargetUse[]): void {
  const { packed, activations, scheme } = choices;
  for (const { path, to, row, rule } of uses) {
    if (row?.kind !== 'integers') continue;
    const kind = granularityFor(choices, to, rule)?.kind ?? 'per-group';
    if (packed === false && row.bits === 4) throw rangeError('packed', without(`${path}to`, to), packed);
    if (packed === false && kind === 'per-group')
      throw rangeError('packed', without(`${path}granularity.kind`, kind), packed);
    if (activations === undefined) continue;
    // Kernels for 8-bit activations take int8 weights with one scale per row.
    if (row.bits !== 8) throw rangeError('activations', onlyWith(`${path}to`, 'int8'), to);
    if (kind !== 'per-channel')
      throw rangeError('activations', onlyWith(`${path}granularity.kind`, 'per-channel'), kind);
    if (scheme === 'asymmetric') throw rangeError('activations', onlyWith('scheme', 'symmetric'), scheme);
    if (packed === true) throw rangeError('activations', without('packed', true), activations);
  }
  for (const { path, to, row, rule } of uses) {
    const asked = granularityFor(choices, to, rule);
    if (row?.knownGroups === undefined || asked === undefined) continue;
    const option = rule?.granularity === undefined ? 'granularity' : `${path}granularity`;
    if (asked.kind !== 'per-group')
      throw rangeError(`${option}.kind`, oneOf(['per-group']), asked.kind, besideTarget(to));
    if (!row.knownGroups.includes(asked.groupSize))
      throw rangeError(`${option}.groupSize`, oneOf(row.knownGroups), asked.groupSize, besideTarget(to));
  }
}

/** The options of safetensors and .npy files. */
export const options = optionTable<SafetensorsOptions>('safetensors, integers', optionEntries, (choices) => {
  checkRules(choices.rules, ({ to, granularity }, path) => {
    const row = targetRow(to);
    if (to !== undefined && row === undefined) throw rangeError(`${path}.to`, oneOf(safetensorsTargets), to);
    if (granularity === undefined) return;
    if (!row?.options.includes('granularity'))
      throw rangeError(`${path}.granularity`, onlyWith(`${path}.to`, ...targetsWith('granularity')), to);
    checkGranularity(granularity, `${path}.granularity`);
  });
  checkStatistics(choices);
  const { to, rules = [] } = choices;
  const uses: TargetUse[] = [{ path: '', to, row: targetRow(to), rule: undefined }];
  for (const [i, rule] of rules.entries())
    if (!rule.keep) uses.push({ path: `rules[${i}].`, to: rule.to, row: targetRow(rule.to), rule });
  checkKinds(choices, uses);
  checkIntegers(choices, uses);
});

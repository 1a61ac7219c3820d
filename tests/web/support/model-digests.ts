// Digests of conversions of whole files.
import {
  type ModelInput,
  type PlanOptions,
  planModel,
  type QuantizeModelOptions,
  quantizeModel,
} from 'scalepoint/model';
import { expect } from 'vitest';
import { type Digests, digestOf, outcomeOf, withoutWords } from './digests.js';

/** Digest of a conversion: its plan, and its bytes, report and printed configuration, or its error. */
async function digestOfResult(file: ModelInput, options: QuantizeModelOptions): Promise<string> {
  const { config: _, minSqnrDb: __, ...planOptions } = options;
  const planned = await outcomeOf(() => planModel(file, planOptions));
  const done = await outcomeOf(async () => {
    const { report, config, bytes } = await quantizeModel(file, { workers: 0, ...options });
    const { tensors, ...rest } = report;
    const plain = tensors.map(({ error: _, nonFinite: __, ...tensor }) => tensor);
    const errors = tensors.map(({ error, nonFinite }) => ({ error, nonFinite }));
    const facts = withoutWords({ ...rest, tensors: plain });
    const named = { bytes: await bytes(), report: facts, errors, config: JSON.stringify(config) };
    const digests: string[] = [];
    for (const [name, part] of Object.entries(named)) digests.push(`${name} ${await digestOf(part)}`);
    return digests.join(', ');
  });
  if ('error' in planned) {
    // If planning fails, the conversion must fail with the same error.
    expect(done).toEqual(planned);
    return planned.error;
  }
  // The sizes of the files are those of their bytes.
  const { files: ___, ...contents } = planned.value;
  const plan = `plan ${await digestOf(withoutWords(contents), JSON.stringify(contents.quantizationConfig))}`;
  return `${plan}, ${'error' in done ? done.error : done.value}`;
}

/** The name of a case, made from its options, such as `int4 asymmetric groups of 32 mse packed`. */
export function nameOf({ to, ...options }: QuantizeModelOptions): string {
  const words = Object.entries(options).map(([key, value]) => {
    if (key === 'granularity') {
      const { kind, groupSize } = value as { kind: string; groupSize?: number };
      return groupSize === undefined ? kind : `groups of ${groupSize}`;
    }
    if (value === undefined) return '';
    if (key === 'rules') {
      return (value as PlanOptions['rules'] & object)
        .map(({ match, keep, to: target, granularity }) => {
          const size = granularity === undefined ? '' : ` ${JSON.stringify(granularity)}`;
          return `${match}=${keep ? 'keep' : target}${size}`;
        })
        .join(' ');
    }
    return typeof value === 'string' ? value : `${key} ${JSON.stringify(value)}`;
  });
  return [to, ...words].filter((word) => word !== '').join(' ');
}

/** Digests of the conversions of a file with each of the options. */
export async function digestsOf(file: ModelInput, list: readonly QuantizeModelOptions[]): Promise<Digests> {
  const digests: Digests = {};
  for (const options of list) digests[nameOf(options)] = await digestOfResult(file, options);
  return digests;
}

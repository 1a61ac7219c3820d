// Errors as Node prints them: no field that is not known.
import { inspect } from 'node:util';
import { load } from 'scalepoint';
import { inspectModel, QualityError } from 'scalepoint/model';
import { expect, it } from 'vitest';
import { ScalepointError } from '../../../web/src/core/errors.js';
import { thrownBy } from '../support/support.js';

/** The error without its stack. */
const printed = (error: unknown) => inspect(error, { depth: null }).replace(/\n +at .*/g, '');

it('prints the known fields of a ScalepointError alone', async () => {
  const plain = new ScalepointError('BAD_FILE', 'it is bad');
  expect(Object.keys(plain).sort()).toEqual(['code', 'name', 'statement']);
  expect(printed(plain)).not.toContain('undefined');
  const placed = new ScalepointError('BAD_FILE', 'it is bad', { tensor: 'a', byteOffset: 0, path: undefined });
  expect(Object.keys(placed).sort()).toEqual(['byteOffset', 'code', 'name', 'statement', 'tensor']);
  expect(printed(await inspectModel('no such file').catch((error: unknown) => error))).not.toContain('undefined');
  expect(printed(new QualityError('too low', 'a.weight', anyReport))).not.toContain('undefined');
});

const anyReport = { tensors: [], totals: {}, notes: [] } as never;

it('prints no empty fields of the mistake in an argument', async () => {
  const sp = await load();
  const calls: (() => unknown)[] = [
    () => sp.quantize([1], { dtype: 'int9' as 'int8' }),
    () => sp.quantize([1], { shape: [2] }),
    () => sp.quantize([1], { granularity: { kind: 'per-channel', axis: 5 } }),
    () => sp.index([1, 2], { shape: [1, 2] }).search([1, 2], 0),
  ];
  for (const call of calls) expect(printed(thrownBy(call))).not.toContain('undefined');
});

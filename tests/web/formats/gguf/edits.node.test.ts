// Edits of the metadata of GGUF files.
import { describe, expect, it } from 'vitest';
import { inspectModel, type PlanOptions, planModel, quantizeModel } from '../../../../web/src/model.js';
import { expectBytes, rejectionOf } from '../../support/models.js';
import { everyPair, tinyLlama } from '../../support/tiny-llama.js';

const file = tinyLlama({ layers: 1, pairs: everyPair });
const copied = async (metadata: PlanOptions['metadata'], from = file) =>
  (await quantizeModel(from, { to: 'copy', metadata, workers: 0 })).bytes();

describe('edits of metadata', () => {
  it('set values of every type, and leave the rest as it is', async () => {
    const edits = {
      'general.name': 'Ein Name 🙂',
      'tokenizer.chat_template': '{% for m in messages %}{{ m }}\n{% endfor %}'.repeat(100),
      'test.u8': { int: 4_294_967_295 },
      'test.f64': { float: 0.1 },
      'test.no': true,
      'a.new.key': { int: 0 },
    };
    const result = await copied(edits);
    const [before, after] = [await inspectModel(file), await inspectModel(result)];
    expect(after.metadata).toEqual({
      ...before.metadata,
      ...edits,
      'test.u8': 4_294_967_295,
      'test.f64': Math.fround(0.1),
      'a.new.key': 0,
    });
    expect(Object.keys(after.metadata).slice(-6)).toEqual(Object.keys(edits));
    for (const [i, { byteOffset, bytes, ...tensor }] of before.tensors.entries()) {
      const { byteOffset: at, ...other } = after.tensors[i]!;
      expect(other).toEqual({ ...tensor, bytes });
      expectBytes(result.subarray(at, at + bytes), file.subarray(byteOffset, byteOffset + bytes));
    }
    expectBytes(await copied({}), file);
    // The last edit is the one that counts, and a second one with the same value changes nothing more.
    expectBytes(await copied(edits, result), result);
  });

  it('are made while a model is quantized and split', async () => {
    const options = { to: 'Q8_0', metadata: { 'general.name': 'x'.repeat(100) }, workers: 0 } as const;
    const { bytes } = await quantizeModel(file, options);
    expect((await inspectModel(await bytes())).metadata['general.name']).toBe('x'.repeat(100));
    const split = await planModel(file, { to: 'Q8_0', metadata: options.metadata, shardSize: 3000 });
    expect(split.totals.bytesAfter).toBeGreaterThan((await bytes()).length);
  });

  it.each<[unknown, typeof RangeError | typeof TypeError, string, object]>([
    [{ 'general.alignment': { int: 64 } }, RangeError, 'metadata["general.alignment"]', { kind: 'absent' }],
    [{ 'split.no': { int: 1 } }, RangeError, 'metadata["split.no"]', { kind: 'absent' }],
    [{ 'split.count': { int: 1 } }, RangeError, 'metadata["split.count"]', { kind: 'absent' }],
    [{ 'split.tensors.count': { int: 1 } }, RangeError, 'metadata["split.tensors.count"]', { kind: 'absent' }],
    [{ 'general.name': { int: 3 } }, RangeError, 'metadata["general.name"]', { kind: 'type', types: ['string'] }],
    [{ 'test.yes': 'true' }, RangeError, 'metadata["test.yes"]', { kind: 'type', types: ['bool'] }],
    [{ 'test.u32': { float: 1 } }, RangeError, 'metadata["test.u32"]', { kind: 'type', types: ['u32'] }],
    [{ 'test.f32': { int: 1 } }, RangeError, 'metadata["test.f32"]', { kind: 'type', types: ['f32'] }],
    [{ 'test.array.texts': 'a' }, RangeError, 'metadata["test.array.texts"]', { kind: 'type' }],
    [
      { 'a.b': { int: -1 } },
      RangeError,
      'metadata["a.b"].int',
      { kind: 'number', whole: true, min: 0, max: 4294967295 },
    ],
    [
      { 'a.b': { int: 2 ** 32 } },
      RangeError,
      'metadata["a.b"].int',
      { kind: 'number', whole: true, min: 0, max: 4294967295 },
    ],
    [{ 'a.b': { int: 1.5 } }, RangeError, 'metadata["a.b"].int', { kind: 'number', whole: true }],
    [{ 'a.b': { float: 1e39 } }, RangeError, 'metadata["a.b"].float', { kind: 'number', finite: true }],
    [{ 'a.b': { float: Number.NaN } }, RangeError, 'metadata["a.b"].float', { kind: 'number', finite: true }],
    [{ 'a.b': { int: 1, float: 1 } }, TypeError, 'metadata["a.b"]', { kind: 'anyOf' }],
    [{ 'a.b': {} }, TypeError, 'metadata["a.b"]', { kind: 'anyOf' }],
    [{ 'a.b': 7 }, TypeError, 'metadata["a.b"]', { kind: 'anyOf' }],
    [{ 'a.b': null }, TypeError, 'metadata["a.b"]', { kind: 'anyOf' }],
    [{ 'a.b': '\ud800' }, RangeError, 'metadata["a.b"]', { kind: 'type', types: ['text of whole characters'] }],
    [{ '': 'x' }, RangeError, 'metadata[""]', { kind: 'number', min: 1, max: 127, unit: 'bytes' }],
    [
      { ['é'.repeat(64)]: 'x' },
      RangeError,
      `metadata["${'é'.repeat(64)}"]`,
      { kind: 'number', min: 1, max: 127, unit: 'bytes' },
    ],
    [['general.name'], TypeError, 'metadata', { kind: 'type', types: ['object'] }],
    ['general.name', TypeError, 'metadata', { kind: 'type', types: ['object'] }],
  ])('%j are refused', async (metadata, type, option, expected) => {
    for (const call of [planModel, quantizeModel]) {
      const error = await rejectionOf(call(file, { to: 'Q8_0', metadata: metadata as PlanOptions['metadata'] }));
      expect(error).toBeInstanceOf(type);
      expect(error).toMatchObject({ option, problem: { option, expected } });
    }
  });
});

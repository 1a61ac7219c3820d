// Whole files beside those that llama_model_quantize writes, byte by byte.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openSource } from '../../../../web/src/formats/files/open.js';
import { ggmlType } from '../../../../web/src/formats/gguf/contents.js';
import { readGguf } from '../../../../web/src/formats/gguf/header.js';
import type { GgufTarget } from '../../../../web/src/formats/gguf/targets.js';
import { type QuantizeModelOptions, quantizeModel } from '../../../../web/src/model.js';
import { activationsOf, matrixFile, meansOf } from '../../support/importance.js';
import { fileTypes, llamaQuantize, type NativeOptions, nativeTargets, splitHeaders } from '../../support/llama.js';
import { expectBytes } from '../../support/models.js';
import { needNative } from '../../support/native.js';
import { expectSameFile, native } from '../../support/native-files.js';
import { isSlowFile } from '../../support/slow-native.js';
import { everyPair, type TinyOptions, tinyLlama } from '../../support/tiny-llama.js';

needNative();

/** Fails unless quantizeModel makes the same files. */
async function expectNative(
  file: Uint8Array<ArrayBuffer>,
  targets: readonly GgufTarget[] = nativeTargets,
  options: Omit<QuantizeModelOptions, 'to'> = {},
  nativeOptions: NativeOptions = {},
): Promise<void> {
  for (const to of targets) {
    const expected = llamaQuantize(file, fileTypes[to]!, nativeOptions);
    const made = quantizeModel(file, { workers: 0, ...options, to });
    if (typeof expected === 'string') {
      // It refuses nothing but rows that Q1_0 does not fit, and types that take an importance matrix.
      expect(expected).toMatch(
        /no tensor type fallback is defined for type q1_0|this quantization requires an imatrix/,
      );
      await expect(made).rejects.toThrow(/has no replacement|^importance: required/);
      continue;
    }
    const result = await made;
    expectSameFile(await result.bytes(), expected, to);
  }
}

describe('a GGUF file', () => {
  it.each<[what: string, options: TinyOptions]>([
    ['F32 weights', { source: 'F32', rows: 33 }],
    ['F16 weights', { source: 'F16', rows: 33 }],
    ['BF16 weights', { source: 'BF16', rows: 33 }],
    ['tied embeddings and all metadata', { tied: true, pairs: everyPair }],
    ['rows of 288, 64 and 256', { embedding: 288, feedForward: 256, attention: 64 }],
    ['rows of 100, 48 and 31, tied', { embedding: 100, feedForward: 48, attention: 31, tied: true, source: 'F32' }],
    ['rows of 1536', { embedding: 1536, rows: 3, layers: 1 }],
    ['alignment 16', { alignment: 16, attention: 64, feedForward: 48 }],
    ['alignment 64', { alignment: 64, attention: 64, feedForward: 48 }],
    ['alignment 128 and a tied embedding', { alignment: 128, tied: true }],
    ['17 layers', { layers: 17, rows: 2, heads: 8 }],
    ['attn_qkv and biases', { qkv: true, biases: true, layers: 9 }],
    ['4 experts', { experts: 4, rows: 5, source: 'BF16' }],
    ['8 experts', { experts: 8, rows: 3 }],
  ])('with %s becomes what llama-quantize makes of it', async (_what, options) => {
    await expectNative(tinyLlama(options));
  });

  it('becomes it without the mixture, and with rules', async () => {
    const file = tinyLlama({ layers: 3, feedForward: 288 });
    await expectNative(file, nativeTargets, { pure: true }, { pure: true });
    const rules = [
      { match: /ffn_up/, to: 'MXFP4' },
      { match: /ffn/, to: 'Q3_K' },
      { match: /attn_q/, to: 'BF16' },
    ];
    const overrides = rules.map(({ match, to }) => [match.source, ggmlType(to).id] as const);
    await expectNative(file, ['Q8_0', 'Q4_K_M'], { rules }, { overrides });
  });

  it.each<GgufTarget>(nativeTargets.filter((to) => !to.startsWith('F')))(
    'in %s becomes what llama-quantize makes of it',
    async (from) => {
      const floats = tinyLlama({ source: 'F32', layers: 1, rows: 5 });
      const { tensors } = await readGguf(await openSource(floats));
      const known = activationsOf(tensors);
      const importance = matrixFile(known);
      const file = isSlowFile(from)
        ? await (await quantizeModel(floats, { to: from, importance, workers: 0 })).bytes()
        : native(floats, from, { importance: meansOf(known) });
      const requantize = { requantize: true };
      await expectNative(file, ['Q8_0', 'Q5_1', 'Q3_K_M', 'Q6_K', 'F16', 'BF16', 'F32'], requantize, requantize);
    },
  );
});

describe('MXFP4, which llama-quantize has for experts alone', () => {
  /** Its types as --tensor-type states them: 6 bits for the output, or 8 where rows are short, and MXFP4 for the rest. */
  const stated = (output: string, rest: string) =>
    [
      [output, ggmlType('Q6_K').id],
      [rest, ggmlType('MXFP4').id],
    ] as const;

  it.each<[what: string, options: TinyOptions]>([
    ['F16 weights', { rows: 33 }],
    ['tied embeddings of BF16', { tied: true, source: 'BF16' }],
    ['rows of 288, 64 and 256', { embedding: 288, feedForward: 256, attention: 64, source: 'F32' }],
    ['experts', { experts: 4, layers: 3 }],
  ])('is what llama-quantize makes of %s if each type is stated', async (_what, options) => {
    const file = tinyLlama(options);
    const overrides = stated(options.tied === true ? 'token_embd' : '^output\\.weight', 'weight');
    const expected = native(file, 'MXFP4_MOE', { overrides });
    const result = await quantizeModel(file, { to: 'MXFP4', workers: 0 });
    expectSameFile(await result.bytes(), expected, 'MXFP4');
    const { tensors } = await readGguf(await openSource(expected));
    expect(tensors.some(({ name, dtype }) => name === 'blk.0.attn_q.weight' && dtype === 'MXFP4')).toBe(true);
  });
});

describe('a split GGUF file', () => {
  it('is read by llama.cpp, and becomes what it makes of it', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'scalepoint-native-'));
    try {
      const file = tinyLlama({ layers: 3, rows: 33 });
      const output = join(folder, 'm.gguf');
      const { files } = await quantizeModel(file, { to: 'copy', shardSize: 60_000, workers: 0, output });
      expect(files.length).toBeGreaterThan(2);
      const [first, ...splits] = await Promise.all(files.map(({ name }) => readFile(join(folder, name))));
      const expected = native(first!, 'Q4_K_M', { splits });
      expectBytes(
        await (await quantizeModel(join(folder, files[0]!.name), { to: 'Q4_K_M', workers: 0 })).bytes(),
        expected,
      );
      expectBytes(await (await quantizeModel(file, { to: 'Q4_K_M', workers: 0 })).bytes(), expected);
      expect(llamaQuantize(first!, 15, { splits: splits.slice(1) })).toBeTypeOf('string');
      // Byte for byte the headers of gguf-split.
      await writeFile(output, file);
      const headers = splitHeaders(output, 60_000);
      expect(headers).toHaveLength(files.length);
      for (const [i, one] of [first!, ...splits].entries())
        expectBytes(one.subarray(0, headers[i]!.length), headers[i]!);
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

describe('the metadata of a GGUF file', () => {
  it('is edited as llama-quantize does it with --override-kv', async () => {
    const file = tinyLlama({ layers: 1, pairs: everyPair });
    const metadata: NonNullable<QuantizeModelOptions['metadata']> = {
      'llama.context_length': { int: 4096 },
      'general.name': 'Ein Name 🙂',
      'llama.attention.layer_norm_rms_epsilon': { float: 1e-6 },
      'tokenizer.ggml.add_bos_token': false,
      'test.yes': true,
      'general.file_type': { int: 15 },
      'new.int': { int: 2 ** 32 - 1 },
      'test.u16': { int: 3 },
    };
    const values = Object.entries(metadata).map(([key, value]) => {
      if (typeof value !== 'object') return [key, value] as const;
      return [key, 'int' in value ? BigInt(value.int) : value.float] as const;
    });
    await expectNative(file, ['Q8_0', 'Q4_K_M'], { metadata }, { metadata: values });
  });
});

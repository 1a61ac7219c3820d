import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { gguf } from '@huggingface/gguf';
import { describe, expect, it } from 'vitest';
import type { ByteSource } from '../../../../web/src/formats/files/bytes.js';
import { openSource } from '../../../../web/src/formats/files/open.js';
import { ggmlType, ggmlTypes } from '../../../../web/src/formats/gguf/contents.js';
import { type GgufHeader, readGguf } from '../../../../web/src/formats/gguf/header.js';
import type { GgufTarget } from '../../../../web/src/formats/gguf/targets.js';
import {
  fileTypes,
  llamaQuantize,
  type NativeOptions,
  nativeTargets,
  ggmlTypes as nativeTypes,
} from '../../support/llama.js';
import { needNative } from '../../support/native.js';
import { type FlatPlan, type GgufOptions, planGguf } from '../../support/plans.js';
import { everyPair, ggufFile, type Pair, type Stored, type TinyOptions, tinyLlama } from '../../support/tiny-llama.js';

needNative();

const quantized = nativeTargets.filter((to) => !['F32', 'F16', 'BF16'].includes(to));

const read = async (file: Uint8Array) => readGguf(await openSource(file));

/** The result of llama-quantize; fails if it refuses. */
function native(file: Uint8Array, to: string, options?: NativeOptions): Uint8Array<ArrayBuffer> {
  const result = llamaQuantize(file, fileTypes[to]!, options);
  return typeof result === 'string' ? expect.fail(`llama-quantize refused ${to}: ${result}`) : result;
}

/** Where a plan and a file differ, told by tensors. */
function differences(plan: FlatPlan, { tensors }: GgufHeader): string[] {
  const planned = new Map(plan.tensors.flatMap(({ parts }) => parts.map((part) => [part.name, part])));
  const told = tensors.flatMap(({ name, dtype, bytes, byteOffset }) => {
    const part = planned.get(name);
    const same = part?.dtype === dtype && part.bytes === bytes && part.byteOffset === byteOffset;
    return same ? [] : [`${name}: ${part?.dtype} at ${part?.byteOffset} instead of ${dtype} at ${byteOffset}`];
  });
  return tensors.length === planned.size ? told : [...told, `${planned.size} tensors instead of ${tensors.length}`];
}

/** Holds the header, the places of the tensors and the size of plans to what llama-quantize writes. */
async function expectNative(
  file: Uint8Array,
  targets: readonly GgufTarget[] = nativeTargets,
  options: GgufOptions = {},
  nativeOptions: NativeOptions = {},
): Promise<void> {
  const header = await read(file);
  // The weights are not compared, and llama-quantize is much faster with zeros.
  file.fill(0, Math.min(...header.tensors.map(({ byteOffset }) => byteOffset)));
  for (const to of targets) {
    const expected = llamaQuantize(file, fileTypes[to]!, nativeOptions);
    if (typeof expected === 'string') {
      // It refuses nothing but rows that Q1_0 does not fit, and types that take an importance matrix.
      expect(expected).toMatch(
        /no tensor type fallback is defined for type q1_0|this quantization requires an imatrix/,
      );
      expect(() => planGguf(header, to, options)).toThrow(/has no replacement|^importance: required/);
      continue;
    }
    const plan = planGguf(header, to, options);
    const made = await read(expected);
    expect(differences(plan, made), to).toEqual([]);
    const start = expected.subarray(0, plan.header.length);
    expect(Buffer.compare(plan.header, start), `the header of ${to}`).toBe(0);
    expect(plan.size, to).toBe(expected.length);
    const first = Math.min(...made.tensors.map(({ byteOffset }) => byteOffset));
    expect(first - plan.header.length).toBeLessThan(32);
  }
}

const weight = (name: string, ne: readonly number[] = [256, 3], dtype = 'F16'): Stored => ({ name, dtype, ne });

describe('a GGUF plan beside llama-quantize', () => {
  it('knows the types of ggml', () => {
    const known = nativeTypes().filter(({ elements }) => elements > 0);
    expect(ggmlTypes).toEqual(known.map(({ name, ...type }) => ({ name: name.toUpperCase(), ...type })));
  });

  it.each<[what: string, options: TinyOptions]>([
    ['untied embeddings', {}],
    ['tied embeddings', { tied: true }],
    ['every type of metadata', { pairs: everyPair }],
    ['weights in F32', { source: 'F32' }],
    ['weights in BF16', { source: 'BF16', tied: true }],
    ['rows of 288, 64 and 256', { embedding: 288, feedForward: 256, attention: 64 }],
    ['rows of 256, 48 and 96', { feedForward: 48, attention: 96 }],
    ['rows of 96, 40 and 256, tied', { embedding: 96, feedForward: 40, tied: true }],
    ['rows of 100, 512 and 31', { embedding: 100, feedForward: 512, attention: 31 }],
    ['a single layer', { layers: 1 }],
    ['8 layers', { layers: 8, rows: 2 }],
    ['17 layers', { layers: 17, rows: 2 }],
    ['33 layers', { layers: 33, rows: 2 }],
    ['4 query heads for each of keys', { heads: 8, headsKv: 2 }],
    ['3 and a half query heads for each of keys', { heads: 7, headsKv: 2 }],
    ['as many heads of keys as of queries', { heads: 8, headsKv: 8 }],
    ['heads by layers', { heads: 8, headsKv: [2, 8] }],
    ['attn_qkv, biases and 9 layers', { qkv: true, biases: true, layers: 9 }],
    ['one expert', { experts: 1, layers: 9 }],
    ['4 experts', { experts: 4, layers: 9 }],
    ['8 experts', { experts: 8, layers: 9 }],
    ['80 layers and few heads of keys, as 70 B parameters have', { layers: 80, rows: 2, heads: 64, headsKv: 8 }],
    ['80 layers and all heads, as 65 B parameters have', { layers: 80, rows: 2, heads: 64, headsKv: 64 }],
    ['version 2', { version: 2 }],
    ['alignment 32', { alignment: 32 }],
    [
      'quantization stated before',
      {
        pairs: [
          ['split.no', 'u16', 0],
          ['split.count', 'u16', 1],
          ['split.tensors.count', 'i32', 21],
          ['general.quantization_version', 'u32', 1],
          ['last', 'string', 'one'],
        ],
      },
    ],
  ])('equals it for every target on a model with %s', async (_what, options) => {
    await expectNative(tinyLlama(options));
  });

  it.each([false, true])('equals it on names of all sorts, tied: %s', async (tied) => {
    const names = [
      'position_embd.weight',
      'token_types.weight',
      'v.position_embd.weight',
      'alpha',
      'beta',
      'weight',
      'xweight',
      'a.weight.b',
      'per_layer_token_embd.weight',
      'per_layer_model_proj.weight',
      'altup_proj.weight',
      'blk.0.laurel_l.weight',
      'blk.0.ssm_conv1d.weight',
      'blk.0.shortconv.conv.weight',
      'blk.0.shortconv.in_proj.weight',
      'blk.0.indexer.k_proj.weight',
      'blk.0.indexer.proj.weight',
      'blk.0.attn_rel_b.weight',
      'blk.0.attn_v.weight_scale',
      'blk.1.attn_kv_b.weight',
      'blk.0.attn_q_norm.weight',
      'blk.0.attn_v_diff.weight',
      'blk.0.ffn_down_shexp.weight',
      'blk.0.ffn_gate_tid2eid.weight',
      'blk.12.attn_output.weight',
      'blk.3x.ffn_down.weight',
      'blk.-1.ffn_up.weight',
      'blk. 2.ffn_up.weight',
      'blk.+1.ffn_up.weight',
      'v.blk.0.ffn_down.weight',
      'my.output.weight',
      'Zed.weight',
      'é.weight',
      '\uffee.weight',
      '\u{1f642}.weight',
      'v.patch_embd.weight',
      'v.patch_merger.weight',
      'v.rel_pos_h.weight',
      'sam.pos_embd.weight',
      'sam.neck.0.weight',
      'sam.net_2.weight',
      'a.rvq.codebook.weight',
      'mm.a.code_embd.weight',
      ...['first', 'w1', 'v0', 'a2', 'g1', 'g0', 'decay_w2', 'lerp_fused', 'key'].map(
        (part) => `blk.0.time_mix_${part}.weight`,
      ),
    ];
    const tensors = names.map((name) => weight(name));
    await expectNative(tinyLlama({ layers: 9, rows: 2, tied, tensors }));
  });

  it('equals it on shapes of all sorts', async () => {
    const shapes = [[256, 1], [256, 1, 2], [1, 2], [1], [256, 2, 1, 1], [], [256, 2, 3], [32, 5], [255, 2]];
    const tensors = shapes.map((ne, i) => weight(`s${i}.weight`, ne));
    await expectNative(tinyLlama({ tensors }));
  });

  it.each<[architecture: string, layers: number]>([
    ['llama-embed', 80],
    ['qwen2', 80],
    ['deci', 80],
    ['olmo', 80],
    ['jais2', 68],
    ['falcon', 33],
    ['qwen3', 80],
    ['bert', 9],
  ])('equals it on the architecture %s with %i layers', async (architecture, layers) => {
    const pairs: Pair[] = [[`${architecture}.attention.layer_norm_epsilon`, 'f32', 1e-5]];
    for (const headsKv of [8, 64]) {
      const file = tinyLlama({ architecture, layers, rows: 2, heads: 64, headsKv, pairs });
      await expectNative(file, ['Q2_K', 'Q3_K_M', 'Q3_K_L', 'Q4_K_S', 'Q4_K_M', 'IQ4_NL']);
    }
  });

  it('equals it without the mixture', async () => {
    const pure = { pure: true };
    await expectNative(tinyLlama({ layers: 9 }), nativeTargets, pure, pure);
    const odd = tinyLlama({ tied: true, embedding: 288, feedForward: 48, attention: 128 });
    await expectNative(odd, nativeTargets, pure, pure);
  });

  it.each<[what: string, rules: readonly (readonly [RegExp, string])[], pure?: boolean]>([
    ['one type', [[/attn_v/, 'Q6_K']]],
    [
      'the type of the target before another',
      [
        [/attn_v/, 'Q4_K'],
        [/attn/, 'Q8_0'],
      ],
    ],
    [
      'types that do not fit',
      [
        [/ffn_down/, 'Q5_K'],
        [/ffn/, 'Q2_K'],
      ],
    ],
    [
      'floats',
      [
        [/ffn_down/, 'F32'],
        [/ffn_up/, 'BF16'],
        [/attn/, 'F16'],
      ],
    ],
    [
      'norms, embeddings and the output',
      [
        [/norm/, 'Q8_0'],
        [/token_embd|output/, 'Q4_0'],
      ],
    ],
    ['MXFP4', [[/ffn|attn_q/, 'MXFP4']]],
    ['one type, without the mixture', [[/ffn/, 'Q6_K']], true],
  ])('equals --tensor-type with rules for %s', async (_what, rules, pure = false) => {
    const options = { pure, rules: rules.map(([match, to]) => ({ match, to })) };
    const overrides = rules.map(([match, to]) => [match.source, ggmlType(to).id] as const);
    for (const feedForward of [288, 48]) {
      await expectNative(tinyLlama({ layers: 9, feedForward }), quantized, options, { pure, overrides });
    }
  });

  it.each(['Q8_0', 'Q4_K_M', 'Q5_0', 'Q2_K', 'Q3_K_L', 'IQ4_NL', 'BF16'])('equals it on a file in %s', async (from) => {
    const file = native(tinyLlama({ layers: 9, source: 'F32', feedForward: 288 }), from);
    await expectNative(file, nativeTargets, { requantize: true }, { requantize: true });
    // Targets of floats take quantized tensors without `requantize`.
    const header = await read(file);
    const planned = planGguf(header, 'F32');
    expect(planned).toEqual(planGguf(header, 'F32', { requantize: true }));
    expect(typeof llamaQuantize(file, fileTypes.F32!)).toBe(from === 'BF16' ? 'object' : 'string');
  });

  it('refuses what llama-quantize refuses', async () => {
    for (const dtype of ['I32', 'F64']) {
      const file = tinyLlama({ tensors: [weight('a.weight', [256, 2], dtype)] });
      expect(llamaQuantize(file, fileTypes.Q8_0!)).toMatch(/cannot dequantize/);
      const header = await read(file);
      expect(() => planGguf(header, 'Q8_0')).toThrow(expect.objectContaining({ code: 'UNSUPPORTED_DTYPE' }));
    }
  });

  it.each([1, 8, 16, 64, 128, 4096])('can write what is read again with alignment %i', async (alignment) => {
    const file = tinyLlama({ alignment, layers: 3, attention: 64, feedForward: 48, pairs: everyPair });
    const header = await read(file);
    for (const to of ['Q4_K_M', 'Q8_0', 'F16'] as const) {
      // llama-quantize pads to 32 whatever the metadata states; then it misses its own tensors when it reads them. The plan differs in
      // nothing but the stated alignment.
      const expected = native(file, to);
      const plan = planGguf(header, to, { fixAlignment: true });
      expect(plan.size).toBe(expected.length);
      const stated = Buffer.from(plan.header).indexOf('general.alignment') + 'general.alignment'.length + 4;
      const restated = expected.slice();
      restated.set([32, 0, 0, 0], stated);
      const asStated = Buffer.compare(plan.header, expected.subarray(0, plan.header.length)) === 0;
      if (!asStated) expect(Buffer.compare(plan.header, restated.subarray(0, plan.header.length))).toBe(0);
      restated.set(plan.header);
      expect(differences(plan, await read(restated))).toEqual([]);
      native(restated, 'F32', { requantize: true });
    }
  });

  it('makes headers that @huggingface/gguf reads', async () => {
    const work = mkdtempSync(join(tmpdir(), 'scalepoint-gguf-'));
    try {
      const header = await read(tinyLlama({ layers: 3, experts: 4, pairs: everyPair, alignment: 64 }));
      for (const to of ['Q4_K_M', 'IQ4_NL', 'BF16'] as const) {
        const plan = planGguf(header, to);
        const file = new Uint8Array(plan.size);
        file.set(plan.header);
        const path = join(work, `${to}.gguf`);
        writeFileSync(path, file);
        const parsed = await gguf(path, { allowLocalFile: true });
        const metadata = new Map<string, unknown>(Object.entries(parsed.metadata));
        expect(metadata.get('general.file_type')).toBe(fileTypes[to]);
        const planned = new Map(plan.tensors.flatMap(({ parts }) => parts.map((part) => [part.name, part])));
        expect(parsed.tensorInfos.length).toBe(planned.size);
        for (const { name, dtype, shape, offset } of parsed.tensorInfos) {
          const part = planned.get(name)!;
          expect(dtype, name).toBe(ggmlType(part.dtype).id);
          expect(Number(offset + parsed.tensorDataOffset), name).toBe(part.byteOffset);
          expect(shape.map(Number).reduce((a, b) => a * b, 1)).toBe(part.shape.reduce((a, b) => a * b, 1));
        }
      }
    } finally {
      rmSync(work, { recursive: true });
    }
  });
});

describe('memory', () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const used = () => {
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  };

  it('stays below four times the header with a vocabulary of 150,000', async () => {
    const tokens = Array.from({ length: 150_000 }, (_, i) => `token ${i} of the vocabulary`);
    const pairs: Pair[] = [
      ['tokenizer.ggml.tokens', 'array', 'string', tokens],
      ['tokenizer.ggml.scores', 'array', 'f32', tokens.map(() => 0)],
      ['tokenizer.ggml.merges', 'array', 'string', tokens],
    ];
    const file = ggufFile({ pairs, tensors: [{ name: 'w', dtype: 'F32', ne: [4] }] });
    const opened = await openSource(new Blob([file]));
    let most = 0;
    collect();
    const before = used();
    // Memory in use at each read, without garbage.
    const source: ByteSource = {
      ...opened,
      async read(begin, end) {
        const bytes = await opened.read(begin, end);
        collect();
        most = Math.max(most, used() - before);
        return bytes;
      },
    };
    const header = await readGguf(source);
    collect();
    most = Math.max(most, used() - before);
    expect(header.dataOffset).toBeGreaterThan(10_000_000);
    expect(most).toBeLessThan(4 * header.dataOffset);
    // The views of the pairs keep the buffer, which is half as long again at most.
    // The engine frees bytes of Blobs in turns of the event loop.
    await expect
      .poll(() => {
        collect();
        return used() - before;
      })
      .toBeLessThan(1.6 * header.dataOffset + 1_000_000);
    expect(header.pairs.length).toBe(3);
  });
});

// Decoders for transformers.js: graphs of tiny models, run by onnxruntime, beside a forward pass in float64 that knows Hugging Face's
// definitions only.
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as ort from 'onnxruntime-web';
import { planModel, quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { furthest, largest } from '../../support/decoder-tables.js';
import { type Decoder, decoderStates } from '../../support/forward.js';
import { expectBytes } from '../../support/models.js';
import { decoderConfig, plainTokenizer } from '../../support/tiny-huggingface.js';
import { cases, expectDefinition, filesOf, near, tokens, weightsOf } from './decoder-cases.js';
import { type FolderJson, makeFolder, RunningDecoder } from './runs.js';

/** Targets with codes, or with float16. */
const coded = ['fp16', 'q8', 'int8', 'uint8', 'q4', 'q4f16', 'bnb4', 'q8-blocks'] as const;

describe('logits in float32 are those of the definition', () => {
  it.each(cases)('$name', async (one) => {
    const { files } = await makeFolder(weightsOf(one), filesOf(one), { to: 'onnx:fp32' });
    const decoder = await RunningDecoder.open(files.get('onnx/model.onnx')!);
    try {
      await expectDefinition(one, decoder);
    } finally {
      await decoder.close();
    }
  });
});

describe('a folder of bfloat16', () => {
  const one = cases.find(({ name }) => name === 'Qwen 3')!;

  it.each(coded)('as onnx:%s has the bytes that its float32 has in that type', async (to) => {
    const floats = await makeFolder(weightsOf(one), filesOf(one), { to: 'onnx:fp32' }, 'BF16');
    const direct = await makeFolder(weightsOf(one), filesOf(one), { to: `onnx:${to}` }, 'BF16');
    const [file = ''] = [...direct.files.keys()].filter((name) => name.endsWith('.onnx'));
    const model = floats.files.get('onnx/model.onnx')!;
    const expected = await quantizeModel(model, { to, workers: 0 });
    expectBytes(direct.files.get(file)!, await expected.bytes(), file);
    expect(direct.result.report.totals.quantized).toBe(expected.report.totals.quantized);
  });
});

/** Outputs for one text behind an empty cache. */
async function statesOf(file: Uint8Array, ids: readonly number[]) {
  const session = await ort.InferenceSession.create(file.slice(), { logSeverityLevel: 3 });
  const whole = (values: readonly number[]) =>
    new ort.Tensor('int64', BigInt64Array.from(values, BigInt), [1, ids.length]);
  const feeds: Record<string, ort.Tensor> = {
    input_ids: whole(ids),
    attention_mask: whole(ids.map(() => 1)),
    position_ids: whole(ids.map((_, i) => i)),
  };
  for (const name of session.inputNames.filter((one) => one.startsWith('past')))
    feeds[name] = new ort.Tensor('float32', new Float32Array(0), [1, 2, 0, 24]);
  try {
    return await session.run(feeds);
  } finally {
    await session.release();
  }
}

describe('vectors of texts', () => {
  const one = cases.find(({ name }) => name === 'Qwen 3')!;
  const files = {
    ...filesOf(one),
    'modules.json': ['Transformer', 'Pooling', 'Normalize'].map((name, i) => ({
      type: `sentence_transformers.models.${name}`,
      path: i === 0 ? '' : `${i}_${name}`,
    })),
    '1_Pooling/config.json': { pooling_mode: 'lasttoken' },
  } as unknown as FolderJson;
  const model: Decoder = { layers: 3, heads: 4, keyHeads: 2, head: 24, theta: 10000, epsilon: 1e-5 };

  it('are an output in the place of logits, with names that lack the prefix of a whole model', async () => {
    const weights = new Map([...weightsOf(one)].filter(([name]) => name !== 'lm_head.weight'));
    const bare = new Map([...weights].map(([name, weight]) => [name.replace('model.', ''), weight] as const));
    const made = await makeFolder(bare, files, { to: 'onnx:fp32' });
    const found = await statesOf(made.files.get('onnx/model.onnx')!, tokens);
    expect(Object.keys(found).filter((name) => !name.startsWith('present'))).toEqual([
      'last_hidden_state',
      'sentence_embedding',
    ]);
    const last = decoderStates(weights, model, tokens).at(-1)!;
    const vector = found.sentence_embedding!.data as Float32Array;
    // The bound of logits, for a vector of length 1.
    expect(furthest([vector], [last.map((v) => v / Math.hypot(...last))])).toBeLessThan(near);
  });

  it('are those of its tokens without modules, for a class without a head', async () => {
    const weights = new Map([...weightsOf(one)].filter(([name]) => name !== 'lm_head.weight'));
    const config = decoderConfig('Qwen3Model', one.config);
    const made = await makeFolder(weights, { ...filesOf(one), 'config.json': config }, { to: 'onnx:fp32' });
    const { last_hidden_state, sentence_embedding, logits } = await statesOf(
      made.files.get('onnx/model.onnx')!,
      tokens,
    );
    expect([sentence_embedding, logits]).toEqual([undefined, undefined]);
    const expected = decoderStates(weights, model, tokens);
    const states = last_hidden_state!.data as Float32Array;
    const rows = tokens.map((_, t) => states.subarray(t * 64, (t + 1) * 64));
    expect(furthest(rows, expected) / largest(expected)).toBeLessThan(near);
  });

  it('are refused where tokens see those behind them', async () => {
    const config = decoderConfig('Qwen3Model', { ...one.config, is_causal: false });
    await expect(makeFolder(weightsOf(one), { ...files, 'config.json': config }, { to: 'onnx:fp32' })).rejects.toThrow(
      /is_causal is false/,
    );
  });
});

it('puts large weights into files that arrays of a browser hold', async () => {
  // Two tables of 1.6 GB and four layers of 0.6 GB in float32, none of which is read.
  const sizes = { hidden_size: 4096, intermediate_size: 8192, num_attention_heads: 32, num_key_value_heads: 8 };
  const config = { ...decoderConfig('LlamaForCausalLM', sizes), vocab_size: 100_000, num_hidden_layers: 4 };
  const shapes: Record<string, readonly number[]> = {
    'model.embed_tokens.weight': [100_000, 4096],
    'lm_head.weight': [100_000, 4096],
    'model.norm.weight': [4096],
  };
  for (let i = 0; i < 4; i++) {
    const name = `model.layers.${i}.`;
    for (const norm of ['input', 'post_attention']) shapes[`${name}${norm}_layernorm.weight`] = [4096];
    for (const one of ['q', 'o']) shapes[`${name}self_attn.${one}_proj.weight`] = [4096, 4096];
    for (const one of ['k', 'v']) shapes[`${name}self_attn.${one}_proj.weight`] = [1024, 4096];
    for (const one of ['gate', 'up']) shapes[`${name}mlp.${one}_proj.weight`] = [8192, 4096];
    shapes[`${name}mlp.down_proj.weight`] = [4096, 8192];
  }
  const place = mkdtempSync(join(tmpdir(), 'scalepoint-large-'));
  try {
    let at = 0;
    const header: Record<string, unknown> = {};
    for (const [name, shape] of Object.entries(shapes)) {
      const bytes = 2 * shape.reduce((a, b) => a * b, 1);
      header[name] = { dtype: 'BF16', shape, data_offsets: [at, at + bytes] };
      at += bytes;
    }
    const text = Buffer.from(JSON.stringify(header));
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(text.length));
    const file = join(place, 'model.safetensors');
    writeFileSync(file, Buffer.concat([length, text]));
    // The rest is a hole.
    truncateSync(file, 8 + text.length + at);
    writeFileSync(join(place, 'config.json'), JSON.stringify(config));
    writeFileSync(join(place, 'tokenizer.json'), JSON.stringify(plainTokenizer()));
    const { files, totals } = await planModel(file, { to: 'onnx:fp32' });
    const data = files.filter(({ name }) => name.includes('_data'));
    expect(data.map(({ name }) => name.split('/').at(-1))).toEqual(
      ['', '_1', '_2', '_3'].slice(0, data.length).map((end) => `model.onnx_data${end}`),
    );
    expect(data.length).toBeGreaterThan(2);
    for (const { bytes } of data) expect(bytes).toBeLessThanOrEqual(1.9e9);
    expect(totals.bytesAfter).toBe(files.reduce((sum, { bytes }) => sum + bytes, 0));
    const { files: small } = await planModel(file, { to: 'onnx:q4' });
    expect(small.some(({ name }) => name.includes('_data'))).toBe(false);
  } finally {
    rmSync(place, { recursive: true });
  }
});

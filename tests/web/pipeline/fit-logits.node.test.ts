// Whether types that are chosen by the errors of weights make a better model: llama.cpp computes the logits of the original, of the mixtures of
// llama-quantize, and of results of the same size. What counts is the divergence between the distributions of the next token.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { fitTypes, measureTypes, quantizeModel } from '../../../web/src/model.js';
import { fileTypes, ggmlTypes, llamaQuantize } from '../support/llama.js';
import { NativeModel } from '../support/llama-run.js';
import { needNative } from '../support/native.js';
import { Random } from '../support/support.js';
import { ggufFile, type Stored, tinyLlama } from '../support/tiny-llama.js';

needNative();

const samples = process.env.SCALEPOINT_SAMPLES;
const recipes = ['Q3_K_M', 'Q4_K_M', 'Q5_K_M'] as const;

/** Logarithms of the probabilities. */
function logarithms(logits: Float32Array): Float64Array {
  const most = logits.reduce((a, b) => Math.max(a, b));
  const sum = logits.reduce((total, value) => total + Math.exp(value - most), 0);
  return Float64Array.from(logits, (value) => value - most - Math.log(sum));
}

function distributions(file: Uint8Array, tokensOf: (model: NativeModel) => readonly number[]): Float64Array[] {
  using model = new NativeModel(file);
  return model.logits(tokensOf(model)).map(logarithms);
}

/** The mean Kullback-Leibler divergence. */
function divergence(p: readonly Float64Array[], q: readonly Float64Array[]): number {
  const sums = p.map((row, t) => row.reduce((sum, v, i) => sum + Math.exp(v) * (v - q[t]![i]!), 0));
  return sums.reduce((a, b) => a + b) / p.length;
}

async function compare(file: Uint8Array<ArrayBuffer>, tokensOf: (model: NativeModel) => readonly number[]) {
  const original = distributions(file, tokensOf);
  const table = await measureTypes(file, { to: 'auto' });
  for (const to of recipes) {
    const recipe = await (await quantizeModel(file, { to })).bytes();
    const fit = fitTypes(table, { targetSize: recipe.length });
    const fitted = await (await quantizeModel(file, { to: fit.to as typeof to, rules: fit.rules })).bytes();
    expect(fitted.length).toBeLessThanOrEqual(recipe.length);
    const [ours, theirs] = [fitted, recipe].map((made) => divergence(original, distributions(made, tokensOf)));
    expect(ours, to).toBeLessThan(theirs!);
  }
}

/** A model of random weights that llama.cpp can run: the layers have weights of different sizes, and so have the columns of each. */
function madeUp(): Uint8Array<ArrayBuffer> {
  const [layers, width, inner, vocabulary, heads] = [5, 256, 768, 512, 8];
  const random = new Random(21);
  const tensors: Stored[] = [];
  const add = (name: string, ne: readonly number[], size: number) => {
    const [columns = 1, rows = 1] = ne;
    const scale = (size * Math.exp(random.bell(1)[0]!)) / Math.sqrt(columns);
    const spread = random.bell(columns).map((v) => Math.exp(v));
    const values = random.bell(columns * rows).map((v, i) => 1.7 * v * scale * spread[i % columns]!);
    tensors.push({ name, dtype: 'F32', ne, data: new Uint8Array(values.buffer) });
  };
  const ones = (name: string) =>
    tensors.push({ name, dtype: 'F32', ne: [width], data: new Uint8Array(new Float32Array(width).fill(1).buffer) });
  add('token_embd.weight', [width, vocabulary], Math.sqrt(width));
  for (let i = 0; i < layers; i++) {
    ones(`blk.${i}.attn_norm.weight`);
    for (const part of ['q', 'output']) add(`blk.${i}.attn_${part}.weight`, [width, width], 0.4);
    for (const part of ['k', 'v']) add(`blk.${i}.attn_${part}.weight`, [width, width / 2], 0.4);
    ones(`blk.${i}.ffn_norm.weight`);
    for (const part of ['gate', 'up']) add(`blk.${i}.ffn_${part}.weight`, [width, inner], 0.4);
    add(`blk.${i}.ffn_down.weight`, [inner, width], 0.4);
  }
  ones('output_norm.weight');
  add('output.weight', [width, vocabulary], 2);
  const tokens = Array.from({ length: vocabulary }, (_, i) => ['<unk>', '<s>', '</s>'][i] ?? `w${i}`);
  return ggufFile({
    pairs: [
      ['general.architecture', 'string', 'llama'],
      ['llama.block_count', 'u32', layers],
      ['llama.context_length', 'u32', 64],
      ['llama.embedding_length', 'u32', width],
      ['llama.feed_forward_length', 'u32', inner],
      ['llama.attention.head_count', 'u32', heads],
      ['llama.attention.head_count_kv', 'u32', heads / 2],
      ['llama.attention.layer_norm_rms_epsilon', 'f32', 1e-5],
      ['llama.rope.dimension_count', 'u32', width / heads],
      ['tokenizer.ggml.model', 'string', 'llama'],
      ['tokenizer.ggml.tokens', 'array', 'string', tokens],
      ['tokenizer.ggml.scores', 'array', 'f32', tokens.map(() => 0)],
      ['tokenizer.ggml.token_type', 'array', 'i32', tokens.map((_, i) => [2, 3, 3][i] ?? 1)],
    ],
    tensors,
  });
}

it('gives rules from which llama-quantize makes the same file', async () => {
  const file = tinyLlama({ layers: 3, rows: 8 });
  const ids = new Map(ggmlTypes().map(({ name, id }) => [name.toUpperCase(), id]));
  for (const targetBitsPerWeight of [3.5, 4.5, 6]) {
    const { to, rules } = fitTypes(await measureTypes(file, { to: 'auto' }), { targetBitsPerWeight });
    const overrides = rules.map(({ match, to: type }) => [match.source, ids.get(type as string) as number] as const);
    const ours = await (await quantizeModel(file, { to: to as 'Q4_K_M', rules })).bytes();
    expect(llamaQuantize(file, fileTypes[to] as number, { overrides })).toEqual(ours);
  }
});

it('diverges less than the mixtures of llama-quantize: made up', async () => {
  await compare(madeUp(), () => Array.from({ length: 24 }, (_, i) => 3 + ((i * 7919) % 500)));
});

const story =
  'Once upon a time, there was a little girl named Lily. She loved to play outside in the park with her friends. One day, she saw a big dog ' +
  'near a tree. The dog was sad because it lost its ball. Lily wanted to help the dog. She looked under the bench and behind the tree. Then ' +
  'she found the ball in the grass. The dog was very happy and ran around. They played together all day. When the sun went down, Lily went ' +
  'home to her mom and told her about the new friend. Her mom was proud of her because she was kind.';

describe.skipIf(samples === undefined)('diverges less than the mixtures of llama-quantize', () => {
  it('TinyStories', async () => {
    const folder = join(samples as string, 'tinystories-656k');
    const file = await (
      await quantizeModel(join(folder, 'model.safetensors'), { to: 'F16', missingBytes: 'keep' })
    ).bytes();
    await compare(file, (model) => model.tokenize(story, { special: true }));
  });

  it('a small llama of random weights', async () => {
    const file = new Uint8Array(readFileSync(join(samples as string, 'tiny-llama-f16.gguf')));
    await compare(file, () => Array.from({ length: 32 }, (_, i) => 3 + ((i * 7919) % 29)));
  });
});

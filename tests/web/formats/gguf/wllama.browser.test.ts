// llama.cpp in the browser (wllama) loads what we write, and computes with it.
// @ts-expect-error Its declarations name files without extensions, which this kind of module resolution refuses.
import { LoggerWithoutDebug, Wllama } from '@wllama/wllama/esm/index.js';
import wasm from '@wllama/wllama/esm/wasm/wllama.wasm?url';
import { expect, test } from 'vitest';
import type { GgufTarget } from '../../../../web/src/formats/gguf/targets.js';
import { quantizeModel } from '../../../../web/src/model.js';
import { ggufFile, type Stored, weights } from '../../support/tiny-llama.js';

const [embedding, feedForward, heads, layers] = [256, 512, 4, 2];
/** Every printable character has a token, so that any ASCII prompt can be read, and whatever comes out is UTF-8. */
const characters = Array.from({ length: 94 }, (_, i) => String.fromCharCode(0x21 + i));
const tokens = ['<unk>', '<s>', '</s>', '\u2581', ...characters];
while (tokens.length % 32 !== 0) tokens.push(`w${tokens.length}`);
const vocabulary = tokens.length;

/** A model whose shapes fit together, so that it runs. Its words are ASCII. */
function runnableLlama(): Uint8Array<ArrayBuffer> {
  const tensors: Stored[] = [];
  const add = (name: string, ne: readonly number[], dtype = 'F16') => {
    const count = ne.reduce((a, b) => a * b, 1);
    tensors.push({ name, dtype, ne, data: weights(dtype, count, tensors.length * 31 + 7) });
  };
  add('token_embd.weight', [embedding, vocabulary]);
  for (let i = 0; i < layers; i++) {
    add(`blk.${i}.attn_norm.weight`, [embedding], 'F32');
    add(`blk.${i}.attn_q.weight`, [embedding, embedding]);
    add(`blk.${i}.attn_k.weight`, [embedding, embedding / 2]);
    add(`blk.${i}.attn_v.weight`, [embedding, embedding / 2]);
    add(`blk.${i}.attn_output.weight`, [embedding, embedding]);
    add(`blk.${i}.ffn_norm.weight`, [embedding], 'F32');
    add(`blk.${i}.ffn_gate.weight`, [embedding, feedForward]);
    add(`blk.${i}.ffn_up.weight`, [embedding, feedForward]);
    add(`blk.${i}.ffn_down.weight`, [feedForward, embedding]);
  }
  add('output_norm.weight', [embedding], 'F32');
  add('output.weight', [embedding, vocabulary]);
  return ggufFile({
    pairs: [
      ['general.architecture', 'string', 'llama'],
      ['general.name', 'string', 'runnable'],
      ['llama.block_count', 'u32', layers],
      ['llama.context_length', 'u32', 64],
      ['llama.embedding_length', 'u32', embedding],
      ['llama.feed_forward_length', 'u32', feedForward],
      ['llama.attention.head_count', 'u32', heads],
      ['llama.attention.head_count_kv', 'u32', heads / 2],
      ['llama.attention.layer_norm_rms_epsilon', 'f32', 1e-5],
      ['llama.rope.dimension_count', 'u32', embedding / heads],
      ['llama.vocab_size', 'u32', vocabulary],
      ['tokenizer.ggml.model', 'string', 'llama'],
      ['tokenizer.ggml.tokens', 'array', 'string', tokens],
      ['tokenizer.ggml.scores', 'array', 'f32', tokens.map(() => 0)],
      ['tokenizer.ggml.token_type', 'array', 'i32', tokens.map((_, i) => (i < 3 ? 3 : 1))],
      ['tokenizer.ggml.bos_token_id', 'u32', 1],
      ['tokenizer.ggml.eos_token_id', 'u32', 2],
    ],
    tensors,
  });
}

const runnable = runnableLlama();

// llama.cpp itself loads every type in Node.
const targets: GgufTarget[] = ['Q8_0', 'Q5_1', 'Q4_K_M', 'IQ4_NL', 'F16'];

test.each(targets)('wllama loads and runs %s', async (to) => {
  const result = await quantizeModel(runnable, { to, workers: 1 });
  const wllama = new Wllama({ default: wasm }, { suppressNativeLog: true, logger: LoggerWithoutDebug });
  try {
    await wllama.loadModel([await result.blob()], { n_ctx: 64, n_threads: 1 });
    const { hparams, meta } = wllama.getModelMetadata();
    expect(hparams).toMatchObject({ nVocab: vocabulary, nEmbd: embedding, nLayer: layers });
    expect(meta['general.name']).toBe('runnable');
    const answer = await wllama.createCompletion({ prompt: 'abc def', max_tokens: 4, temperature: 0 });
    expect(answer.usage).toMatchObject({ completion_tokens: 4 });
    expect(answer.choices[0]?.text).toMatch(/^[\x20-\x7e]+$/);
  } finally {
    await wllama.exit();
  }
});

/** The answer of a model to a prompt. */
async function answerOf(
  files: readonly Blob[],
  { prompt = 'abc def', tokens = 8, context = 64 } = {},
): Promise<string | undefined> {
  const wllama = new Wllama({ default: wasm }, { suppressNativeLog: true, logger: LoggerWithoutDebug });
  try {
    await wllama.loadModel(files, { n_ctx: context, n_threads: 1 });
    const { choices } = await wllama.createCompletion({ prompt, max_tokens: tokens, temperature: 0 });
    return choices[0]?.text;
  } finally {
    await wllama.exit();
  }
}

test('wllama loads and runs a result in several files', async () => {
  const whole = await quantizeModel(runnable, { to: 'Q8_0', workers: 1 });
  const split = await quantizeModel(runnable, { to: 'Q8_0', shardSize: '0.3MB', workers: 1 });
  expect(split.files.length).toBeGreaterThan(2);
  const files: File[] = [];
  for (const { name } of split.files) files.push(new File([await split.blob(name)], name));
  const answer = await answerOf([await whole.blob()]);
  expect(answer).toMatch(/^[\x20-\x7e]+$/);
  expect(await answerOf(files)).toBe(answer);
});

test('a folder becomes a model that goes on with a story', async () => {
  const names = ['config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json'];
  const files = await Promise.all(
    names.map(async (name) => {
      const response = await fetch(`/web/demo/public/samples/storyteller/${name}`);
      expect(response.ok).toBe(true);
      return new File([await response.blob()], name);
    }),
  );
  const result = await quantizeModel(files, { to: 'Q8_0', workers: 1 });
  const story = await answerOf([await result.blob()], { prompt: 'Once there was a', tokens: 16, context: 128 });
  expect(story).toMatch(/^ (boy|girl|child) named \w+\. (She|He) had a/);
});

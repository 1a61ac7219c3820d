// A language model that is made up, which llama.cpp can run.
import { Random } from './support.js';
import { ggufFile, type Stored } from './tiny-llama.js';

/** A model of random weights that llama.cpp can run: the layers have weights of different sizes, and so have the columns of each. */
export function madeUpLlama({
  layers = 5,
  width = 256,
  spoiled,
}: {
  readonly layers?: number;
  readonly width?: number;
  /** A weight whose elements are huge. */
  readonly spoiled?: string;
} = {}): Uint8Array<ArrayBuffer> {
  const [inner, vocabulary, heads] = [3 * width, 512, 8];
  const random = new Random(21);
  const tensors: Stored[] = [];
  const add = (name: string, ne: readonly number[], size: number) => {
    const [columns = 1, rows = 1] = ne;
    const scale = (size * Math.exp(random.bell(1)[0]!)) / Math.sqrt(columns);
    const spread = random.bell(columns).map((v) => Math.exp(v));
    const values = random.bell(columns * rows).map((v, i) => 1.7 * v * scale * spread[i % columns]!);
    tensors.push({
      name,
      dtype: 'F32',
      ne,
      data: new Uint8Array((name === spoiled ? values.fill(3e38) : values).buffer),
    });
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

// A model with the sizes of SmolLM2-360M, for which WebLLM has a library, and a hole in place of weights.
import { mkdir, open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

const sizes = { hidden: 960, inner: 2560, layers: 32, queries: 960, keys: 320, vocabulary: 49152 };

/** Names and shapes of the weights. */
export function* smolShapes(): Generator<readonly [string, readonly number[]]> {
  const { hidden, inner, layers, queries, keys, vocabulary } = sizes;
  yield ['model.embed_tokens.weight', [vocabulary, hidden]];
  for (let i = 0; i < layers; i++) {
    const layer = `model.layers.${i}`;
    yield [`${layer}.input_layernorm.weight`, [hidden]];
    yield [`${layer}.post_attention_layernorm.weight`, [hidden]];
    yield [`${layer}.mlp.gate_proj.weight`, [inner, hidden]];
    yield [`${layer}.mlp.up_proj.weight`, [inner, hidden]];
    yield [`${layer}.mlp.down_proj.weight`, [hidden, inner]];
    yield [`${layer}.self_attn.q_proj.weight`, [queries, hidden]];
    yield [`${layer}.self_attn.k_proj.weight`, [keys, hidden]];
    yield [`${layer}.self_attn.v_proj.weight`, [keys, hidden]];
    yield [`${layer}.self_attn.o_proj.weight`, [hidden, queries]];
  }
  yield ['model.norm.weight', [hidden]];
}

/** Makes a folder with the model. @param config keys that differ */
export async function putSmol(folder: string, config: object = {}): Promise<void> {
  await mkdir(folder);
  const header: Record<string, object> = {};
  let at = 0;
  for (const [tensor, shape] of smolShapes()) {
    const end = at + 2 * shape.reduce((a, b) => a * b, 1);
    header[tensor] = { dtype: 'BF16', shape, data_offsets: [at, end] };
    at = end;
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const length = new DataView(new ArrayBuffer(8));
  length.setBigUint64(0, BigInt(text.length), true);
  const file = await open(join(folder, 'model.safetensors'), 'w');
  await file.write(Buffer.concat([new Uint8Array(length.buffer), text]));
  await file.truncate(8 + text.length + at);
  await file.close();
  const all = {
    architectures: ['LlamaForCausalLM'],
    hidden_size: sizes.hidden,
    intermediate_size: sizes.inner,
    num_hidden_layers: sizes.layers,
    num_attention_heads: 15,
    num_key_value_heads: 5,
    vocab_size: sizes.vocabulary,
    rms_norm_eps: 1e-5,
    rope_theta: 100000,
    tie_word_embeddings: true,
    ...config,
  };
  await writeFile(join(folder, 'config.json'), JSON.stringify(all));
  await writeFile(join(folder, 'tokenizer.json'), JSON.stringify({ model: { vocab: {} } }));
}

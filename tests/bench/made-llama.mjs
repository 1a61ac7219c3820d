// Writes folders of made language models of the architecture of Llama, in bfloat16.
import { writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';

/** @typedef {{ layers: number, hidden: number, inner: number, heads: number, keyHeads: number, vocabulary: number }} Sizes */

/**
 * @param {Sizes} sizes
 * @returns {[name: string, shape: number[]][]}
 */
function shapesOf({ layers, hidden, inner, heads, keyHeads, vocabulary }) {
  const head = hidden / heads;
  /** @type {[name: string, shape: number[]][]} */
  const found = [['model.embed_tokens.weight', [vocabulary, hidden]]];
  for (let i = 0; i < layers; i++) {
    const p = `model.layers.${i}.`;
    found.push(
      [`${p}input_layernorm.weight`, [hidden]],
      [`${p}self_attn.q_proj.weight`, [hidden, hidden]],
      [`${p}self_attn.k_proj.weight`, [keyHeads * head, hidden]],
      [`${p}self_attn.v_proj.weight`, [keyHeads * head, hidden]],
      [`${p}self_attn.o_proj.weight`, [hidden, hidden]],
      [`${p}post_attention_layernorm.weight`, [hidden]],
      [`${p}mlp.gate_proj.weight`, [inner, hidden]],
      [`${p}mlp.up_proj.weight`, [inner, hidden]],
      [`${p}mlp.down_proj.weight`, [hidden, inner]],
    );
  }
  found.push(['model.norm.weight', [hidden]]);
  return found;
}

/** Weights of about 1 / sqrt(2048), as bfloat16: 8 MiB that matrices repeat. */
function madeWeights() {
  const floats = new Float32Array(1 << 22);
  let state = 1;
  for (let i = 0; i < floats.length; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    floats[i] = (state / 2 ** 31) * 0.04;
  }
  return new Uint8Array(Uint16Array.from(new Uint32Array(floats.buffer), (bits) => bits >>> 16).buffer);
}

/**
 * Writes config.json, tokenizer.json and model.safetensors.
 * @param {string} folder
 * @param {Sizes} sizes
 */
export async function writeMadeLlama(folder, sizes) {
  const { layers, hidden, inner, heads, keyHeads, vocabulary } = sizes;
  const config = {
    architectures: ['LlamaForCausalLM'],
    hidden_size: hidden,
    intermediate_size: inner,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: keyHeads,
    max_position_embeddings: 131_072,
    rms_norm_eps: 1e-5,
    rope_theta: 500_000,
    vocab_size: vocabulary,
    tie_word_embeddings: true,
  };
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  const byte = (/** @type {number} */ i) => `<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`;
  const tokens = ['<unk>', '<s>', '</s>', ...Array.from({ length: 256 }, (_, i) => byte(i)), ...'abcd▁'];
  const tokenizer = {
    added_tokens: tokens.slice(0, 3).map((content, id) => ({ id, content, special: true })),
    normalizer: { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
    pre_tokenizer: null,
    post_processor: null,
    model: {
      type: 'BPE',
      byte_fallback: true,
      unk_token: '<unk>',
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges: [],
    },
  };
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(tokenizer));
  /** @type {Record<string, object>} */
  const entries = {};
  let at = 0;
  for (const [name, shape] of shapesOf(sizes)) {
    const bytes = 2 * shape.reduce((a, b) => a * b, 1);
    entries[name] = { dtype: 'BF16', shape, data_offsets: [at, at + bytes] };
    at += bytes;
  }
  const header = new TextEncoder().encode(JSON.stringify(entries));
  const start = new Uint8Array(8 + Math.ceil(header.length / 8) * 8).fill(0x20);
  new DataView(start.buffer).setBigUint64(0, BigInt(start.length - 8), true);
  start.set(header, 8);
  const weights = madeWeights();
  const ones = new Uint8Array(new Uint16Array(hidden).fill(0x3f80).buffer);
  const file = await open(join(folder, 'model.safetensors'), 'w');
  await file.write(start);
  for (const [, shape] of shapesOf(sizes)) {
    if (shape.length === 1) await file.write(ones);
    else {
      const bytes = 2 * shape.reduce((a, b) => a * b, 1);
      for (let done = 0; done < bytes; done += weights.length) {
        await file.write(weights.subarray(0, Math.min(weights.length, bytes - done)));
      }
    }
  }
  await file.close();
}

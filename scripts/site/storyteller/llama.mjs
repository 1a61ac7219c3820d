// Shared by programs in C++ with a small llama (llama.h): their compiler, and the weights in the order that they read.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { readFloats } from '../../../dist/model.js';

/** Compiles a program for this machine. @param {readonly string[]} sources @param {string} program @param {readonly string[]} [options] */
export function compile(sources, program, options = []) {
  const fast = ['-O3', '-march=native', '-fopenmp', '-std=c++20', '-w'];
  execFileSync(process.env.CXX ?? 'c++', [...fast, ...options, ...sources, '-o', program], { stdio: 'inherit' });
}

/** @param {string} folder */
export const configOf = (folder) => JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'));

/** Names and shapes of the weights, in the order of the programs. @returns {[name: string, shape: number[]][]} */
function weightsOf({ num_hidden_layers, hidden_size: d, intermediate_size: inner, ...rest }, embeddings = 'lm_head') {
  const keys = (d / rest.num_attention_heads) * rest.num_key_value_heads;
  /** @type {[name: string, shape: number[]][]} */
  const weights = [[`${embeddings}.weight`, [rest.vocab_size, d]]];
  for (let i = 0; i < num_hidden_layers; i++) {
    const own = (name) => `model.layers.${i}.${name}.weight`;
    weights.push(
      [own('input_layernorm'), [d]],
      [own('self_attn.q_proj'), [d, d]],
      [own('self_attn.k_proj'), [keys, d]],
      [own('self_attn.v_proj'), [keys, d]],
      [own('self_attn.o_proj'), [d, d]],
      [own('post_attention_layernorm'), [d]],
      [own('mlp.gate_proj'), [inner, d]],
      [own('mlp.up_proj'), [inner, d]],
      [own('mlp.down_proj'), [d, inner]],
    );
  }
  return [...weights, ['model.norm.weight', [d]]];
}

/** Arguments of the programs: layers, width, inner width, heads, groups and tokens. @param {Record<string, number>} config */
export const sizesOf = (config) =>
  [
    config.num_hidden_layers,
    config.hidden_size,
    config.intermediate_size,
    config.num_attention_heads,
    config.num_key_value_heads,
    config.vocab_size,
  ].map(String);

/** The weights of a model in a folder, in the order of the programs. @param {string} folder */
export async function bytesOf(folder) {
  const parts = [];
  for (const [name] of weightsOf(configOf(folder))) {
    parts.push((await readFloats(join(folder, 'model.safetensors'), name)).data);
  }
  return Buffer.concat(parts.map((part) => new Uint8Array(part.slice().buffer)));
}

/** The weights that a program wrote, as a safetensors file with names of transformers. @param {Record<string, number>} config @param {Uint8Array} data */
export function safetensorsOf(config, data, embeddings = 'lm_head') {
  /** @type {Record<string, unknown>} */
  const entries = { __metadata__: { format: 'pt' } };
  let at = 0;
  for (const [name, shape] of weightsOf(config, embeddings)) {
    const end = at + 4 * shape.reduce((a, b) => a * b, 1);
    entries[name] = { dtype: 'F32', shape, data_offsets: [at, end] };
    at = end;
  }
  const text = Buffer.from(JSON.stringify(entries));
  const padded = Buffer.concat([text, Buffer.alloc(-text.length & 7, ' ')]);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.length));
  return Buffer.concat([length, padded, data]);
}

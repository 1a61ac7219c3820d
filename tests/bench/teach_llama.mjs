// Makes a folder with a small trained llama, for benchmarks: 2 layers, 256 wide, so that all block types of GGUF fit its rows. It learns from
// TinyStories of the samples. Needs a C++ compiler with OpenMP, and some ten minutes of two cores.
//
//   SCALEPOINT_SAMPLES=... node tests/bench/teach_llama.mjs FOLDER [--steps 500] [--seed 1]
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { readFloats } from '../../dist/model.js';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { steps: { type: 'string', default: '500' }, seed: { type: 'string', default: '1' } },
});
const [folder] = positionals;
if (folder === undefined) throw new Error('Name the folder to make.');
const sample = join(process.env.SCALEPOINT_SAMPLES ?? '', 'tinystories-656k');
const config = JSON.parse(readFileSync(join(sample, 'config.json'), 'utf8'));
const made = { ...config, hidden_size: 256, intermediate_size: 768 };

/** Names and shapes of the weights, in the order of teach_llama.cpp. @returns {[name: string, shape: number[]][]} */
function weightsOf({ num_hidden_layers, hidden_size: d, intermediate_size: inner, ...rest }) {
  const keys = (d / rest.num_attention_heads) * rest.num_key_value_heads;
  /** @type {[name: string, shape: number[]][]} */
  const weights = [['lm_head.weight', [rest.vocab_size, d]]];
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

const sizesOf = (/** @type {typeof config} */ c) =>
  [
    c.num_hidden_layers,
    c.hidden_size,
    c.intermediate_size,
    c.num_attention_heads,
    c.num_key_value_heads,
    c.vocab_size,
  ].map(String);

const work = mkdtempSync(join(tmpdir(), 'scalepoint-teach-'));
try {
  const program = join(work, 'teach');
  const source = fileURLToPath(new URL('teach_llama.cpp', import.meta.url));
  const compiler = process.env.CXX ?? 'c++';
  execFileSync(compiler, ['-O3', '-march=native', '-ffast-math', '-fopenmp', '-std=c++20', source, '-o', program]);
  const [teacher, student] = [join(work, 'teacher'), join(work, 'student')];
  const parts = [];
  for (const [name] of weightsOf(config)) {
    parts.push((await readFloats(join(sample, 'model.safetensors'), name)).data);
  }
  writeFileSync(teacher, Buffer.concat(parts.map((part) => new Uint8Array(part.slice().buffer))));
  execFileSync(program, [teacher, student, values.steps, values.seed, ...sizesOf(config), ...sizesOf(made)], {
    stdio: 'inherit',
    env: { ...process.env, OMP_WAIT_POLICY: 'passive' },
  });

  // Write the folder.
  const data = readFileSync(student);
  /** @type {Record<string, unknown>} */
  const entries = { __metadata__: { format: 'pt', 'model.embed_tokens.weight': 'lm_head.weight' } };
  let at = 0;
  for (const [name, shape] of weightsOf(made)) {
    const end = at + 4 * shape.reduce((a, b) => a * b, 1);
    entries[name] = { dtype: 'F32', shape, data_offsets: [at, end] };
    at = end;
  }
  const text = Buffer.from(JSON.stringify(entries));
  const padded = Buffer.concat([text, Buffer.alloc(-text.length & 7, ' ')]);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.length));
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'model.safetensors'), Buffer.concat([length, padded, data]));
  writeFileSync(join(folder, 'config.json'), JSON.stringify(made, undefined, 2));
  for (const name of ['tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json', 'generation_config.json']) {
    copyFileSync(join(sample, name), join(folder, name));
  }
} finally {
  rmSync(work, { recursive: true });
}

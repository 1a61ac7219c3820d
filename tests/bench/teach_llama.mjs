// Makes a folder with a small trained llama, for benchmarks: 2 layers, 256 wide, so that all block types of GGUF fit its rows. It learns from
// TinyStories of the samples. Needs a C++ compiler with OpenMP, and some ten minutes of two cores.
//
//   SCALEPOINT_SAMPLES=... node tests/bench/teach_llama.mjs FOLDER [--steps 500] [--seed 1] [--layers 2] [--inner 768]
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { bytesOf, compile, configOf, safetensorsOf, sizesOf } from '../../scripts/site/storyteller/llama.mjs';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    steps: { type: 'string', default: '500' },
    seed: { type: 'string', default: '1' },
    layers: { type: 'string', default: '2' },
    inner: { type: 'string', default: '768' },
  },
});
const [folder] = positionals;
if (folder === undefined) throw new Error('Name the folder to make.');
const sample = join(process.env.SCALEPOINT_SAMPLES ?? '', 'tinystories-656k');
const config = configOf(sample);
const made = {
  ...config,
  num_hidden_layers: Number(values.layers),
  hidden_size: 256,
  intermediate_size: Number(values.inner),
};

const work = mkdtempSync(join(tmpdir(), 'scalepoint-teach-'));
try {
  const program = join(work, 'teach');
  compile([fileURLToPath(new URL('teach_llama.cpp', import.meta.url))], program, ['-ffast-math']);
  const [teacher, student] = [join(work, 'teacher'), join(work, 'student')];
  writeFileSync(teacher, await bytesOf(sample));
  execFileSync(program, [teacher, student, values.steps, values.seed, ...sizesOf(config), ...sizesOf(made)], {
    stdio: 'inherit',
    env: { ...process.env, OMP_WAIT_POLICY: 'passive' },
  });

  // Write the folder.
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'model.safetensors'), safetensorsOf(made, readFileSync(student)));
  writeFileSync(join(folder, 'config.json'), JSON.stringify(made, undefined, 2));
  for (const name of ['tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json', 'generation_config.json']) {
    copyFileSync(join(sample, name), join(folder, name));
  }
} finally {
  rmSync(work, { recursive: true });
}

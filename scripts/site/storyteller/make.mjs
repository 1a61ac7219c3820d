// Trains the storyteller of the site, a language model of half a million parameters, on stories of a grammar. Needs a built package, a C++
// compiler with OpenMP, and some half an hour of one core.
//
//   node scripts/site/storyteller/make.mjs [--steps 8000] [--seed 1]      writes web/demo/public/samples/storyteller/
//
// Equal seeds give equal stories and an equal vocabulary everywhere, and equal weights on machines of one kind: the compiler may use all
// instructions that the machine has.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { quantizeModel } from '../../../dist/model.js';
import { compile, safetensorsOf, sizesOf } from './llama.mjs';
import { generator, story } from './stories.mjs';
import { learnVocabulary, special } from './vocabulary.mjs';

const { values } = parseArgs({
  options: { steps: { type: 'string', default: '8000' }, seed: { type: 'string', default: '1' } },
});

const folder = fileURLToPath(new URL('../../../web/demo/public/samples/storyteller/', import.meta.url));
const stories = 60_000;
/** Stories from which the vocabulary is learned. */
const read = 5_000;

const config = {
  architectures: ['LlamaForCausalLM'],
  attention_bias: false,
  bos_token_id: special.first,
  eos_token_id: special.last,
  hidden_act: 'silu',
  hidden_size: 96,
  initializer_range: 0.02,
  intermediate_size: 256,
  max_position_embeddings: 256,
  mlp_bias: false,
  model_type: 'llama',
  num_attention_heads: 6,
  num_hidden_layers: 4,
  num_key_value_heads: 6,
  rms_norm_eps: 1e-6,
  rope_scaling: null,
  rope_theta: 10000,
  tie_word_embeddings: true,
  torch_dtype: 'float16',
  use_cache: true,
  vocab_size: 768,
};

// Make up the stories, and learn their vocabulary.
const random = generator(Number(values.seed));
const texts = Array.from({ length: stories }, () => story(random));
const vocabulary = learnVocabulary(texts.slice(0, read), config.vocab_size);
const tokens = texts.flatMap((text) => [special.first, ...vocabulary.encode(text), special.last]);

const work = mkdtempSync(join(tmpdir(), 'scalepoint-story-'));
try {
  // Train.
  const program = join(work, 'train');
  compile([fileURLToPath(new URL('train.cpp', import.meta.url))], program, ['-ffast-math']);
  const [input, output] = [join(work, 'tokens'), join(work, 'weights')];
  writeFileSync(input, new Uint8Array(Int32Array.from(tokens).buffer));
  execFileSync(program, [input, output, values.steps, values.seed, ...sizesOf(config)], { stdio: 'inherit' });

  // Write the folder as transformers does.
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const file = safetensorsOf(config, readFileSync(output), 'model.embed_tokens');
  await quantizeModel(file, { to: 'float16', output: join(folder, 'model.safetensors') });
  const json = (name, value) => writeFileSync(join(folder, name), `${JSON.stringify(value, undefined, 1)}\n`);
  json('config.json', config);
  json('tokenizer.json', vocabulary.json());
  json('tokenizer_config.json', {
    add_bos_token: true,
    bos_token: '<s>',
    eos_token: '</s>',
    model_max_length: config.max_position_embeddings,
    tokenizer_class: 'PreTrainedTokenizerFast',
  });
} finally {
  rmSync(work, { recursive: true });
}

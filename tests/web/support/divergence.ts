// Divergence of the predictions of models by logits of llama.cpp (Node only), with models and texts for it.
import { join } from 'node:path';
import { load } from 'scalepoint';
import { quantizeModel } from '../../../web/src/model.js';
import { NativeModel } from './llama-run.js';
import { madeUpLlama } from './made-up-llama.js';

/** The tokens of a text for a model. */
export type TokensOf = (model: NativeModel) => readonly number[];

/** Logarithms of the probabilities. */
function logarithms(logits: Float32Array): Float64Array {
  const most = logits.reduce((a, b) => Math.max(a, b));
  const sum = logits.reduce((total, value) => total + Math.exp(value - most), 0);
  return Float64Array.from(logits, (value) => value - most - Math.log(sum));
}

/** The distribution of the next token behind each token of a text. */
export function distributions(file: Uint8Array, tokensOf: TokensOf): Float64Array[] {
  using model = new NativeModel(file);
  return model.logits(tokensOf(model)).map(logarithms);
}

/** The importance matrix of what a model computes for some tokens. */
export async function importanceOf(file: Uint8Array, tokensOf: TokensOf): Promise<Uint8Array<ArrayBuffer>> {
  using sp = await load();
  using model = new NativeModel(file);
  const importance = sp.importance();
  model.activations(tokensOf(model), (name, x, columns) => importance.add(name, x, { columns }));
  return importance.file();
}

/** The mean Kullback-Leibler divergence. */
export function divergence(p: readonly Float64Array[], q: readonly Float64Array[]): number {
  const sums = p.map((row, t) => row.reduce((sum, v, i) => sum + Math.exp(v) * (v - q[t]![i]!), 0));
  return sums.reduce((a, b) => a + b) / p.length;
}

/** A model of random weights that llama.cpp can run. With three layers, mixtures have each of their types. */
export const madeUp = () => madeUpLlama({ layers: 3 });

const samples = process.env.SCALEPOINT_SAMPLES;

/**
 * A language model of 656 thousand weights, as GGUF. With float16 weights llama.cpp rounds the inputs of products to float16 or bfloat16,
 * depending on the processor, so comparisons with it take float32.
 */
export async function tinyStories(to: 'F16' | 'F32' = 'F16'): Promise<Uint8Array<ArrayBuffer>> {
  const file = join(samples as string, 'tinystories-656k', 'model.safetensors');
  return (await quantizeModel(file, { to, missingBytes: 'keep' })).bytes();
}

/** A text of the kind that TinyStories knows. */
export const story =
  'Once upon a time, there was a little girl named Lily. She loved to play outside in the park with her friends. One day, she saw a big dog ' +
  'near a tree. The dog was sad because it lost its ball. Lily wanted to help the dog. She looked under the bench and behind the tree. Then ' +
  'she found the ball in the grass. The dog was very happy and ran around. They played together all day. When the sun went down, Lily went ' +
  'home to her mom and told her about the new friend. Her mom was proud of her because she was kind.';

/** Another one, to learn from. */
export const otherStory =
  'One day, a boy named Tom went to the lake with his dad. They had a small boat and a long rope. Tom saw a duck with three little ducks. He ' +
  'wanted to give them some bread, but the bread was in the car. "Can we go back, please?" asked Tom. Dad smiled and said yes. They ran to the ' +
  'car and got the bread. When they came back, it started to rain. Tom was sad because the ducks were not there. Then he heard a sound under ' +
  'the tree. The ducks were hiding from the rain! Tom gave them the bread and they were very happy. After that, the sun came out and there was ' +
  'a big rainbow in the sky. Tom and his dad sat in the boat and looked at it. "This is the best day ever," said Tom. At home, he told his mom ' +
  'and his sister Mia about the ducks. Mia wanted to see them too. So the next day they all went to the lake and played with the ducks again.';

// Divergence of the predictions of models by logits of llama.cpp (Node only), with models and texts for it.
import { fileURLToPath } from 'node:url';
import { load } from 'scalepoint';
import { generator, story as madeStory } from '../../../scripts/site/storyteller/stories.mjs';
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

/** The folder of the storyteller, the language model of the site: llama, 1/2 million weights, tied embeddings. */
export const storyFolder = fileURLToPath(new URL('../../../web/demo/public/samples/storyteller', import.meta.url));

/**
 * The storyteller as GGUF. With float16 weights llama.cpp rounds the inputs of products to float16 or bfloat16, depending on the processor, so
 * comparisons with it take float32.
 */
export async function storyteller(to: 'F16' | 'F32' = 'F16'): Promise<Uint8Array<ArrayBuffer>> {
  return (await quantizeModel(storyFolder, { to, missingBytes: 'keep' })).bytes();
}

/** Stories of the kind that it knows, none of which it learned from. */
const stories = (seed: number, count: number) => {
  const random = generator(seed);
  return Array.from({ length: count }, () => madeStory(random)).join(' ');
};

/** A text to judge by. */
export const story = stories(20_261, 1);

/** Another one, to learn from. */
export const otherStory = stories(20_262, 2);

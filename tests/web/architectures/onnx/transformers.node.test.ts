// transformers.js loads folders as they were made, in Node with onnxruntime-node, and computes what the definitions say.
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { ModelTarget, QuantizeModelOptions } from 'scalepoint/model';
import { expect, it } from 'vitest';
import { howToInstall } from '../../formats/onnx/transformers.js';
import { decoderLogits } from '../../support/forward.js';
import type { Weights } from '../../support/recipes.js';
import {
  bertFiles,
  bertWeights,
  decoderConfig,
  decoderWeights,
  plainTokenizer,
  tiny,
  wordTokenizer,
} from '../../support/tiny-huggingface.js';
import { type FolderJson, makeFolder } from './runs.js';

const packages = fileURLToPath(new URL('../../../transformers/node_modules', import.meta.url));
const entry = join(packages, '@huggingface/transformers/dist/transformers.node.mjs');

/** The parts of transformers.js that are used here. */
interface Transformers {
  readonly env: Record<string, unknown>;
  pipeline(task: string, model: string, options: object): Promise<Pipeline>;
}

type Pipeline = ((texts: string | string[], options?: object) => Promise<unknown>) & {
  readonly tokenizer: (text: string | string[], options?: object) => { readonly input_ids: { tolist(): bigint[][] } };
  dispose(): Promise<void>;
};

/** Loads a made folder, as it is, by its task and dtype. */
async function withPipeline(
  [weights, files, task]: readonly [Weights, FolderJson, string],
  to: ModelTarget | QuantizeModelOptions,
  options: object,
  use: (run: Pipeline) => Promise<void>,
): Promise<void> {
  const { env, pipeline } = (await import(pathToFileURL(entry).href)) as Transformers;
  const place = await mkdtemp(join(tmpdir(), 'scalepoint-transformers-'));
  try {
    const made = await makeFolder(weights, files, typeof to === 'string' ? { to } : to);
    for (const [name, bytes] of made.files) {
      await mkdir(dirname(join(place, 'made', name)), { recursive: true });
      await writeFile(join(place, 'made', name), bytes);
    }
    Object.assign(env, { allowRemoteModels: false, useFSCache: false, localModelPath: place });
    const run = await pipeline(task, 'made', { device: 'cpu', ...options });
    await use(run);
    await run.dispose();
  } finally {
    await rm(place, { recursive: true, force: true });
  }
}

const decoder = (architecture: string, more: object, options: object): readonly [Weights, FolderJson, string] => [
  decoderWeights(options),
  {
    'config.json': decoderConfig(architecture, { tie_word_embeddings: false, ...more }),
    'tokenizer.json': plainTokenizer({
      decoder: {
        type: 'Sequence',
        decoders: [
          { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
          { type: 'ByteFallback' },
          { type: 'Fuse' },
        ],
      },
    }),
    'tokenizer_config.json': { tokenizer_class: 'PreTrainedTokenizerFast', pad_token: '</s>', unk_token: '<unk>' },
    'generation_config.json': { pad_token_id: 2 },
  },
  'text-generation',
];

const llama = decoder('LlamaForCausalLM', {}, {});
const dtypes = ['fp32', 'fp16', 'q8', 'int8', 'uint8', 'q4', 'q4f16', 'bnb4'] as const;

it.each(dtypes)('a decoder as %s goes on with texts, alone and side by side', async (dtype) => {
  if (!existsSync(entry)) return expect(howToInstall).toBe('');
  await withPipeline(llama, `onnx:${dtype}`, { dtype }, async (run) => {
    const settings = { max_new_tokens: 6, do_sample: false, return_full_text: false };
    const textOf = (result: unknown) => (result as { generated_text: string }[])[0]!.generated_text;
    const [long, short] = ['abcd abc dcba', 'bad'];
    const alone = [textOf(await run(long!, settings)), textOf(await run(short!, settings))];
    // The shorter text has padding in front. Activations in 8 bits share a range, so that texts side by side change each other.
    if (!/8$/.test(dtype)) expect(((await run([long!, short!], settings)) as unknown[]).map(textOf)).toEqual(alone);
    if (dtype !== 'fp32') return;
    // The likeliest tokens of the definition.
    const model = {
      layers: tiny.layers,
      heads: 4,
      keyHeads: 2,
      head: 16,
      theta: 10000,
      epsilon: 1e-5,
      headName: 'lm_head.weight',
    };
    const ids = run.tokenizer(long!).input_ids.tolist()[0]!.map(Number);
    const begun = ids.length;
    for (let i = 0; i < 6; i++) {
      const last = decoderLogits(llama[0], model, ids).at(-1)!;
      ids.push(last.indexOf(Math.max(...last)));
    }
    const tokenizer = run.tokenizer as unknown as { decode(ids: number[], options: object): string };
    expect(alone[0]).toBe(tokenizer.decode(ids.slice(begun), { skip_special_tokens: true }));
  });
});

it('a decoder of several types is loaded by each, and without one by the first', async () => {
  if (!existsSync(entry)) return expect(howToInstall).toBe('');
  const settings = { max_new_tokens: 6, do_sample: false };
  const textOf = async (to: ModelTarget | QuantizeModelOptions, options: object) => {
    let text: unknown;
    await withPipeline(llama, to, options, async (run) => {
      text = await run('abcd abc dcba', settings);
    });
    return text;
  };
  const several: QuantizeModelOptions = { to: 'onnx:q4', also: ['onnx:fp32', 'onnx:q8'], externalData: true };
  const [q4, fp32] = [await textOf('onnx:q4', {}), await textOf('onnx:fp32', {})];
  expect(q4).not.toEqual(fp32);
  expect([await textOf(several, {}), await textOf(several, { dtype: 'fp32' })]).toEqual([q4, fp32]);
  expect(await textOf(several, { dtype: 'q8' })).toHaveLength(1);
});

it.each(['fp32', 'fp16', 'q4', 'q4f16'] as const)('a fused decoder as %s goes on as the plain one', async (dtype) => {
  if (!existsSync(entry)) return expect(howToInstall).toBe('');
  const settings = { max_new_tokens: 6, do_sample: false };
  const textsOf = async (profile: 'plain' | 'fused') => {
    const texts: unknown[] = [];
    const caches = /16/.test(dtype) ? ({ kvCache: 'float16' } as const) : {};
    await withPipeline(llama, { to: `onnx:${dtype}`, profile, ...caches }, { dtype }, async (run) => {
      for (const text of ['abcd abc dcba', 'bad']) texts.push(await run(text, settings));
      texts.push(await run(['abcd abc dcba', 'bad'], settings));
    });
    const [long, short, both] = texts;
    expect(both).toEqual([long, short]);
    return both;
  };
  expect(await textsOf('fused')).toEqual(await textsOf('plain'));
});

it('a decoder with 8 bits in blocks is found by its name', async () => {
  if (!existsSync(entry)) return expect(howToInstall).toBe('');
  const options = { dtype: 'fp32', model_file_name: 'model_q8-blocks' };
  await withPipeline(llama, 'onnx:q8-blocks', options, async (run) => {
    expect(await run('abc', { max_new_tokens: 3, do_sample: false })).toHaveLength(1);
  });
});

it.each(['fp32', 'fp16', 'q8', 'q4'] as const)('an encoder as %s gives vectors', async (dtype) => {
  if (!existsSync(entry)) return expect(howToInstall).toBe('');
  const decoder = { type: 'WordPiece', prefix: '##', cleanup: true };
  const files = { ...bertFiles(12), 'tokenizer.json': wordTokenizer({ decoder, post_processor: null }) };
  const bert = [bertWeights(12), files, 'feature-extraction'] as const;
  await withPipeline(bert, `onnx:${dtype}`, { dtype }, async (run) => {
    const result = (await run(['the cat sat on the mat.', 'cats'], { pooling: 'mean', normalize: true })) as {
      readonly dims: readonly number[];
      readonly data: Float32Array;
    };
    expect(result.dims).toEqual([2, tiny.hidden]);
    const length = Math.hypot(...result.data.slice(0, tiny.hidden));
    // The square root of a sum of 64 squares in float32.
    expect(Math.abs(length - 1)).toBeLessThan(64 * 2 ** -24);
  });
});

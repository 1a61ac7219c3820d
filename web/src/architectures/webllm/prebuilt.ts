/**
 * The models for which WebLLM has prebuilt libraries, with the numbers that a library was compiled with: fine-tunes have to have the same ones.
 * A library is called by the model of `prebuiltAppConfig` that uses it; names of files change with each version of WebLLM.
 * Reference: github.com/mlc-ai/web-llm at 0251bb4a, src/config.ts (prebuiltAppConfig); the numbers are those of MODEL_PRESETS in
 * mlc-ai/mlc-llm at 01ced331, python/mlc_llm/model/model_preset.py, which libraries are compiled for, and for Phi those of the config.json of
 * microsoft/Phi-3-mini-4k-instruct with the defaults of Phi3Config in python/mlc_llm/model/phi3/phi3_model.py.
 */
import type { MlcTarget } from '../../formats/mlc/targets.js';
import type { FamilyName } from './families.js';
import type { ModelNumbers } from './numbers.js';
import type { TemplateName } from './templates.js';

/** A prebuilt library. */
export interface PrebuiltLibrary {
  /** The model, to which `-q4f16_1-MLC` is added. */
  readonly model: string;
  readonly family: FamilyName;
  readonly numbers: ModelNumbers;
  /** The form of its chats. */
  readonly template: TemplateName;
  /** Longest context that WebLLM gives it. */
  readonly context: number;
  /** Targets without a library. */
  readonly lacks?: readonly MlcTarget[];
}

/** The numbers in a row: sizes, then settings. */
function numbers(
  [hidden_size, intermediate_size, num_hidden_layers]: readonly [number, number, number],
  [num_attention_heads, num_key_value_heads, head_dim]: readonly [number, number, number],
  vocab_size: number,
  rope_theta: number,
  more: Partial<ModelNumbers> = {},
): ModelNumbers {
  return {
    hidden_size,
    intermediate_size,
    num_hidden_layers,
    num_attention_heads,
    num_key_value_heads,
    head_dim,
    vocab_size,
    rope_theta,
    rms_norm_eps: 1e-5,
    rope_scaling: 'none',
    tie_word_embeddings: false,
    ...more,
  };
}

/** Llama, Mistral and SmolLM2. */
const llamas: readonly PrebuiltLibrary[] = [
  {
    model: 'Llama-3.2-1B-Instruct',
    family: 'llama',
    numbers: numbers([2048, 8192, 16], [32, 8, 64], 128256, 500000, {
      rope_scaling: 'llama3 32',
      tie_word_embeddings: true,
    }),
    template: 'llama-3_1',
    context: 4096,
  },
  {
    model: 'Llama-3.2-3B-Instruct',
    family: 'llama',
    numbers: numbers([3072, 8192, 28], [24, 8, 128], 128256, 500000, {
      rope_scaling: 'llama3 32',
      tie_word_embeddings: true,
    }),
    template: 'llama-3_1',
    context: 4096,
  },
  {
    model: 'Llama-3.1-8B-Instruct',
    family: 'llama',
    numbers: numbers([4096, 14336, 32], [32, 8, 128], 128256, 500000, { rope_scaling: 'llama3 8' }),
    template: 'llama-3_1',
    context: 4096,
  },
  {
    model: 'Llama-3-8B-Instruct',
    family: 'llama',
    numbers: numbers([4096, 14336, 32], [32, 8, 128], 128256, 500000),
    template: 'llama-3',
    context: 4096,
  },
  {
    model: 'Llama-2-7b-chat-hf',
    family: 'llama',
    numbers: numbers([4096, 11008, 32], [32, 32, 128], 32000, 10000),
    template: 'llama-2',
    context: 4096,
  },
  {
    model: 'Llama-2-13b-chat-hf',
    family: 'llama',
    numbers: numbers([5120, 13824, 40], [40, 40, 128], 32000, 10000),
    template: 'llama-2',
    context: 4096,
    lacks: ['mlc-q4f32_1'],
  },
  {
    model: 'TinyLlama-1.1B-Chat-v1.0',
    family: 'llama',
    numbers: numbers([2048, 5632, 22], [32, 4, 64], 32000, 10000),
    template: 'tinyllama_v1_0',
    context: 2048,
  },
  {
    model: 'SmolLM2-1.7B-Instruct',
    family: 'llama',
    numbers: numbers([2048, 8192, 24], [32, 32, 64], 49152, 130000, { tie_word_embeddings: true }),
    template: 'chatml',
    context: 4096,
  },
  {
    model: 'SmolLM2-360M-Instruct',
    family: 'llama',
    numbers: numbers([960, 2560, 32], [15, 5, 64], 49152, 100000, { tie_word_embeddings: true }),
    template: 'chatml',
    context: 4096,
  },
  {
    model: 'Mistral-7B-Instruct-v0.3',
    family: 'mistral',
    numbers: numbers([4096, 14336, 32], [32, 8, 128], 32768, 1000000),
    template: 'mistral_default',
    context: 4096,
  },
];

/** Qwen2, Qwen2.5 and Qwen3. */
const qwens: readonly PrebuiltLibrary[] = [
  {
    model: 'Qwen2.5-0.5B-Instruct',
    family: 'qwen2',
    numbers: numbers([896, 4864, 24], [14, 2, 64], 151936, 1000000, { rms_norm_eps: 1e-6, tie_word_embeddings: true }),
    template: 'qwen2',
    context: 4096,
  },
  {
    model: 'Qwen2.5-1.5B-Instruct',
    family: 'qwen2',
    numbers: numbers([1536, 8960, 28], [12, 2, 128], 151936, 1000000, {
      rms_norm_eps: 1e-6,
      tie_word_embeddings: true,
    }),
    template: 'qwen2',
    context: 4096,
  },
  {
    model: 'Qwen2.5-3B-Instruct',
    family: 'qwen2',
    numbers: numbers([2048, 11008, 36], [16, 2, 128], 151936, 1000000, {
      rms_norm_eps: 1e-6,
      tie_word_embeddings: true,
    }),
    template: 'qwen2',
    context: 4096,
  },
  {
    model: 'Qwen2.5-7B-Instruct',
    family: 'qwen2',
    numbers: numbers([3584, 18944, 28], [28, 4, 128], 152064, 1000000, { rms_norm_eps: 1e-6 }),
    template: 'qwen2',
    context: 4096,
  },
  {
    model: 'Qwen3-0.6B',
    family: 'qwen3',
    numbers: numbers([1024, 3072, 28], [16, 8, 128], 151936, 1000000, {
      rms_norm_eps: 1e-6,
      tie_word_embeddings: true,
    }),
    template: 'qwen2',
    context: 4096,
  },
  {
    model: 'Qwen3-1.7B',
    family: 'qwen3',
    numbers: numbers([2048, 6144, 28], [16, 8, 128], 151936, 1000000, {
      rms_norm_eps: 1e-6,
      tie_word_embeddings: true,
    }),
    template: 'qwen2',
    context: 4096,
  },
  {
    model: 'Qwen3-4B',
    family: 'qwen3',
    numbers: numbers([2560, 9728, 36], [32, 8, 128], 151936, 1000000, {
      rms_norm_eps: 1e-6,
      tie_word_embeddings: true,
    }),
    template: 'qwen2',
    context: 4096,
  },
  {
    model: 'Qwen3-8B',
    family: 'qwen3',
    numbers: numbers([4096, 12288, 36], [32, 8, 128], 151936, 1000000, { rms_norm_eps: 1e-6 }),
    template: 'qwen2',
    context: 4096,
  },
];

/** Gemma and Phi. */
const others: readonly PrebuiltLibrary[] = [
  {
    model: 'gemma-2b-it',
    family: 'gemma',
    numbers: numbers([2048, 16384, 18], [8, 1, 256], 256000, 10000, { rms_norm_eps: 1e-6, tie_word_embeddings: true }),
    template: 'gemma_instruction',
    context: 4096,
  },
  {
    model: 'gemma-2-2b-it',
    family: 'gemma2',
    numbers: numbers([2304, 9216, 26], [8, 4, 256], 256000, 10000, { rms_norm_eps: 1e-6, tie_word_embeddings: true }),
    template: 'gemma_instruction',
    context: 4096,
  },
  {
    model: 'gemma-2-9b-it',
    family: 'gemma2',
    numbers: numbers([3584, 14336, 42], [16, 8, 256], 256000, 10000, { rms_norm_eps: 1e-6, tie_word_embeddings: true }),
    template: 'gemma_instruction',
    context: 4096,
  },
  {
    model: 'Phi-3-mini-4k-instruct',
    family: 'phi3',
    numbers: numbers([3072, 8192, 32], [32, 32, 96], 32064, 10000),
    template: 'phi-3',
    context: 4096,
  },
  {
    model: 'Phi-3.5-mini-instruct',
    family: 'phi3',
    numbers: numbers([3072, 8192, 32], [32, 32, 96], 32064, 10000, { rope_scaling: 'longrope' }),
    template: 'phi-3',
    context: 4096,
  },
];

const all: PrebuiltLibrary[] = [...llamas, ...qwens, ...others];

/** The libraries. */
export function libraries(): readonly PrebuiltLibrary[] {
  return all;
}

/** Adds a library, such as one compiled for models of one's own. Returns a function that removes it. */
export function registerLibrary(library: PrebuiltLibrary): () => void {
  all.push(library);
  return () => void all.splice(all.indexOf(library), 1);
}

/**
 * Models for which WebLLM has prebuilt libraries, and the parameters that MLC-LLM has for them: their names, and what the weights of a folder
 * become. The families themselves are in ../families/.
 * Reference: github.com/mlc-ai/mlc-llm at 01ced331, python/mlc_llm/model/: ARCHITECTURE/ARCHITECTURE_loader.py and _model.py;
 * github.com/mlc-ai/web-llm at 0251bb4a, src/config.ts (prebuiltAppConfig).
 */
import type { MlcTarget } from '../../formats/mlc/targets.js';
import type { Json } from '../huggingface/json.js';
import type { TemplateName } from './templates.js';

/** The numbers of a model that a compiled library depends on, as config.json calls them. */
export interface ModelNumbers {
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
  readonly num_key_value_heads: number;
  readonly head_dim: number;
  readonly vocab_size: number;
  readonly rms_norm_eps: number;
  readonly rope_theta: number;
  /** The kind of scaling, and its factor: `llama3 32`; `none` without. */
  readonly rope_scaling: string;
  readonly tie_word_embeddings: boolean;
}

/** A prebuilt library. It is called by the model of `prebuiltAppConfig` that uses it; names of files change with each version of WebLLM. */
export interface PrebuiltLibrary {
  /** The model, to which `-q4f16_1-MLC` is added. */
  readonly model: string;
  /** The family's name in MLC-LLM. */
  readonly family: string;
  readonly numbers: ModelNumbers;
  /** The form of its chats. */
  readonly template: TemplateName;
  /** Longest context that WebLLM gives it. */
  readonly context: number;
  /** Targets without a library. */
  readonly lacks?: readonly MlcTarget[] | undefined;
}

/**
 * A library with the numbers that it was compiled with, of hidden_size, intermediate_size and num_hidden_layers; of heads, key heads and
 * elements of a head; vocab_size, and rope_theta. Numbers are those of MODEL_PRESETS in mlc-llm, python/mlc_llm/model/model_preset.py, which
 * libraries are compiled for.
 */
type LibraryRow = readonly [
  model: string,
  template: TemplateName,
  sizes: readonly [number, number, number],
  heads: readonly [number, number, number],
  vocabulary: number,
  theta: number,
  more?: Partial<ModelNumbers> & Partial<Pick<PrebuiltLibrary, 'context' | 'lacks'>>,
];

/** Settings of a model that MLC-LLM writes. */
interface SettingsInputs {
  /** Numbers of the model without the base and the scaling of the rotary embedding. */
  readonly sizes: Json;
  /** These with the base under its usual name. */
  readonly based: Json;
  readonly numbers: ModelNumbers;
  /** rope_scaling of config.json, or null. */
  readonly scaling: Json | null;
  /** Sizes of contexts and batches. */
  readonly work: Json;
  /** Values of config.json, with null for missing ones. */
  stated(...names: readonly string[]): Json;
}

/** A class of models as MLC-LLM has it. */
export interface WebllmFamily {
  /** Name in MLC-LLM. */
  readonly modelType: string;
  /** The module of queries, keys and values. */
  readonly attention: string;
  /** True if these have biases. */
  readonly biases?: true;
  /** Norms of a layer besides those of Llama and of attention heads. */
  readonly moreNorms?: readonly string[];
  /** True if queries and keys have norms. */
  readonly headNorms?: true;
  /** Number added to norms. It is added in float32; the loader since 2026 adds it in the type of the folder. */
  readonly normAdd?: number;
  /** Other names of modules, by the start or a part of their names in the folder. */
  readonly renamed?: readonly (readonly [from: RegExp, to: string])[];
  /** True if the folder has joined matrices already. */
  readonly isJoined?: true;
  /** True if a library takes vocabularies of any size. */
  readonly anyVocabulary?: true;
  /** Tokens at the start of a text that stay in a sliding window. */
  readonly sink?: number;
  /** Keys of config.json, and the values that libraries are compiled with. A missing key has the first one. */
  readonly fixed: Readonly<Record<string, readonly unknown[]>>;
  /** Settings of a model as MLC's class of its architecture holds them. */
  readonly settings: (inputs: SettingsInputs) => Json;
  readonly libraries: readonly LibraryRow[];
}

/** Libraries that are added to those of the families. */
const registered: PrebuiltLibrary[] = [];

/** The libraries of a family. */
export function librariesOf({ modelType: family, libraries }: WebllmFamily): PrebuiltLibrary[] {
  const own = libraries.map(([model, template, sizes, heads, vocabulary, theta, more = {}]): PrebuiltLibrary => {
    const [hidden_size, intermediate_size, num_hidden_layers] = sizes;
    const [num_attention_heads, num_key_value_heads, head_dim] = heads;
    const { context = 4096, lacks, ...numbers } = more;
    return {
      ...{ model, family, template, context, lacks },
      numbers: {
        ...{ hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim },
        vocab_size: vocabulary,
        rope_theta: theta,
        rms_norm_eps: 1e-5,
        rope_scaling: 'none',
        tie_word_embeddings: false,
        ...numbers,
      },
    };
  });
  return [...own, ...registered.filter((library) => library.family === family)];
}

/** Adds a library, such as one compiled for models of one's own. Returns a function that removes it. */
export function registerLibrary(library: PrebuiltLibrary): () => void {
  registered.push(library);
  return () => void registered.splice(registered.indexOf(library), 1);
}

/** A parameter of a module: quantized weights, or floats such as those of norms. */
export interface NeededParameter {
  readonly module: string;
  readonly kind: 'weight' | 'floats';
  /** Its name in the module, if it holds floats. */
  readonly name: 'weight' | 'bias';
  /** Tensors of the folder whose rows follow each other. */
  readonly tensors: readonly { readonly name: string; readonly shape: readonly number[] }[];
  /** Number added to each element. */
  readonly add?: number;
}

/** The parameters of a layer. */
function* layerParameters(family: WebllmFamily, sizes: ModelNumbers, layer: string): Generator<NeededParameter> {
  const { hidden_size: hidden, intermediate_size: inner, head_dim: head } = sizes;
  const [queries, keys] = [sizes.num_attention_heads * head, sizes.num_key_value_heads * head];
  const weight = (module: string, tensors: readonly (readonly [name: string, rows: number, columns: number])[]) =>
    ({
      module: `${layer}.${module}`,
      kind: 'weight',
      name: 'weight',
      tensors: tensors.map(([name, rows, columns]) => ({ name: `${layer}.${name}.weight`, shape: [rows, columns] })),
    }) as const;
  const attention = `self_attn.${family.attention}`;
  const parts = [
    ['self_attn.q_proj', queries],
    ['self_attn.k_proj', keys],
    ['self_attn.v_proj', keys],
  ] as const;
  yield weight(
    attention,
    family.isJoined
      ? [['self_attn.qkv_proj', queries + 2 * keys, hidden]]
      : parts.map(([name, rows]) => [name, rows, hidden] as const),
  );
  if (family.biases) {
    const tensors = parts.map(([name, rows]) => ({ name: `${layer}.${name}.bias`, shape: [rows] }));
    yield { module: `${layer}.${attention}`, kind: 'floats', name: 'bias', tensors };
  }
  yield weight('self_attn.o_proj', [['self_attn.o_proj', hidden, queries]]);
  yield weight(
    'mlp.gate_up_proj',
    family.isJoined
      ? [['mlp.gate_up_proj', 2 * inner, hidden]]
      : [
          ['mlp.gate_proj', inner, hidden],
          ['mlp.up_proj', inner, hidden],
        ],
  );
  yield weight('mlp.down_proj', [['mlp.down_proj', hidden, inner]]);
  const names = ['input_layernorm', 'post_attention_layernorm', ...(family.moreNorms ?? [])];
  const norms = names.map((name) => [name, hidden] as const);
  const heads = ['self_attn.q_norm', 'self_attn.k_norm'].map((name) => [name, head] as const);
  for (const [name, length] of [...norms, ...(family.headNorms ? heads : [])])
    yield norm(family, `${layer}.${name}`, length);
}

function norm({ normAdd }: WebllmFamily, module: string, length: number): NeededParameter {
  const tensors = [{ name: `${module}.weight`, shape: [length] }];
  const own = { module, kind: 'floats', name: 'weight', tensors } as const;
  return normAdd === undefined ? own : { ...own, add: normAdd };
}

/** All parameters of a model. */
export function* webllmParameters(family: WebllmFamily, sizes: ModelNumbers): Generator<NeededParameter> {
  const { hidden_size: hidden, vocab_size: vocabulary, num_hidden_layers: layers } = sizes;
  const renamed = (parameter: NeededParameter): NeededParameter => ({
    ...parameter,
    module: (family.renamed ?? []).reduce((module, [from, to]) => module.replace(from, to), parameter.module),
  });
  const matrix = (module: string): NeededParameter => ({
    module,
    kind: 'weight',
    name: 'weight',
    tensors: [{ name: `${module}.weight`, shape: [vocabulary, hidden] }],
  });
  yield renamed(matrix('model.embed_tokens'));
  for (let i = 0; i < layers; i++) {
    for (const parameter of layerParameters(family, sizes, `model.layers.${i}`)) yield renamed(parameter);
  }
  yield renamed(norm(family, 'model.norm', hidden));
  if (!sizes.tie_word_embeddings) yield matrix('lm_head');
}

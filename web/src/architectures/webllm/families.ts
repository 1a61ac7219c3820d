/**
 * Architectures as MLC-LLM has them: the names of their parameters, and what the weights of a folder become.
 * Reference: github.com/mlc-ai/mlc-llm at 01ced331, python/mlc_llm/model/: ARCHITECTURE/ARCHITECTURE_loader.py and _model.py.
 */
import type { ModelNumbers } from './numbers.js';

/** A tensor of a folder. */
interface NeededTensor {
  readonly name: string;
  readonly shape: readonly number[];
}

/** A parameter of a module: quantized weights, or floats such as those of norms. */
export interface NeededParameter {
  readonly module: string;
  readonly kind: 'weight' | 'floats';
  /** Its name in the module, if it holds floats. */
  readonly name: 'weight' | 'bias';
  /** Tensors whose rows follow each other. */
  readonly tensors: readonly NeededTensor[];
  /** Number added to each element. */
  readonly add?: number;
}

interface Family {
  /** Name in config.json. */
  readonly architecture: string;
  /** Name in MLC-LLM. */
  readonly modelType: string;
  /** The module of queries, keys and values. */
  readonly attention: string;
  /** True if these have biases. */
  readonly biases?: boolean;
  /** Norms of a layer, besides those of attention heads. */
  readonly norms: readonly string[];
  /** True if queries and keys have norms. */
  readonly headNorms?: boolean;
  /** Number added to norms. It is added in float32; the loader since 2026 adds it in the type of the folder. */
  readonly normAdd?: number;
  /** Other names of modules, by the start or a part of their names in the folder. */
  readonly renamed?: readonly (readonly [from: RegExp, to: string])[];
  /** True if the folder has joined matrices already. */
  readonly isJoined?: boolean;
  /** True if a library takes vocabularies of any size. */
  readonly anyVocabulary?: boolean;
  /** Keys of config.json, and the values that libraries are compiled with. A missing key has the first one. */
  readonly fixed: Readonly<Record<string, readonly unknown[]>>;
}

const llamaNorms = ['input_layernorm', 'post_attention_layernorm'];
const gemmaActs = { hidden_act: ['gelu_pytorch_tanh', 'gelu'], hidden_activation: ['gelu_pytorch_tanh', null] };

const table = {
  llama: {
    architecture: 'LlamaForCausalLM',
    modelType: 'llama',
    attention: 'qkv_proj',
    norms: llamaNorms,
    anyVocabulary: true,
    fixed: { hidden_act: ['silu'], attention_bias: [false], mlp_bias: [false] },
  },
  mistral: {
    architecture: 'MistralForCausalLM',
    modelType: 'mistral',
    attention: 'qkv_proj',
    norms: llamaNorms,
    anyVocabulary: true,
    fixed: { hidden_act: ['silu'], sliding_window: [null] },
  },
  qwen2: {
    architecture: 'Qwen2ForCausalLM',
    modelType: 'qwen2',
    attention: 'c_attn',
    biases: true,
    norms: llamaNorms,
    fixed: { hidden_act: ['silu'], use_sliding_window: [false] },
  },
  qwen3: {
    architecture: 'Qwen3ForCausalLM',
    modelType: 'qwen3',
    attention: 'c_attn',
    norms: llamaNorms,
    headNorms: true,
    fixed: { hidden_act: ['silu'], attention_bias: [false], use_sliding_window: [false] },
  },
  gemma: {
    architecture: 'GemmaForCausalLM',
    modelType: 'gemma',
    attention: 'qkv_proj',
    norms: llamaNorms,
    normAdd: 1,
    anyVocabulary: true,
    fixed: { ...gemmaActs, attention_bias: [false] },
  },
  gemma2: {
    architecture: 'Gemma2ForCausalLM',
    modelType: 'gemma2',
    attention: 'qkv_proj',
    norms: [...llamaNorms, 'pre_feedforward_layernorm', 'post_feedforward_layernorm'],
    normAdd: 1,
    anyVocabulary: true,
    fixed: { ...gemmaActs, attention_bias: [false], final_logit_softcapping: [30], query_pre_attn_scalar: [256] },
  },
  phi3: {
    architecture: 'Phi3ForCausalLM',
    modelType: 'phi3',
    attention: 'qkv_proj',
    norms: llamaNorms,
    isJoined: true,
    renamed: [
      [/^model\.embed_tokens$/, 'transformer.embd'],
      [/^model\.norm$/, 'transformer.norm'],
      [/^model\.layers\./, 'transformer.h.'],
      [/\.input_layernorm$/, '.ln'],
      [/\.self_attn\.o_proj$/, '.mixer.out_proj'],
      [/\.self_attn\./, '.mixer.'],
    ],
    fixed: { hidden_act: ['silu'], attention_bias: [false], partial_rotary_factor: [1] },
  },
} as const satisfies Readonly<Record<string, Family>>;

export type FamilyName = keyof typeof table;

/** The facts of a family. */
export function familyOf(name: FamilyName): Family {
  return table[name];
}

/** The families of an architecture; empty if no library has it. */
export function familiesOf(architecture: unknown): FamilyName[] {
  return (Object.keys(table) as FamilyName[]).filter((name) => table[name].architecture === architecture);
}

/** The architectures that have libraries. */
export const webllmArchitectures: readonly string[] = Object.values(table).map(({ architecture }) => architecture);

/** The parameters of a layer. */
function* layerParameters(family: Family, sizes: ModelNumbers, layer: string): Generator<NeededParameter> {
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
  const norms = family.norms.map((name) => [name, hidden] as const);
  const heads = ['self_attn.q_norm', 'self_attn.k_norm'].map((name) => [name, head] as const);
  for (const [name, length] of [...norms, ...(family.headNorms ? heads : [])])
    yield norm(family, `${layer}.${name}`, length);
}

function norm({ normAdd }: Family, module: string, length: number): NeededParameter {
  const tensors = [{ name: `${module}.weight`, shape: [length] }];
  const own = { module, kind: 'floats', name: 'weight', tensors } as const;
  return normAdd === undefined ? own : { ...own, add: normAdd };
}

/** All parameters of a model. */
export function* parametersOf(name: FamilyName, sizes: ModelNumbers): Generator<NeededParameter> {
  const family = familyOf(name);
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

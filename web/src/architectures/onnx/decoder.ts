/**
 * Graphs of decoders for transformers.js. Inputs and outputs are those that transformers.js fills and reads: caches by layer, positions and a
 * mask, with padding on either side. The plain profile has plain operators, which compute alike on every backend. The fused one has
 * onnxruntime's operators for rotary embeddings and attention, and logits of the last tokens alone.
 * Reference: github.com/huggingface/transformers, src/transformers/models/ at 008e574; npm @huggingface/transformers 4.3.2, src/models/.
 */
import { show } from '../../core/show.js';
import type { OnnxProfile } from '../../formats/onnx/options.js';
import { type Config, type Rope, readRope } from '../huggingface/config.js';
import { badFolderFile, unsupported } from '../huggingface/errors.js';
import type { Json } from '../huggingface/json.js';
import { setting } from '../huggingface/rope.js';
import type { DecoderGraph } from './families.js';
import type { GraphWriter, ValueName } from './graph.js';
import { checkSettings, functionNamed, Parts, type Shapes, type Turns } from './parts.js';
import { type Frequencies, frequenciesOf } from './rope.js';
import { type SentenceModules, sentenceVector } from './sentence.js';

const file = 'config.json';
const usualScaling = ['linear', 'llama3', 'yarn'] as const;

/** The window of each layer; undefined for layers that see all tokens. */
function windowsOf(config: Config, facts: DecoderGraph, layers: number): readonly (number | undefined)[] {
  const isOff = facts.switchesWindow === true && config.maybeFlag('use_sliding_window') !== true;
  const window = config.maybeWhole('sliding_window');
  const isWide = window !== undefined && window >= config.whole('max_position_embeddings');
  const types = config.get('layer_types');
  if (types !== undefined && (!Array.isArray(types) || types.length !== layers))
    badFolderFile(file, `layer_types has to be an array of ${layers} names, got ${show(types)}`);
  const step = config.maybeWhole('sliding_window_pattern');
  const from = facts.switchesWindow === true ? config.maybeWhole('max_window_layers', 0) : undefined;
  return Array.from({ length: layers }, (_, i) => {
    const type = (types as readonly unknown[] | undefined)?.[i];
    if (type !== undefined && type !== 'full_attention' && type !== 'sliding_attention')
      unsupported(file, `layer_types[${i}] is ${show(type)}; it can be full_attention or sliding_attention`);
    const isGlobal =
      type === undefined
        ? (step === undefined ? facts.slides?.(i) === false : (i + 1) % step === 0) || (from !== undefined && i < from)
        : type === 'full_attention';
    if (isGlobal || (isOff && type === undefined) || isWide) return undefined;
    if (window === undefined && type === 'sliding_attention') badFolderFile(file, 'sliding_window is missing');
    return window;
  });
}

/** True for each layer with a rotary embedding. */
function rotariesOf(config: Config, facts: DecoderGraph, layers: number): readonly boolean[] {
  if (facts.skipsRotary !== true) return Array.from({ length: layers }, () => true);
  const list = config.get('no_rope_layers');
  const step = config.maybeWhole('no_rope_layer_interval') ?? 4;
  if (list === undefined || (Array.isArray(list) && list.length === 0))
    return Array.from({ length: layers }, (_, i) => (i + 1) % step !== 0);
  if (Array.isArray(list) && list.length === layers && list.every((n) => n === 0 || n === 1)) return list.map(Boolean);
  return badFolderFile(file, `no_rope_layers has to be ${layers} zeros and ones, got ${show(list)}`);
}

/** The tokens that attention sees. */
interface Seen {
  /** The mask, which is added to scores: [batch or 1, 1, sequence, total]. */
  readonly mask: ValueName;
  /** Tokens of the cache with the new ones, as a vector of one number. */
  readonly total: ValueName;
  /** Inputs of onnxruntime's operators: rows of sines and cosines by token, last places of the cache by text, and the total. */
  readonly fused?: Readonly<Record<'places' | 'lengths' | 'total', ValueName>> | undefined;
}

/** Writes the graph of a decoder, layer by layer. */
class DecoderWriter extends Parts {
  readonly #config: Config;
  readonly #facts: DecoderGraph;
  readonly #rope: Rope;
  readonly #hidden: number;
  readonly #layers: number;
  readonly #heads: number;
  readonly #keyHeads: number;
  readonly #head: number;
  readonly #feedForward: number;
  readonly #rotated: number;
  readonly #epsilon: number;
  readonly #activation: (graph: GraphWriter, x: ValueName) => ValueName;
  /** Factor of the scores of attention. */
  readonly #scale: number;
  readonly #attentionCap: number | undefined;
  readonly #residual: number;
  readonly #profile: OnnxProfile;

  constructor(config: Config, facts: DecoderGraph, shapes: Shapes, profile: OnnxProfile) {
    super(shapes);
    this.#profile = profile;
    this.#config = config;
    this.#facts = facts;
    this.#rope = readRope(config);
    checkSettings(config, facts.only);
    if (config.maybeFlag('is_causal') === false)
      unsupported(file, 'is_causal is false; in graphs of decoders no token sees those behind it');
    this.#hidden = config.whole('hidden_size');
    this.#layers = config.whole('num_hidden_layers');
    this.#heads = config.whole('num_attention_heads');
    this.#keyHeads = config.whole('num_key_value_heads', this.#heads);
    if (this.#heads % this.#keyHeads !== 0)
      badFolderFile(
        file,
        `num_attention_heads ${this.#heads} is not a multiple of num_key_value_heads ${this.#keyHeads}`,
      );
    this.#head = config.maybeWhole('head_dim') ?? this.#hidden / this.#heads;
    if (!Number.isInteger(this.#head))
      badFolderFile(file, `hidden_size ${this.#hidden} is not a multiple of num_attention_heads ${this.#heads}`);
    this.#feedForward = config.whole('intermediate_size');
    const share = setting(this.#rope, 'partial_rotary_factor') ?? config.positive('partial_rotary_factor', 1);
    this.#rotated = Math.floor(share * this.#head);
    if (share > 1 || this.#rotated < 2 || this.#rotated % 2 !== 0)
      badFolderFile(
        file,
        `the rotary embedding turns ${this.#rotated} of ${this.#head} elements of a head; they have to be pairs`,
      );
    this.#epsilon = config.positive('rms_norm_eps');
    const usual = facts.isGemma === true ? 'gelu_pytorch_tanh' : 'silu';
    const stated = facts.isGemma === true ? config.get('hidden_activation') : undefined;
    this.#activation = functionNamed(stated ?? config.get('hidden_act') ?? usual);
    const scaled = facts.isGemma === true ? config.maybePositive('query_pre_attn_scalar') : undefined;
    this.#scale = this.#factor('attention_multiplier') ?? (scaled ?? this.#head) ** -0.5;
    this.#attentionCap = facts.isGemma === true ? config.maybePositive('attn_logit_softcapping') : undefined;
    this.#residual = this.#factor('residual_multiplier') ?? 1;
    if (profile === 'fused') this.#checkFused();
  }

  /** Fails for attention that GroupQueryAttention of onnxruntime 1.24 to 1.30 does not compute on every backend. */
  #checkFused(): void {
    const advice = 'the profile plain computes it';
    if (this.#attentionCap !== undefined)
      unsupported(
        file,
        `attn_logit_softcapping is ${this.#attentionCap}, which onnxruntime's attention ignores on WebGPU; ${advice}`,
      );
    if (this.#head % 8 !== 0 || this.#head > 256)
      unsupported(
        file,
        `a head has ${this.#head} elements, and onnxruntime's attention takes multiples of 8 up to 256; ${advice}`,
      );
  }

  /** A factor of Granite; undefined for others. */
  #factor(name: string): number | undefined {
    return this.#facts.hasFactors === true ? this.#config.positive(name, 1) : undefined;
  }

  #times(value: ValueName, factor: number): ValueName {
    return factor === 1 ? value : this.graph.op('Mul', [value, this.graph.float(factor)]);
  }

  /** A norm by the root of the mean square, over the last dimension. */
  #norm(x: ValueName, name: string, length = this.#hidden): ValueName {
    const { graph } = this;
    const squares = graph.op('Pow', [x, graph.float(2)]);
    const mean = graph.op('ReduceMean', [squares, graph.ints([-1])], { keepdims: 1 });
    const root = graph.op('Sqrt', [graph.op('Add', [mean, graph.float(this.#epsilon)])]);
    const weight = graph.weight(`${name}.weight`, [length]);
    const factor = this.#facts.isGemma === true ? graph.op('Add', [weight, graph.float(1)]) : weight;
    return graph.op('Mul', [graph.op('Div', [x, root]), factor]);
  }

  /** Bounds values softly: cap tanh(x / cap). */
  #capped(x: ValueName, cap: number | undefined): ValueName {
    const { graph } = this;
    if (cap === undefined) return x;
    return graph.op('Mul', [graph.op('Tanh', [graph.op('Div', [x, graph.float(cap)])]), graph.float(cap)]);
  }

  /** Sines and cosines of all positions: [batch, 1, sequence, pairs]. */
  #turns({ usual, long, factor }: Frequencies, positions: ValueName): Turns {
    const { graph } = this;
    let angles = graph.floats(usual);
    if (long !== undefined) {
      const last = graph.op('ReduceMax', [positions], { keepdims: 0 });
      const isLong = graph.op('GreaterOrEqual', [last, graph.int(long.original)]);
      angles = graph.op('Where', [isLong, graph.floats(long.angles), angles]);
    }
    const at = graph.op('Unsqueeze', [graph.cast(positions, 'F32'), graph.ints([1, 3])]);
    const product = graph.op('Mul', [at, angles]);
    // RotaryEmbedding looks rows of a table up.
    const turned = this.#profile === 'fused' ? graph.op('Reshape', [product, graph.ints([-1, usual.length])]) : product;
    return { cos: this.#times(graph.op('Cos', [turned]), factor), sin: this.#times(graph.op('Sin', [turned]), factor) };
  }

  /** Values of a product as heads: [batch, heads, sequence, head]. */
  #asHeads(x: ValueName, heads: number, norm: string): ValueName {
    const { headNorms } = this.#facts;
    const normed = headNorms === 'all' && norm !== '' ? this.#norm(x, norm, heads * this.#head) : x;
    const all = this.heads(normed, heads, this.#head);
    return headNorms === 'each' && norm !== '' ? this.#norm(all, norm, this.#head) : all;
  }

  #attention(x: ValueName, layer: number, turns: Turns | undefined, seen: Seen): ValueName {
    const { graph } = this;
    const [name, heads, keyHeads, head] = [`model.layers.${layer}.self_attn`, this.#heads, this.#keyHeads, this.#head];
    const sizes = [heads * head, keyHeads * head, keyHeads * head] as const;
    const [q, k, v] = (
      this.#facts.isFused === true
        ? graph.split(this.linear(x, `${name}.qkv_proj`, [this.#hidden, (heads + 2 * keyHeads) * head]), sizes)
        : (['q', 'k', 'v'] as const).map((one, i) =>
            this.linear(x, `${name}.${one}_proj`, [this.#hidden, sizes[i] as number]),
          )
    ) as [ValueName, ValueName, ValueName];
    const { fused } = seen;
    const mixed =
      fused === undefined
        ? this.#attend([q, k, v], layer, turns, seen)
        : this.#attendFused([q, k, v], layer, turns, seen.mask, fused);
    return this.linear(mixed, `${name}.o_proj`, [heads * head, this.#hidden]);
  }

  /** The input or output of a cache. */
  #cache(which: 'past_key_values' | 'present', layer: number, kind: 'key' | 'value', value?: ValueName): ValueName {
    const length = which === 'present' ? 'total_sequence_length' : 'past_sequence_length';
    const shape = ['batch_size', this.#keyHeads, length, this.#head];
    const name = `${which}.${layer}.${kind}`;
    if (value === undefined) return this.graph.input(name, 'F32', shape);
    this.graph.output(name, 'F32', shape, value);
    return name;
  }

  /** Attention of plain operators. */
  #attend(
    [q, k, v]: readonly [ValueName, ValueName, ValueName],
    layer: number,
    turns: Turns | undefined,
    { mask, total }: Seen,
  ): ValueName {
    const { graph } = this;
    const [name, heads, keyHeads, head] = [`model.layers.${layer}.self_attn`, this.#heads, this.#keyHeads, this.#head];
    const [queries, key] = [
      this.#asHeads(q, heads, `${name}.q_norm`),
      this.#asHeads(k, keyHeads, `${name}.k_norm`),
    ].map((one) => (turns === undefined ? one : this.rotated(one, turns, [this.#head, this.#rotated / 2]))) as [
      ValueName,
      ValueName,
    ];
    const value = this.#asHeads(v, keyHeads, '');
    // Put the cache in front.
    const [keys, values] = (
      [
        ['key', key],
        ['value', value],
      ] as const
    ).map(([kind, now]) => {
      const all = graph.op('Concat', [this.#cache('past_key_values', layer, kind), now], { axis: 2 });
      this.#cache('present', layer, kind, all);
      return all;
    }) as [ValueName, ValueName];
    // Heads of queries that share keys lie one below the other in one matrix.
    const isShared = heads !== keyHeads;
    const grouped = (some: ValueName, last: ValueName) =>
      isShared
        ? graph.op('Reshape', [some, graph.op('Concat', [graph.ints([0, keyHeads, -1]), last], { axis: 0 })])
        : some;
    const apart = (some: ValueName, last: ValueName) =>
      isShared
        ? graph.op('Reshape', [some, graph.op('Concat', [graph.ints([0, heads, -1]), last], { axis: 0 })])
        : some;
    const products = graph.op('MatMul', [
      grouped(this.#times(queries, this.#scale), graph.ints([head])),
      graph.op('Transpose', [keys], { perm: [0, 1, 3, 2] }),
    ]);
    const scores = this.#capped(apart(products, total), this.#attentionCap);
    const shares = graph.op('Softmax', [graph.op('Add', [scores, mask])], { axis: -1 });
    const mixed = apart(graph.op('MatMul', [grouped(shares, total), values]), graph.ints([head]));
    return this.joined(mixed, heads * head);
  }

  /** Attention of onnxruntime's operators. Positions turn queries and keys before, as padding moves them against their places in the cache. */
  #attendFused(
    [q, k, v]: readonly [ValueName, ValueName, ValueName],
    layer: number,
    turns: Turns | undefined,
    mask: ValueName,
    { places, lengths, total }: NonNullable<Seen['fused']>,
  ): ValueName {
    const { graph } = this;
    const { headNorms } = this.#facts;
    const [heads, keyHeads, head] = [this.#heads, this.#keyHeads, this.#head];
    const turned = (x: ValueName, count: number, norm: string) => {
      let normed = x;
      if (headNorms === 'all') normed = this.#norm(x, norm, count * head);
      if (headNorms === 'each') {
        const each = this.#norm(graph.op('Reshape', [x, graph.ints([0, 0, count, head])]), norm, head);
        normed = graph.op('Reshape', [each, graph.ints([0, 0, count * head])]);
      }
      if (turns === undefined) return normed;
      const part = this.#rotated === head ? {} : { num_heads: count, rotary_embedding_dim: this.#rotated };
      return graph.contrib('RotaryEmbedding', [normed, places, turns.cos, turns.sin], part)[0] as ValueName;
    };
    const name = `model.layers.${layer}.self_attn`;
    const [queries, keys] = [turned(q, heads, `${name}.q_norm`), turned(k, keyHeads, `${name}.k_norm`)];
    const past = (['key', 'value'] as const).map((kind) => this.#cache('past_key_values', layer, kind));
    const [mixed, key, value] = graph.contrib(
      'GroupQueryAttention',
      [queries, keys, v, ...past, lengths, total, '', '', '', mask],
      { num_heads: heads, kv_num_heads: keyHeads, scale: { float: this.#scale } },
      3,
    ) as [ValueName, ValueName, ValueName];
    this.#cache('present', layer, 'key', key);
    this.#cache('present', layer, 'value', value);
    return mixed;
  }

  #grow(x: ValueName, layer: number): ValueName {
    const { graph } = this;
    const [name, hidden, inner] = [`model.layers.${layer}.mlp`, this.#hidden, this.#feedForward];
    const [gate, up] = (
      this.#facts.isFused === true
        ? graph.split(this.linear(x, `${name}.gate_up_proj`, [hidden, 2 * inner]), [inner, inner])
        : ['gate', 'up'].map((one) => this.linear(x, `${name}.${one}_proj`, [hidden, inner]))
    ) as [ValueName, ValueName];
    return this.linear(graph.op('Mul', [this.#activation(graph, gate), up]), `${name}.down_proj`, [inner, hidden]);
  }

  /** Adds what a part of a layer makes of the states, with its norms. */
  #around(
    x: ValueName,
    layer: number,
    names: readonly [before: string, behind: string],
    make: (x: ValueName) => ValueName,
  ): ValueName {
    const { norms } = this.#facts;
    const [before, behind] = names.map((name) => `model.layers.${layer}.${name}`) as [string, string];
    const made = make(norms === 'behind' ? x : this.#norm(x, before));
    const added = norms === undefined ? made : this.#norm(made, behind);
    return this.graph.op('Add', [x, this.#times(added, this.#residual)]);
  }

  /** @param sentence modules behind the states; null for states alone, and undefined for logits */
  write(sentence: SentenceModules | null | undefined): GraphWriter {
    const { graph } = this;
    const config = this.#config;
    const { isGemma = false, norms, scaling = usualScaling } = this.#facts;
    const windows = windowsOf(config, this.#facts, this.#layers);
    const rotaries = rotariesOf(config, this.#facts, this.#layers);
    const vocabulary = config.whole('vocab_size');
    // The mask: a query sees the tokens up to its own, within the window, that are no padding.
    const batch = ['batch_size', 'sequence_length'] as const;
    const ids = graph.input('input_ids', 'I64', batch);
    const attentionMask = graph.input('attention_mask', 'I64', ['batch_size', 'total_sequence_length']);
    const positions = graph.input('position_ids', 'I64', batch);
    graph.scope = '/model';
    const [end, count] = [this.sizeAt(attentionMask, 1), this.sizeAt(ids, 1)];
    const total = graph.op('Unsqueeze', [end, graph.ints([0])]);
    const columns = graph.op('Range', [graph.int(0), end, graph.int(1)]);
    const own = graph.op('Range', [graph.op('Sub', [end, count]), end, graph.int(1)]);
    const rows = graph.op('Unsqueeze', [own, graph.ints([1])]);
    const isWord = graph.op('Unsqueeze', [graph.cast(attentionMask, 'BOOL'), graph.ints([1, 2])]);
    const isBefore = graph.op('And', [graph.op('LessOrEqual', [columns, rows]), isWord]);
    const masks = new Map<number | undefined, ValueName>();
    for (const window of new Set(windows)) {
      const isNear = (size: number) => graph.op('Greater', [columns, graph.op('Sub', [rows, graph.int(size)])]);
      const sees = window === undefined ? isBefore : graph.op('And', [isBefore, isNear(window)]);
      masks.set(window, graph.op('Where', [sees, graph.float(0), graph.float(-10000)]));
    }
    let fused: Seen['fused'];
    if (this.#profile === 'fused') {
      // Each token has a row of its own in the table of sines and cosines. All rows of a batch have the length of the cache.
      const shapeOfIds = graph.op('Shape', [ids]);
      const all = graph.op('ReduceProd', [shapeOfIds], { keepdims: 0 });
      const numbers = graph.op('Range', [graph.int(0), all, graph.int(1)]);
      const last = graph.cast(graph.op('Sub', [end, graph.int(1)]), 'I32');
      fused = {
        places: graph.op('Reshape', [numbers, shapeOfIds]),
        lengths: graph.op('Expand', [last, graph.op('Shape', [ids], { start: 0, end: 1 })]),
        total: graph.cast(end, 'I32'),
      };
    }
    // Sines and cosines. Layers with a window may have frequencies of their own.
    const theta = this.#rope.theta ?? 10000;
    const local = isGemma ? this.#rope.localTheta : undefined;
    const shape = { theta, rotated: this.#rotated, kinds: scaling };
    const all = rotaries.includes(true) ? this.#turns(frequenciesOf(this.#rope, config, shape), positions) : undefined;
    const near =
      local === undefined
        ? all
        : this.#turns(frequenciesOf({ ...this.#rope, type: undefined }, config, { ...shape, theta: local }), positions);
    // The layers.
    const table = graph.weight('model.embed_tokens.weight', [vocabulary, this.#hidden]);
    const factor = this.#factor('embedding_multiplier') ?? (isGemma ? Math.sqrt(this.#hidden) : 1);
    let x = this.#times(graph.op('Gather', [table, ids]), factor);
    const second = norms === 'around' ? 'pre_feedforward_layernorm' : 'post_attention_layernorm';
    for (let i = 0; i < this.#layers; i++) {
      const window = windows[i];
      graph.scope = `/model/layers.${i}/self_attn`;
      const turns = rotaries[i] ? (window === undefined ? all : near) : undefined;
      const mask = masks.get(window) as ValueName;
      x = this.#around(x, i, ['input_layernorm', 'post_attention_layernorm'], (states) =>
        this.#attention(states, i, turns, { mask, total, fused }),
      );
      graph.scope = `/model/layers.${i}/mlp`;
      x = this.#around(x, i, [second, 'post_feedforward_layernorm'], (states) => this.#grow(states, i));
    }
    graph.scope = '/model';
    if (sentence !== undefined) {
      const states = this.#norm(x, 'model.norm');
      graph.output('last_hidden_state', 'F32', [...batch, this.#hidden], states);
      if (sentence === null) return graph;
      graph.scope = '/head';
      const { vector, length } = sentenceVector(this, states, attentionMask, this.#hidden, sentence);
      graph.output('sentence_embedding', 'F32', ['batch_size', length], vector);
      return graph;
    }
    if (this.#profile === 'fused') {
      // The last rows; all of them for 0.
      const kept = graph.input('num_logits_to_keep', 'I64', []);
      const begin = graph.op('Unsqueeze', [graph.op('Neg', [kept]), graph.ints([0])]);
      x = graph.op('Slice', [x, begin, graph.ints([2n ** 63n - 1n]), graph.ints([1])]);
    }
    const states = this.#norm(x, 'model.norm');
    graph.scope = '/lm_head';
    const isTied = config.maybeFlag('tie_word_embeddings') === true || !this.has('lm_head.weight');
    const logits = this.linear(states, isTied ? 'model.embed_tokens' : 'lm_head', [this.#hidden, vocabulary]);
    const divided = this.#times(logits, 1 / (this.#factor('logits_scaling') ?? 1));
    const cap = isGemma ? config.maybePositive('final_logit_softcapping') : undefined;
    const rowsOfLogits = this.#profile === 'fused' ? 'logits_length' : 'sequence_length';
    graph.output('logits', 'F32', ['batch_size', rowsOfLogits, vocabulary], this.#capped(divided, cap));
    return graph;
  }
}

/**
 * Writes the graph of a decoder.
 * @param shapes of the tensors that the folder has
 * @param sentence modules that take the place of the head; null for states alone
 * @throws ScalepointError `UNKNOWN_FORMAT` for settings that the graph does not compute, `BAD_FILE`
 */
export function decoderGraph(
  config: Config,
  facts: DecoderGraph,
  shapes: Shapes,
  profile: OnnxProfile,
  sentence?: SentenceModules | null,
): GraphWriter {
  return new DecoderWriter(config, facts, shapes, profile).write(sentence);
}

/** Keys of config.json from which transformers.js takes the sizes of caches. */
export function cacheKeys(config: Config): Json {
  const heads = config.whole('num_attention_heads');
  return {
    num_hidden_layers: config.whole('num_hidden_layers'),
    num_attention_heads: heads,
    num_key_value_heads: config.whole('num_key_value_heads', heads),
    head_dim: config.maybeWhole('head_dim') ?? config.whole('hidden_size') / heads,
  };
}

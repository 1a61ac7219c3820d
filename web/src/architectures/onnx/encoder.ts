/**
 * Graphs of encoders for transformers.js, with the head that `architectures` names: vectors of tokens, masked words, classes of a text or of
 * tokens, and the ends of an answer.
 * Reference: github.com/huggingface/transformers, src/transformers/models/ (mpnet at 00099b9, modernbert 000c33f), and Nomic's modeling_hf_nomic_bert.py.
 */
import { show } from '../../core/show.js';
import { type Config, readRope } from '../huggingface/config.js';
import { badFolderFile, unsupported } from '../huggingface/errors.js';
import type { EncoderGraph, HeadStep } from './families.js';
import type { GraphWriter, ValueName } from './graph.js';
import { checkSettings, functionNamed, Parts, type Shapes, type Turns } from './parts.js';
import { type SentenceModules, sentenceVector } from './sentence.js';

const file = 'config.json';

const usualSizes = {
  hidden: 'hidden_size',
  layers: 'num_hidden_layers',
  heads: 'num_attention_heads',
  feedForward: 'intermediate_size',
  activation: 'hidden_act',
  epsilon: 'layer_norm_eps',
};

/** Outputs of heads, by the ends of the names of classes: names, and the inner dimensions. */
const outputs: Readonly<Record<string, 'states' | 'tokens' | 'text' | 'ends'>> = {
  Model: 'states',
  ForMaskedLM: 'tokens',
  ForTokenClassification: 'tokens',
  ForSequenceClassification: 'text',
  ForQuestionAnswering: 'ends',
};

/** Number of distances, farthest of them, as MPNet has them. */
const [buckets, farthest] = [32, 128];

/** The bucket of a distance from a query to a key, rounded as in float32. */
function bucketOf(distance: number): number {
  const { fround } = Math;
  const half = buckets / 2;
  const exact = half / 2;
  const size = Math.abs(distance);
  const side = distance > 0 ? half : 0;
  if (size < exact) return side + size;
  const share = fround(fround(Math.log(fround(size / exact))) / fround(Math.log(farthest / exact)));
  return side + Math.min(half - 1, exact + Math.trunc(fround(share * (half - exact))));
}

class EncoderWriter extends Parts {
  readonly #config: Config;
  readonly #facts: EncoderGraph;
  readonly #prefix: string;
  readonly #hidden: number;
  readonly #heads: number;
  readonly #feedForward: number;
  readonly #epsilon: number;
  readonly #activation: (graph: GraphWriter, x: ValueName) => ValueName;

  constructor(config: Config, facts: EncoderGraph, shapes: Shapes) {
    super(shapes);
    this.#config = config;
    this.#facts = facts;
    const names = facts.sizes ?? usualSizes;
    checkSettings(config, facts.only);
    this.#prefix = this.has(`${facts.prefix}${facts.outside.words}.weight`) ? facts.prefix : '';
    this.#hidden = config.whole(names.hidden);
    this.#heads = config.whole(names.heads);
    if (this.#hidden % this.#heads !== 0)
      badFolderFile(file, `vectors of ${this.#hidden} elements cannot be divided into ${this.#heads} heads`);
    this.#feedForward = config.whole(names.feedForward);
    this.#epsilon = config.positive(names.epsilon, 1e-12);
    this.#activation = functionNamed(facts.activation ?? config.get(names.activation) ?? 'gelu', names.activation);
  }

  /** A product whose number of outputs is that of the tensor. */
  #free(x: ValueName, name: string, bias?: string): ValueName {
    const [outputs = 0, inputs = 0] = this.shapeOf(`${name}.weight`);
    return this.linear(x, name, [inputs, outputs], bias);
  }

  #embed(ids: ValueName, types: ValueName | undefined): ValueName {
    const { graph } = this;
    const { outside, countsWords } = this.#facts;
    const tableOf = (name: string) =>
      graph.weight(`${this.#prefix}${name}.weight`, this.shapeOf(`${this.#prefix}${name}.weight`));
    let x = graph.op('Gather', [tableOf(outside.words), ids]);
    if (outside.types !== undefined) {
      const table = tableOf(outside.types);
      const rows =
        types === undefined
          ? graph.op('Slice', [table, graph.ints([0]), graph.ints([1]), graph.ints([0])])
          : graph.op('Gather', [table, types]);
      x = graph.op('Add', [x, rows]);
    }
    if (outside.positions !== undefined) {
      const table = tableOf(outside.positions);
      let rows: ValueName;
      if (countsWords === true) {
        // Positions of words follow that of the padding.
        const padding = this.#config.whole('pad_token_id', 1, 0);
        const isWord = graph.cast(graph.op('Not', [graph.op('Equal', [ids, graph.int(padding)])]), 'I32');
        const counted = graph.op('Mul', [graph.op('CumSum', [isWord, graph.int(1)]), isWord]);
        rows = graph.op('Gather', [table, graph.op('Add', [graph.cast(counted, 'I64'), graph.int(padding)])]);
      } else {
        const count = graph.op('Unsqueeze', [this.sizeAt(ids, 1), graph.ints([0])]);
        rows = graph.op('Slice', [table, graph.ints([0]), count, graph.ints([0])]);
      }
      x = graph.op('Add', [x, rows]);
    }
    const length = this.shapeOf(`${this.#prefix}${outside.words}.weight`)[1] as number;
    const normed = this.layerNorm(x, this.#prefix + outside.norm, length, this.#epsilon);
    const { project } = outside;
    return project !== undefined && length !== this.#hidden ? this.#free(normed, this.#prefix + project) : normed;
  }

  /** Sines and cosines of positions from 0. */
  #turns(theta: number, positions: ValueName): Turns {
    const { graph } = this;
    const head = this.#hidden / this.#heads;
    const angles = graph.floats(Array.from({ length: head / 2 }, (_, i) => theta ** ((-2 * i) / head)));
    const turned = graph.op('Mul', [graph.op('Unsqueeze', [graph.cast(positions, 'F32'), graph.ints([1])]), angles]);
    return { cos: graph.op('Cos', [turned]), sin: graph.op('Sin', [turned]) };
  }

  #attention(x: ValueName, layer: string, turns: Turns | undefined, mask: ValueName): ValueName {
    const { graph } = this;
    const { attention, output } = this.#facts.layer;
    const [length, head] = [this.#hidden, this.#hidden / this.#heads];
    const [all] = attention;
    const parts =
      attention.length === 1
        ? graph.split(this.linear(x, layer + all, [length, 3 * length]), [length, length, length])
        : attention.map((name) => this.linear(x, layer + name, [length, length]));
    const [q, k, v] = parts.map((part) => this.heads(part, this.#heads, head)) as [ValueName, ValueName, ValueName];
    const [queries, keys] = [q, k].map((one) =>
      turns === undefined ? one : this.rotated(one, turns, [head, head / 2]),
    ) as [ValueName, ValueName];
    const turned = graph.op('Transpose', [keys], { perm: [0, 1, 3, 2] });
    const scores = graph.op('MatMul', [graph.op('Mul', [queries, graph.float(head ** -0.5)]), turned]);
    const shares = graph.op('Softmax', [graph.op('Add', [scores, mask])], { axis: -1 });
    const mixed = this.joined(graph.op('MatMul', [shares, v]), length);
    return this.linear(mixed, layer + output, [length, length]);
  }

  #grow(x: ValueName, layer: string): ValueName {
    const { graph } = this;
    const { up, down, gate } = this.#facts.layer;
    const [length, inner] = [this.#hidden, this.#feedForward];
    const names: readonly [number, number] = [length, gate === 'half' ? 2 * inner : inner];
    const raised = this.linear(x, layer + up, names);
    let grown: ValueName;
    if (gate === undefined) grown = this.#activation(graph, raised);
    else if (gate === 'half') {
      const [first, second] = graph.split(raised, [inner, inner]) as [ValueName, ValueName];
      grown = graph.op('Mul', [this.#activation(graph, first), second]);
    } else {
      const opened = this.#activation(graph, this.linear(x, layer + gate.linear, [length, inner]));
      grown = graph.op('Mul', [raised, opened]);
    }
    return this.linear(grown, layer + down, [inner, length]);
  }

  /** The layers. */
  #layers(embedded: ValueName, ids: ValueName, attentionMask: ValueName): ValueName {
    const { graph } = this;
    const config = this.#config;
    const { layer, isPreNorm, rotary, outside } = this.#facts;
    const isWord = graph.op('Unsqueeze', [graph.cast(attentionMask, 'BOOL'), graph.ints([1, 2])]);
    const masked = (sees: ValueName) => graph.op('Where', [sees, graph.float(0), graph.float(-10000)]);
    const columns = graph.op('Range', [graph.int(0), this.sizeAt(ids, 1), graph.int(1)]);
    const rows = graph.op('Unsqueeze', [columns, graph.ints([1])]);
    let all = masked(isWord);
    if (outside.distances !== undefined) {
      // Scores of all layers have a bias by head and by distance.
      const name = `${this.#prefix}${outside.distances}.weight`;
      const most = config.whole('max_position_embeddings');
      if (config.whole('relative_attention_num_buckets', buckets) !== buckets)
        unsupported(file, `relative_attention_num_buckets is not ${buckets}`);
      const bucketed = graph.ints(Array.from({ length: 2 * most - 1 }, (_, i) => bucketOf(i - most + 1)));
      const places = graph.op('Add', [graph.op('Sub', [columns, rows]), graph.int(most - 1)]);
      const biases = graph.op('Gather', [
        graph.weight(name, [buckets, this.#heads]),
        graph.op('Gather', [bucketed, places]),
      ]);
      const byHead = graph.op('Unsqueeze', [graph.op('Transpose', [biases], { perm: [2, 0, 1] }), graph.ints([0])]);
      all = graph.op('Add', [all, byHead]);
    }
    let [turns, localTurns, local] = [undefined, undefined, all] as [Turns | undefined, Turns | undefined, ValueName];
    let isGlobal = (_layer: number) => true;
    if (rotary === 'nomic') turns = this.#turns(config.positive('rotary_emb_base', 10000), columns);
    if (rotary === 'modernbert') {
      const reach = Math.floor(config.whole('local_attention', 128) / 2);
      const step = config.whole('global_attn_every_n_layers', 3);
      const kinds = config.get('layer_types');
      isGlobal = (i) => (Array.isArray(kinds) ? kinds[i] === 'full_attention' : i % step === 0);
      const rope = readRope(config);
      if (rope.type !== undefined)
        unsupported(file, `${rope.where}.rope_type is ${show(rope.type)}; it can be default here`);
      turns = this.#turns(rope.theta ?? config.positive('global_rope_theta', 160000), columns);
      localTurns = this.#turns(rope.localTheta ?? config.positive('local_rope_theta', 10000), columns);
      const far = graph.op('Abs', [graph.op('Sub', [columns, rows])]);
      local = masked(graph.op('And', [isWord, graph.op('LessOrEqual', [far, graph.int(reach)])]));
    }
    let x = embedded;
    const count = config.whole((this.#facts.sizes ?? usualSizes).layers);
    for (let i = 0; i < count; i++) {
      const name = `${this.#prefix}${layer.prefix}${i}.`;
      graph.scope = `/layers.${i}`;
      const norm = (states: ValueName, which: 0 | 1) =>
        this.layerNorm(states, name + layer.norms[which], this.#hidden, this.#epsilon);
      const attend = (states: ValueName) =>
        this.#attention(states, name, isGlobal(i) ? turns : localTurns, isGlobal(i) ? all : local);
      if (isPreNorm === true) {
        // The norm of the embedding stands in for that of the first layer.
        const first = i === 0 && !this.has(`${name}${layer.norms[0]}.weight`) ? x : norm(x, 0);
        x = graph.op('Add', [x, attend(first)]);
        x = graph.op('Add', [x, this.#grow(norm(x, 1), name)]);
      } else {
        x = norm(graph.op('Add', [x, attend(x)]), 0);
        x = norm(graph.op('Add', [x, this.#grow(x, name)]), 1);
      }
    }
    graph.scope = '';
    return outside.finalNorm === undefined
      ? x
      : this.layerNorm(x, this.#prefix + outside.finalNorm, this.#hidden, this.#epsilon);
  }

  #head(states: ValueName, steps: readonly HeadStep[], attentionMask: ValueName): ValueName {
    const { graph } = this;
    const words = `${this.#prefix}${this.#facts.outside.words}`;
    let x = states;
    for (const step of steps) {
      if ('linear' in step) x = this.#free(x, step.linear, step.bias);
      else if ('tied' in step) {
        const [vocabulary = 0, length = 0] = this.shapeOf(`${words}.weight`);
        x = this.linear(x, words, [length, vocabulary], step.bias);
      } else if ('norm' in step) {
        const name = ['weight', 'gamma'].map((one) => `${step.norm}.${one}`).find((one) => this.has(one));
        x = this.layerNorm(x, step.norm, this.shapeOf(name ?? `${step.norm}.weight`)[0] as number, this.#epsilon);
      } else if ('apply' in step) {
        x = step.apply === 'act' ? this.#activation(graph, x) : functionNamed(step.apply)(graph, x);
      } else if (step.take === 'first' || this.#config.get('classifier_pooling') !== 'mean') {
        x = graph.op('Gather', [x, graph.int(0)], { axis: 1 });
      } else x = this.mean(x, attentionMask);
    }
    return x;
  }

  write(architecture: string, sentence: SentenceModules | undefined): GraphWriter {
    const { graph } = this;
    const { heads, takesTypes } = this.#facts;
    const [, end = ''] = /(Model|For\w+)$/.exec(architecture) ?? [];
    const batch = ['batch_size', 'sequence_length'] as const;
    const ids = graph.input('input_ids', 'I64', batch);
    const attentionMask = graph.input('attention_mask', 'I64', batch);
    const types = takesTypes === true ? graph.input('token_type_ids', 'I64', batch) : undefined;
    graph.scope = '/embeddings';
    const states = this.#layers(this.#embed(ids, types), ids, attentionMask);
    graph.scope = '/head';
    const kind = sentence === undefined ? outputs[end] : 'states';
    if (kind === 'states') {
      graph.output('last_hidden_state', 'F32', [...batch, this.#hidden], states);
      if (sentence === undefined) return graph;
      const { vector, length } = sentenceVector(this, states, attentionMask, this.#hidden, sentence);
      graph.output('sentence_embedding', 'F32', ['batch_size', length], vector);
      return graph;
    }
    const steps = heads[end];
    if (kind === undefined || steps === undefined)
      return unsupported(
        file,
        `the head of ${architecture} is not known; heads are ${['Model', ...Object.keys(heads)].join(', ')}`,
      );
    const logits = this.#head(states, steps, attentionMask);
    if (kind === 'tokens') graph.output('logits', 'F32', [...batch, 'labels'], logits);
    else if (kind === 'text') graph.output('logits', 'F32', ['batch_size', 'labels'], logits);
    else {
      const [start, stop] = graph.split(logits, [1, 1]).map((one) => graph.op('Squeeze', [one, graph.ints([-1])])) as [
        ValueName,
        ValueName,
      ];
      graph.output('start_logits', 'F32', batch, start);
      graph.output('end_logits', 'F32', batch, stop);
    }
    return graph;
  }
}

/**
 * Writes the graph of an encoder with the head of its class.
 * @param sentence modules that take the place of the head
 * @throws ScalepointError `UNKNOWN_FORMAT` for settings that the graph does not compute, `BAD_FILE`
 */
export function encoderGraph(
  config: Config,
  facts: EncoderGraph,
  shapes: Shapes,
  architecture: string,
  sentence?: SentenceModules,
): GraphWriter {
  return new EncoderWriter(config, facts, shapes).write(architecture, sentence);
}

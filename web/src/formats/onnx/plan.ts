/** Plans ONNX results: decides about each weight, and changes the graph accordingly. Everything follows from the skeleton. */

import { noteOf } from '../../core/note.js';
import { mention } from '../../core/option-problem.js';
import type { FilePlan, PartsOf } from '../format.js';
import { ruleFor } from '../options.js';
import { elementCount } from '../tensors.js';
import { Builder, dataSuffix } from './builder.js';
import { Dynamic, prefersSign } from './dynamic.js';
import { typeNumber } from './file/proto.js';
import { halveWeight } from './half.js';
import { HalfGraph } from './half-graph.js';
import type { OnnxModel, Weight } from './model.js';
import { blockWeight, isLookup, typeRead } from './nbits.js';
import type { OnnxChoices, OnnxTarget } from './options.js';
import { type Channels, channelsOf, fewestElements, reasonToKeep } from './readers.js';
import { rewriteRaised } from './rewrite.js';
import { dequantizeWeight } from './weights.js';

/** How weights are converted to the targets that quantize activations as well. */
class Dynamics {
  readonly #builder: Builder;
  readonly #choices: OnnxChoices;
  readonly #made = new Map<boolean, Dynamic>();
  #isSignedQ8: boolean | undefined;

  constructor(builder: Builder, choices: OnnxChoices) {
    this.#builder = builder;
    this.#choices = choices;
  }

  for(to: 'q8' | 'int8' | 'uint8'): Dynamic {
    const signed = this.#isSigned(to) === true;
    const { perTensor = false, range } = this.#choices;
    const options = {
      signed,
      perChannel: !perTensor,
      range: range === 'min-max' ? undefined : range,
      asks: (weight: Weight) => this.#isSigned(this.#targetOf(weight)) === signed,
    };
    const made = this.#made.get(signed) ?? new Dynamic(this.#builder, options);
    this.#made.set(signed, made);
    return made;
  }

  notes(): string[] {
    return [...this.#made.values()].flatMap((made) => made.notes());
  }

  /** Whether the codes of a target have a sign; undefined for targets that do not quantize activations. */
  #isSigned(to: OnnxTarget | undefined): boolean | undefined {
    if (to !== 'q8') return to === 'int8' || (to === 'uint8' ? false : undefined);
    this.#isSignedQ8 ??= prefersSign(this.#builder);
    return this.#isSignedQ8;
  }

  /** What a weight is to become; undefined if it is kept. */
  #targetOf({ source }: Weight): OnnxTarget | undefined {
    const rule = ruleFor(this.#choices.rules ?? [], source.name);
    return rule?.keep ? undefined : ((rule?.to as OnnxTarget | undefined) ?? this.#choices.to);
  }
}

/** Whether what does not become codes computes with float16. */
function halvesGraph(to: OnnxTarget): boolean {
  return to === 'fp16' || to === 'q4f16' || to === 'q2f16';
}

/** The graph in float16, if that is what a model becomes. */
function halfGraphOf(builder: Builder, { to, rules = [] }: OnnxChoices): HalfGraph | undefined {
  const { model, graphs } = builder;
  if (!halvesGraph(to) || model.proto.trains) return undefined;
  if (!model.weights.some(({ source: { dtype, bytes } }) => dtype === 'F32' && bytes >= 4 * fewestElements))
    return undefined;
  const opset = builder.opsetOf(model.proto.graph);
  if (opset === undefined || opset < lowestHalf) {
    builder.notes.push(`opset ${opset}: nodes compute with float32; opset ${lowestHalf} has casts for float16`);
    return undefined;
  }
  // Whoever reads a weight that a rule excepts computes as if nothing else had changed, too.
  const excepted = model.weights.filter(({ source }) => {
    const rule = ruleFor(rules, source.name);
    return rule !== undefined && (rule.keep || (rule.to !== undefined && !halvesGraph(rule.to as OnnxTarget)));
  });
  return new HalfGraph(
    builder,
    new Set(excepted.flatMap((weight) => graphs.readers(weight).flatMap(({ node, path }) => [node, ...path]))),
  );
}

/** The first version of ai.onnx whose operators take float16 throughout. */
const lowestHalf = 7;

/** What is the same for all weights of a model. */
interface Context {
  readonly builder: Builder;
  readonly dynamics: Dynamics;
  readonly choices: OnnxChoices;
  readonly halves: HalfGraph | undefined;
}

/** Converts a weight to float16. */
function toHalf({ builder, halves }: Context, weight: Weight): string | undefined {
  if (halves === undefined || builder.graphs.scopeOf(weight.graph).function !== undefined) {
    return reasonToKeep(builder.model, weight) ?? halveWeight(builder, weight);
  }
  return weight.source.dtype === 'F32' ? halves.store(weight) : weight.source.dtype;
}

/** Converts a weight. Returns why not, if that is not possible. */
function convert(context: Context, weight: Weight, to: OnnxTarget): string | undefined {
  const { builder, dynamics, choices, halves } = context;
  if (to === 'fp16') return toHalf(context, weight);
  const reason = reasonToKeep(builder.model, weight, { takesHalf: takesHalf(to) });
  if (reason !== undefined) return halvesGraph(to) && halves !== undefined ? toHalf(context, weight) : reason;
  const channels = channelsOf(builder.graphs, weight);
  if (typeof channels === 'string')
    return halvesGraph(to) && (halves !== undefined || isComputed(channels)) ? toHalf(context, weight) : channels;
  if (to === 'q8' || to === 'int8' || to === 'uint8') return dynamics.for(to).convert(weight, channels);
  const { blockSize = 32, zeroPoints = false } = choices;
  const isStoredHalf = weight.source.dtype === 'F16';
  const isBlocks = to === 'bnb4' || to in blockBits;
  const types = new Set(channels.readers.map((reader) => typeRead(reader, weight.source.dtype)));
  const type = isBlocks ? blockType(types, channels, halves) : undefined;
  if (type === undefined && isBlocks) {
    if (halves !== undefined) return toHalf(context, weight);
    return types.size > 1 ? 'read as several types' : 'read as neither F32 nor F16';
  }
  const range = choices.range === 'min-max' ? undefined : choices.range;
  if (to === 'bnb4') {
    if (type === 'F16') return 'read as F16';
    return blockWeight(builder, weight, channels, { kind: 'floats', blockSize: choices.blockSize ?? 64 });
  }
  const bits = blockBits[to];
  if (bits !== undefined) {
    const readsHalf = type === 'F16';
    const isHalf = halvesGraph(to) && !readsHalf;
    const scale = isHalf || readsHalf ? 'F16' : 'F32';
    // Whoever reads float16 computes with it.
    const readers = readsHalf ? { has: () => true } : halves;
    const options = { kind: 'integers', bits, blockSize, zeroPoints, scale, halves: readers } as const;
    const failed = blockWeight(builder, weight, channels, range === undefined ? options : { ...options, range: 'mse' });
    return failed !== undefined && isHalf ? toHalf(context, weight) : failed;
  }
  if (to === 'int8-weights' || to === 'uint8-weights') {
    const signed = to === 'int8-weights';
    const casts = choices.dequantize === 'cast';
    return dequantizeWeight(builder, weight, channels, { bits: 8, signed, symmetric: signed, range, casts });
  }
  if (channels.readers.some(({ node }) => recurrent.includes(node.opType))) {
    return dequantizeWeight(builder, weight, channels, { bits: 8, signed: true, symmetric: true, range });
  }
  // DequantizeLinear would restore the whole table at every run, and no Gather takes int4.
  if (channels.readers.every(isLookup) && (range === undefined || range === 'mse')) {
    const scale = isStoredHalf ? 'F16' : 'F32';
    const halves = { has: () => isStoredHalf };
    const options = { kind: 'integers', bits: 4, blockSize, zeroPoints, scale, range, halves } as const;
    if (blockWeight(builder, weight, channels, options) === undefined) return undefined;
  }
  const signed = zeroPoints === false;
  return dequantizeWeight(builder, weight, channels, { bits: 4, signed, symmetric: signed, blockSize, range });
}

/**
 * The type of floats that all readers take a weight for, F32 or F16. Undefined if there are several or it is another one, or if there are
 * Casts that a graph in float16 changes.
 */
function blockType(types: ReadonlySet<number>, { readers }: Channels, halves: HalfGraph | undefined) {
  const isCast = readers.some(({ path }) => path.some(({ opType }) => opType === 'Cast'));
  if (types.size > 1 || (isCast && halves !== undefined)) return undefined;
  return (['F32', 'F16'] as const).find((name) => types.has(typeNumber(name)));
}

/** Whether a type of codes can stand for float16 as well. Those of integers are scaled in float32, and so is MatMulBnb4 on the CPU. */
function takesHalf(to: OnnxTarget): boolean {
  return to in blockBits || to.endsWith('-weights');
}

/** Layers in which errors add up from step to step: int4-weights gives their weights 8 bits. */
const recurrent: readonly string[] = ['LSTM', 'GRU', 'RNN'];

/** Whether a weight is read by nodes that compute with floats, such as Add. */
function isComputed(reason: string): boolean {
  return reason.startsWith('read by');
}

/** Bits of the codes of MatMulNBits. */
const blockBits: { readonly [To in OnnxTarget]?: 2 | 4 | 8 } = {
  q2: 2,
  q2f16: 2,
  q4: 4,
  q4f16: 4,
  'q8-blocks': 8,
};

/** A message of protobuf has fewer bytes. */
const mostBytes = 2 ** 31 - 1;

/**
 * Plans what becomes of a model. Its weights go into a file beside it if that is asked for, or if it would be too large.
 * @param output the name of the result, by which it names that file
 */
export function planOnnx(model: OnnxModel, choices: OnnxChoices, partsOf: PartsOf, output = 'model.onnx'): FilePlan {
  const dataFile = output + dataSuffix;
  const plan = planInto(model, choices, partsOf, choices.externalData ? dataFile : undefined);
  const isTooLarge = plan.files.some(({ suffix, size }) => suffix === '' && size > mostBytes);
  return isTooLarge && !choices.externalData ? planInto(model, choices, partsOf, dataFile) : plan;
}

function planInto(model: OnnxModel, choices: OnnxChoices, partsOf: PartsOf, dataFile: string | undefined): FilePlan {
  const { to, rules = [] } = choices;
  const builder = new Builder(model, partsOf, dataFile);
  const dynamics = new Dynamics(builder, choices);
  const halves = halfGraphOf(builder, choices);
  const context = { builder, dynamics, choices, halves };
  for (const weight of model.weights) {
    // Together with another one, perhaps.
    if (builder.isConverted(weight)) continue;
    const rule = ruleFor(rules, weight.source.name);
    const reason = rule?.keep ? 'rule' : convert(context, weight, (rule?.to as OnnxTarget | undefined) ?? to);
    if (reason !== undefined) builder.keep(weight, reason);
  }
  rewriteRaised(builder, halves);
  const plan = builder.finish();
  const converted = plan.tensors.filter(({ kept }) => kept === undefined);
  const notes =
    converted.length === 0
      ? [whyNothing(builder, plan, to)]
      : costsOf(
          choices,
          converted.map(({ form }) => form.codec),
        );
  return {
    ...plan,
    notes: [...builder.notes, ...(halves?.notes() ?? []), ...dynamics.notes(), ...notes].map((text) => {
      const [before = '', after] = text.split("dequantize: 'cast'");
      return after === undefined
        ? noteOf('onnx', {}, text)
        : noteOf('onnx', {}, before, mention('dequantize', 'cast'), after);
    }),
  };
}

/** The note that tells why nothing is converted, and what would help. */
function whyNothing({ graphs }: Builder, { tensors }: FilePlan, to: OnnxTarget): string {
  const large = tensors.filter(
    ({ source: { shape } }) => shape.length > 1 && (elementCount(shape) ?? 0) >= fewestElements,
  );
  const types = new Set(large.map(({ source: { type } }) => type));
  const [narrow] = ['F16', 'BF16'].filter((type) => types.has(type));
  let why = 'the model has no weights of a size and kind that pay';
  const isHalf = narrow === 'F16';
  if (narrow !== undefined && !types.has('F32') && !(isHalf && takesHalf(to))) {
    if (to === 'fp16' && isHalf) why = 'the weights are F16';
    else {
      const others = isHalf ? 'q4 and int8-weights take them, and ' : '';
      why = `the weights are ${narrow}; ${others}the model they were made of, in F32, can be converted`;
    }
  } else if (to in blockBits || to === 'bnb4' || to === 'int4-weights') {
    const isKept = (reason: string) => large.some(({ kept }) => String(kept?.words ?? '').endsWith(reason));
    const other = ['Conv', 'ConvTranspose', 'LSTM', 'GRU', 'RNN'].find((opType) => {
      const isShape = isKept('-D') && graphs.nodes.some(({ node }) => node.opType === opType);
      return isKept(`read by ${opType}`) || (to === 'int4-weights' && isShape);
    });
    if (isKept(' in a function'))
      why = 'products in functions take no blocks; inline the functions, or choose q8 or int8-weights';
    else if (other !== undefined)
      why = `blocks are for products and tables; q8, int8-weights and fp16 take weights of ${other} as well`;
  }
  return why;
}

/** What a result costs when it runs, as measured with onnxruntime-web 1.30 in one thread (tests/bench/onnx.mjs). */
function costsOf({ to, dequantize }: OnnxChoices, codecs: readonly string[]): string[] {
  // The only blocks of int4-weights are tables.
  if (to !== 'int4-weights' && (codecs.includes('matmul-nbits') || codecs.includes('matmul-bnb4'))) {
    return [
      'in WebAssembly, products with blocks take 2 to 14 times as long as float32 for a single row, and 1.1 to 1.6 times for 64 rows; they ' +
        'need a quarter of the memory',
    ];
  }
  if (!codecs.includes('dequantize-linear')) return [];
  if (to === 'q8' || to === 'int8' || to === 'uint8') {
    return [
      'in WebAssembly, products take 0.5 to 0.7 and convolutions 0.6 times as long as float32, an LSTM 1.2 to 1.4 times',
    ];
  }
  if (!to.endsWith('-weights')) return [];
  if (dequantize === 'cast')
    return ['when it runs, the model has the speed of float32 and takes its memory; only the file is smaller'];
  return [
    'onnxruntime dequantizes the weights at every run: in WebAssembly products take 4 to 19 times as long as float32 for a single row, 1.2 to ' +
      `1.7 times for 64 rows, convolutions 1 to 1.2 times, and recurrent layers twice. ` +
      (to === 'int4-weights'
        ? "The session option extra: { session: { disable_quant_qdq: '1' } } does it once, and takes the memory of float32"
        : "dequantize: 'cast' does it once, and takes the memory of float32"),
  ];
}

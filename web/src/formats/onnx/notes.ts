/** Notes about ONNX results, as data and in words: one row each, in the order of the report. */

import { type Note, noteOf } from '../../core/note.js';
import { mention, orList } from '../../core/option-problem.js';
import { grouped, quotedNames } from '../files/bytes.js';
import type { FilePlan, PartsOf, SourceTensor } from '../format.js';
import { elementCount } from '../tensors.js';
import { cacheTypeIn } from './config.js';
import { type Decisions, decide } from './decide/decide.js';
import { lowestHalf } from './decide/half-nodes.js';
import { fewestElements } from './decide/sizes.js';
import { quantizeOpset, type StaticDecision } from './decide/static.js';
import type { OnnxModel } from './file/model.js';
import { onnxTypeNumber } from './file/proto.js';
import { isPast } from './graph/caches.js';
import { onnxLogicalTensors } from './graph/logical.js';
import type { OnnxChoices } from './options.js';
import { type BeyondNode, type NoInputsReason, type RestoredReason, reasonText } from './reasons.js';
import { dtypeOfName } from './signature.js';
import { type OnnxTarget, type OnWebGpu, type TargetInfo, targetNamed } from './targets.js';
import { writeResult } from './write/write.js';

/** A planned result, with the decisions behind it. */
interface Result {
  readonly model: OnnxModel;
  readonly choices: OnnxChoices;
  readonly target: TargetInfo;
  readonly decisions: Decisions;
  readonly plan: FilePlan;
  readonly partsOf: PartsOf;
  /** Codecs of the tensors that are not kept. */
  readonly codecs: ReadonlySet<string>;
}

/** A number of things, in words for one and for several. */
const countWords = (count: number, one: string, several: string) => (count === 1 ? `1 ${one}` : `${count} ${several}`);

/** The first items of a list, and a sign that there are more. */
const firstItems = (items: readonly string[], most: number, more = ', …') =>
  items.slice(0, most).join(', ') + (items.length > most ? more : '');

const megabytes = (bytes: number) =>
  bytes < 1e6 ? `${Math.round(bytes / 1e3)} kB` : `${Math.round(bytes / 1e5) / 10} MB`;

/** True for a product without a range of its input or its output. */
export const isWithoutRange = ({ input, output }: StaticDecision) => input === undefined || output === undefined;

/** True if there is the config.json that tells transformers.js 3 of caches; undefined if it does not know them, or the target. */
export const hasConfig = ({ proto }: OnnxModel, { to, config }: OnnxChoices): boolean | undefined =>
  proto.graph.inputs.some(isPast) && dtypeOfName(`_${to}.onnx`) !== undefined ? config !== undefined : undefined;

// --------------------------------------------------------------------------------------------------------------------------- size

/** Least share of the bytes that a target has to save. */
const leastSaved = 0.25;

/** Targets without ranges and other needs, which take most operators. */
const helpful: readonly OnnxTarget[] = ['q8-blocks', 'int8-weights', 'fp16'];

/** A target that leaves most of a model as it is, and the one that makes the file smallest. */
function littleNote({ model, choices, target, decisions: { decisions, graphs }, partsOf, plan }: Result): Note | false {
  const kept = decisions.filter((one) => one.kind === 'keep');
  const open = kept.reduce(
    (all, { weight, reason }) => all - (reason.kind === 'rule' ? weight.source.bytes : 0),
    model.bytes,
  );
  const savedBy = (files: FilePlan['files']) => (model.bytes - files.reduce((sum, { size }) => sum + size, 0)) / open;
  const saved = savedBy(plan.files);
  const stays = kept.filter(
    ({ weight, reason }) =>
      weight.source.bytes >= 4 * fewestElements && reason.kind !== 'rule' && reason.kind !== 'scales',
  );
  if (saved >= leastSaved || stays.length === 0 || target.kind === 'half') return false;
  const byOperator = grouped(stays, ({ weight }) => graphs.readers(weight)[0]?.node.opType ?? 'no node');
  const operators = [...byOperator]
    .map(([operator, some]) => ({ operator, bytes: some.reduce((sum, { weight }) => sum + weight.source.bytes, 0) }))
    .sort((a, b) => b.bytes - a.bytes);
  // Of targets that save nearly as much as the best, take the first.
  const rules = choices.rules?.filter(({ keep }) => keep);
  const others = helpful
    .filter((to) => to !== choices.to)
    .map((to) => ({
      to,
      saved: savedBy(writeResult(model, decide(model, { to, rules }, partsOf), partsOf, undefined).files),
    }));
  const most = Math.max(...others.map((one) => one.saved));
  const best = others.find((one) => one.saved > most - 0.05) as (typeof others)[number];
  const helps = best.saved > saved + 0.05 ? best : undefined;
  const percent = (share: number) => `${Math.round(100 * share)}%`;
  const list = operators.map(({ operator, bytes }) => `${megabytes(bytes)} of ${operator}`);
  const text = `this target saves ${percent(saved)} of the bytes; as they are: ${firstItems(list, 4)}`;
  const data = { saved, kept: operators, ...(helps && { helps }) };
  return helps === undefined
    ? noteOf('littleConverted', data, text)
    : noteOf('littleConverted', data, `${text}; `, mention('to', helps.to), ` saves ${percent(helps.saved)}`);
}

/** Operators whose weights only other targets take. */
const otherOperators: readonly string[] = ['Conv', 'ConvTranspose', 'LSTM', 'GRU', 'RNN'];

/** Reason why nothing is converted, with targets that would help. */
function nothingNote({ model, target, decisions: { decisions, graphs } }: Result): Note {
  const note = (why: string, data: object, text: string) => noteOf('nothingConverted', { why, ...data }, text);
  const andList = (names: readonly string[]) => orList(names).replace(/ or (?=[^ ]*$)/, ' and ');
  // Find the weights that are large enough.
  const isLarge = ({ shape }: SourceTensor) => shape.length > 1 && (elementCount(shape) ?? 0) >= fewestElements;
  const kept = decisions.flatMap((one) => (one.kind === 'keep' ? [one] : []));
  const scales = new Set(kept.filter(({ reason }) => reason.kind === 'scales').map(({ weight }) => weight.source));
  const types = new Set(model.tensors.filter((one) => isLarge(one) && !scales.has(one)).map(({ dtype }) => dtype));
  const reasons = kept.filter(({ weight }) => isLarge(weight.source)).map(({ reason }) => reason);
  // Name codes.
  const codes = onnxLogicalTensors(model).flatMap(({ form }) => ('bits' in form ? [Number(form.bits)] : []));
  if (!types.has('F32') && codes.length > 0) {
    const bits = [...new Set(codes)].sort((a, b) => a - b);
    const text = `the weights are codes of ${andList(bits.map(String))} bits already; convert the model that they were made of`;
    return note('quantized', { weights: codes.length, bits }, text);
  }
  // Name a type that the target does not take.
  const dtype = types.has('F32') ? undefined : ['F16', 'BF16'].find((type) => types.has(type));
  if (dtype !== undefined && !(target.takes as readonly string[]).includes(dtype)) {
    if (target.kind === 'half') return note('sameType', { dtype }, `the weights are ${dtype}`);
    const others = dtype === 'F16' ? ['q4', 'int8-weights'] : [];
    const words = others.length === 0 ? '' : `${andList(others)} take them, and `;
    const text = `the weights are ${dtype}; ${words}the model they were made of, in F32, can be converted`;
    return note('dtype', { dtype, others }, text);
  }
  // Name an operator that blocks do not support.
  const hasBlocks = target.blockSize !== undefined;
  if (hasBlocks && reasons.some(({ kind }) => kind === 'inFunction')) {
    const others = ['q8', 'int8-weights'];
    const text = `MatMul nodes inside functions cannot use block-quantized weights; inline the functions, or choose ${orList(others)}`;
    return note('inFunctions', { others }, text);
  }
  const hasRank = target.kind === 'restored' && reasons.some(({ kind }) => kind === 'rank');
  const operator = otherOperators.find(
    (one) =>
      reasons.some((reason) => (reason.kind === 'readBy' || reason.kind === 'alsoReadBy') && reason.operator === one) ||
      (hasRank && graphs.nodes.some(({ node }) => node.opType === one)),
  );
  if (hasBlocks && operator !== undefined) {
    const others = ['q8', 'int8-weights', 'fp16'];
    const text = `blocks are for matrix multiplication and tables; ${andList(others)} take weights of ${operator} as well`;
    return note('operator', { operator, others }, text);
  }
  return note('noWeights', {}, 'the model has no weights that are large enough and of a kind worth quantizing');
}

// -------------------------------------------------------------------------------------------------------------------------- words

/** Words for the reasons of weights without integers. */
const restoredWords: { readonly [Kind in RestoredReason['kind']]: (reason: never) => string } = {
  readBy: ({ operator }: { operator: string }) => operator,
  inFunction: ({ operator }: { operator: string }) => `${operator} in a function`,
  noOpset: () => 'graphs that import no ai.onnx opset',
  functionOpset: ({ opset }: { opset: number }) => `functions of opset ${opset}`,
  opset: ({ opset, operator }: { opset: number; operator: string }) =>
    `opset ${opset} (${operator} would mean something else in a newer one)`,
};

/** Words for the reasons of weights without statistics. */
const noInputsWords: { readonly [Kind in NoInputsReason['kind']]: (reason: never) => string } = {
  readBy: ({ operator }: { operator: string }) => `read by ${operator}`,
  rank: ({ rank }: { rank: number }) => `${rank} dimensions`,
  alongInputs: () => 'scales along the inputs',
  oneScale: () => 'one scale',
  tooLong: ({ inputs }: { inputs: number }) => `${inputs} inputs`,
};

/** Words about a result on WebGPU, behind those about other backends. */
const onWebGpuWords: Readonly<Record<OnWebGpu, string>> = {
  gpu: 'and on WebGPU',
  integersOnCpu: 'and on WebGPU, where products and convolutions run on the CPU; for the GPU take q8-blocks',
  activationsOnCpu: 'and on WebGPU, where activations become integers on the CPU',
  needsFloat16: 'and on WebGPU if the GPU has 16-bit floats (shader-f16), in which products also add up there',
};

/** Run-time costs of a result, measured with onnxruntime-web 1.30 in one thread (tests/bench/onnx.mjs). */
const costs = {
  blockCost:
    'in WebAssembly, MatMul nodes with blocks take 2 to 14 times as long as float32 for a single row, and 1.1 to 1.6 times for 64 rows; they ' +
    'need a quarter of the memory',
  integerCost:
    'in WebAssembly, matrix multiplications take 0.5 to 0.7 and convolutions 0.6 times as long as float32, an LSTM 1.2 to 1.4 times',
  staticCost:
    'static ranges are for NPUs and TensorRT: in onnxruntime-web, convolutions take 0.7 to 2.3 times as long as with q8, and products as long; ' +
    'inputs beyond the ranges of the samples saturate',
  castCost: 'when it runs, the model has the speed of float32 and takes its memory; only the file is smaller',
  dequantizeCost:
    'onnxruntime dequantizes the weights at every run: in WebAssembly matrix multiplications take 4 to 19 times as long as float32 for a single row, 1.2 to ' +
    '1.7 times for 64 rows, convolutions 1 to 1.2 times, and recurrent layers twice. ',
} as const;

/** Bytes of weights in the memory of WebAssembly, which ends at 4 GiB, that leave room for all else. */
const mostInWasm = 3.5 * 2 ** 30;

/** Bytes of the largest binding that each GPU has: maxStorageBufferBindingSize of WebGPU by default. */
const mostBinding = 2 ** 27;

// --------------------------------------------------------------------------------------------------------------------------- rows

/** Notes about a result; false or undefined where one does not apply. */
const rows: readonly ((result: Result) => Note | readonly Note[] | false | undefined)[] = [
  littleNote,

  ({ decisions: { notes } }) => notes,

  // Weights whose codes do not depend on the statistics.
  ({ decisions: { withoutInputs } }) => {
    if (withoutInputs.length === 0) return false;
    const list = [...grouped(withoutInputs, ({ reason }) => noInputsWords[reason.kind](reason as never))]
      .map(([text, some]) => `${quotedNames(some.map(({ name }) => name))} (${text})`)
      .join('; ');
    const data = {
      tensors: withoutInputs.map(({ name }) => name),
      reasons: withoutInputs.map(({ reason }) => reason),
    };
    return noteOf('noStatistics', data, `rounded to the nearest without statistics: ${list}`);
  },

  // The version of ai.onnx lacks casts to float16.
  ({ decisions: { isTooOldForHalf, graphs } }) => {
    if (!isTooOldForHalf) return false;
    const opset = graphs.main.opsets.get('');
    const cause =
      opset === undefined ? 'the model imports no ai.onnx opset' : `the model imports opset ${opset} of ai.onnx`;
    const text = `${cause}, so nodes stay float32; float16 casts need opset ${lowestHalf}`;
    return noteOf('opsetWithoutHalf', { opset, needed: lowestHalf }, text);
  },

  // Nodes of a float16 graph that compute in float32.
  ({ decisions: { halves } }) => {
    if (halves === undefined || halves.floats.size === 0) return false;
    const counts = [...halves.floats].sort(([, a], [, b]) => b - a);
    const nodes = counts.reduce((sum, [, n]) => sum + n, 0);
    const list = counts.map(([operator, n]) => `${n} ${operator}`);
    const text = `${countWords(nodes, 'node computes', 'nodes compute')} with float32 between casts: ${firstItems(list, 6, ', and others')}`;
    return noteOf('floatNodes', { nodes, operators: Object.fromEntries(halves.floats) }, text);
  },

  // Those that do because of their values. Squares up to their roots are float32 in most models.
  ({ decisions: { halves } }) => {
    if (halves === undefined || halves.beyond.every(({ why }) => why === 'squares')) return false;
    const { reached } = halves;
    const nodes = halves.beyond.map(({ node, why }): BeyondNode => {
      return { node: node.name || node.outputs[0] || '', operator: node.opType, why };
    });
    const cause =
      reached === undefined
        ? 'float16 does not hold the values or constants of'
        : `activations reach ${Math.round(reached).toLocaleString('en')}, beyond float16:`;
    const list = nodes.map(({ node, operator }) => `${node} (${operator})`);
    const count = countWords(nodes.length, 'node, which computes', 'nodes, which compute');
    const text = `${cause} ${count} with float32: ${firstItems(list, 6)}`;
    return noteOf('beyondHalf', { nodes, ...(reached !== undefined && { reached }) }, text);
  },

  // Caches of a language model that are float16. transformers.js 3 knows some targets.
  ({ model, choices, decisions: { halves } }) => {
    if (choices.kvCache !== 'float16') return false;
    const caches = halves?.caches.size ?? 0;
    if (caches === 0)
      return noteOf('halfCaches', { caches }, 'the model has no caches of float32 that could be float16');
    const found = hasConfig(model, choices);
    const where = `config.json${found ? '' : ', which was not found'}`;
    const entry = `"transformers.js_config": {"kv_cache_dtype": {"${choices.to}": "float16"}}`;
    const config = found === undefined ? '' : `; transformers.js 3 reads that from ${where}: ${entry}`;
    return noteOf('halfCaches', { caches, hasConfig: found }, `${caches} caches are float16${config}`);
  },

  // Caches that stay float32, though config.json says otherwise.
  ({ model: { proto }, choices: { to, config = {}, kvCache } }) => {
    const isFloat = proto.graph.inputs.some((input) => isPast(input) && input.type === onnxTypeNumber('F32'));
    if (kvCache === 'float16' || cacheTypeIn(config, to) !== 'float16' || !isFloat) return false;
    const text = `the caches stay float32, and config.json says float16 of ${to} to transformers.js 3; `;
    return noteOf('floatCaches', { to }, text, mention('kvCache', 'float16'), ' makes them so');
  },

  // Weights of a target for integers that are restored to floats at every run.
  ({ decisions: { decisions } }) => {
    const reasons = decisions.flatMap((one) => (one.kind === 'restored' && one.reason ? [one.reason] : []));
    if (reasons.length === 0) return false;
    const byText = [...grouped(reasons, (reason) => restoredWords[reason.kind](reason as never))];
    const list = byText.sort(([, a], [, b]) => b.length - a.length).map(([text]) => text);
    const weights = countWords(reasons.length, 'weight becomes', 'weights become');
    const text = `${weights} floats again at every run, as there are no integers for ${list.join(', ')}`;
    return noteOf('restoredAtEveryRun', { weights: reasons.length, reasons }, text);
  },

  // Signed weights that are multiplied as integers, with 7 bits or with 8.
  ({ choices: { reduceRange }, decisions: { decisions } }) => {
    const weights = decisions.reduce((count, one) => {
      if (one.kind === 'integers') return count + (one.form.signed ? 1 : 0);
      return one.kind === 'together' && one.operator === 'LSTM' ? count + one.weights.size : count;
    }, 0);
    if (weights === 0) return false;
    const where =
      'on x86 processors without VNNI, onnxruntime saturates sums of products with signed weights of 8 bits';
    if (reduceRange === false) {
      const text = `${where}, which ${countWords(weights, 'weight has', 'weights have')}: outputs err there`;
      return noteOf('saturates', { weights, bits: 8 }, text);
    }
    const text = `${countWords(weights, 'signed weight has', 'signed weights have')} 7 bits, because ${where}; `;
    const effect = ` gives ${weights === 1 ? 'it' : 'them'} 8`;
    return noteOf('reducedRange', { weights, bits: 7 }, text, mention('reduceRange', false), effect);
  },

  // Products that stay floats, because the samples gave no ranges of their activations.
  ({ decisions: { statics } }) => {
    const weights = statics.filter(isWithoutRange).map(({ product }) => product.weight.source.name);
    const products = countWords(weights.length, 'product has', 'products have');
    const text = `${products} no ranges of activations, which stay floats: ${firstItems(weights, 3)}`;
    return weights.length > 0 && noteOf('noRanges', { weights }, text);
  },

  // Weights that have 8 bits where the target has 4, by the operators that read them.
  ({ target, decisions: { decisions, graphs } }) => {
    if (target.kind !== 'restored' || target.bits === 8) return false;
    const wide = decisions.flatMap((one) => (one.kind === 'restored' && one.form.bits === 8 ? [one] : []));
    if (wide.length === 0) return false;
    const operators = grouped(wide, ({ weight }) => graphs.readers(weight)[0]?.node.opType ?? '');
    const counts = [...operators].map(([operator, some]): [string, number] => [operator, some.length]);
    const list = counts.toSorted(([, a], [, b]) => b - a).map(([operator, n]) => `${n} of ${operator}`);
    const has = countWords(wide.length, 'weight has', 'weights have');
    const text = `${has} 8 bits, as 4 lose too much or do not fit: ${list.join(', ')}`;
    return noteOf('eightBits', { weights: wide.length, operators: Object.fromEntries(counts) }, text);
  },

  // Products whose zero points are floats, which MatMulNBits takes in WebAssembly and natively alone (tests/bench/webgpu.mjs).
  ({ decisions: { decisions } }) =>
    decisions.some((one) => one.kind === 'blocks' && 'floatZeroPoint' in one.form) &&
    noteOf(
      'floatZeroPoints',
      {},
      'on WebGPU, products with zero points in float stay on the CPU, with copies before and behind; those with zeroPoints: true do not',
    ),

  (result) => result.codecs.size === 0 && nothingNote(result),

  // Run-time costs.
  ({ target, choices, codecs, decisions: { opsets, graphs, statics } }) => {
    const hasBlocks = codecs.has('matmul-nbits') || codecs.has('matmul-bnb4');
    // The only blocks of int4-weights are tables.
    const isForProducts = target.kind !== 'restored' || target.blockSize === undefined;
    if (hasBlocks && isForProducts) return noteOf('blockCost', {}, costs.blockCost);
    if (!codecs.has('dequantize-linear')) return false;
    if (target.kind === 'integers') return noteOf('integerCost', {}, costs.integerCost);
    if (target.kind === 'static') {
      const obstacle = opsets.obstacle(graphs.main.root, quantizeOpset);
      if (obstacle !== undefined) {
        const text = `activations stay floats, and only weights are codes: ${reasonText(obstacle) ?? ''}`;
        return noteOf('floatActivations', { obstacle }, text);
      }
      if (!statics.every(isWithoutRange)) return noteOf('staticCost', {}, costs.staticCost);
    } else if (target.kind !== 'restored') return false;
    else if (choices.dequantize === 'cast') return noteOf('castCost', {}, costs.castCost);
    // An option of some targets restores them once instead.
    const way =
      target.kind === 'restored' && target.blockSize === undefined
        ? mention('dequantize', 'cast')
        : "The session option extra: { session: { disable_quant_qdq: '1' } }";
    const effect = ' does it once, and takes the memory of float32';
    return noteOf('dequantizeCost', {}, costs.dequantizeCost, way, effect);
  },

  // Backends of onnxruntime on which the result runs, and gives what it gives in WebAssembly.
  ({ target, codecs, plan, decisions: { decisions } }) => {
    if (codecs.size === 0) return false;
    // Add up the bytes of the loaded weights: Casts are folded.
    const folded = new Set(
      decisions.flatMap((one) =>
        (one.kind === 'restored' && one.by.kind === 'cast') || (one.kind === 'half' && one.isCast && !one.inHalfGraph)
          ? [one.weight.source.name]
          : [],
      ),
    );
    const loaded = plan.tensors.reduce((all, { source, kept, parts }) => {
      if (folded.has(source.name)) return all + 4 * (elementCount(source.shape) ?? 0);
      const stored = kept === undefined ? parts : source.parts.map(({ tensor }) => tensor);
      return stored.reduce((sum, { bytes }) => sum + bytes, all);
    }, 0);
    // WebGPU of onnxruntime-web 1.30 refuses a QMoE with shares.
    const hasExperts = decisions.some(({ kind }) => kind === 'experts');
    const webgpu = hasExperts ? 'refused' : target.onWebGpu;
    if (loaded > mostInWasm) {
      const text = `runs natively; its weights take ${megabytes(loaded)}, and all of the memory of WebAssembly is 4 GiB`;
      return noteOf('runsOn', { wasm: 'tooLarge', node: 'right', webgpu }, text);
    }
    const words = hasExperts
      ? ' and natively; WebGPU of onnxruntime-web 1.30 refuses the QMoE of experts'
      : `, natively, ${onWebGpuWords[target.onWebGpu]}`;
    return noteOf('runsOn', { wasm: 'right', node: 'right', webgpu }, `runs in WebAssembly${words}`);
  },

  // Tensors that most GPUs cannot bind. Codes that a Cast widens are float32 there.
  ({ plan, decisions: { decisions } }) => {
    const widened = new Set(
      decisions.flatMap((one) =>
        (one.kind === 'restored' && one.by.kind !== 'gather') || (one.kind === 'half' && one.isCast)
          ? [one.weight.source.name]
          : [],
      ),
    );
    const tensors = plan.tensors
      .map(({ source, kept, parts }) => {
        const stored =
          kept === undefined ? Math.max(0, ...parts.map(({ bytes }) => bytes)) : (source.parts[0]?.tensor.bytes ?? 0);
        const floats = widened.has(source.name) ? 4 * (elementCount(source.shape) ?? 0) : 0;
        return { name: source.name, bytes: Math.max(stored, floats) };
      })
      .filter(({ bytes }) => bytes > mostBinding)
      .sort((a, b) => b.bytes - a.bytes);
    const [first, ...others] = tensors;
    if (first === undefined) return false;
    const more = others.length > 0 ? ` and ${others.length} more` : '';
    const text =
      `on WebGPU, ${first.name} (${megabytes(first.bytes)})${more} need larger bindings than the 128 MiB that each GPU has; ` +
      'many have 256 MiB or more';
    return noteOf('largeBindings', { tensors }, text);
  },
];

/** Notes for users about a result. */
export function onnxNotes(result: Omit<Result, 'target' | 'codecs'>): Note[] {
  const { choices, plan } = result;
  const target = targetNamed(choices.to);
  const codecs = new Set(plan.tensors.flatMap(({ kept, form }) => (kept === undefined ? [form.codec] : [])));
  return rows.flatMap((row) => row({ ...result, target, codecs }) || []);
}

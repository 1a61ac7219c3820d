/** Notes about ONNX results, as data and in words. */

import { grouped } from '../../core/groups.js';
import { type Note, noteOf } from '../../core/note.js';
import { mention } from '../../core/option-problem.js';
import { quotedNames } from '../files/bytes.js';
import {
  type BeyondNode,
  type NoInputsReason,
  type Obstacle,
  type RestoredReason,
  reasonText,
  type WithoutInputs,
} from './reasons.js';
import type { OnnxTarget, OnWebGpu } from './targets.js';

/** Number of nodes of each operator. */
export type Counts = ReadonlyMap<string, number>;

function most(counts: Counts): [operator: string, count: number][] {
  return [...counts].sort(([, a], [, b]) => b - a);
}

function sum(counts: Iterable<number>): number {
  return [...counts].reduce((all, n) => all + n, 0);
}

/** Nodes of a float16 graph that compute in float32. @param operators at least one */
export function floatNodesNote(operators: Counts): Note {
  const sorted = most(operators);
  const list = sorted.slice(0, 6).map(([operator, n]) => `${n} ${operator}`);
  const more = sorted.length > list.length ? ', and others' : '';
  const nodes = sum(operators.values());
  const compute = nodes === 1 ? '1 node computes' : `${nodes} nodes compute`;
  const data = { nodes, operators: Object.fromEntries(operators) };
  return noteOf('floatNodes', data, `${compute} with float32 between casts: ${list.join(', ')}${more}`);
}

/**
 * Nodes of a float16 graph that compute in float32 because of their values.
 * @param reached the largest measured magnitude beyond float16, if any
 */
export function beyondHalfNotes(nodes: readonly BeyondNode[], reached: number | undefined): Note[] {
  // Squares up to their roots are float32 in most models.
  if (nodes.every(({ why }) => why === 'squares')) return [];
  const list = nodes.slice(0, 6).map(({ node, operator }) => `${node} (${operator})`);
  const more = nodes.length > list.length ? ', …' : '';
  const count = nodes.length === 1 ? '1 node' : `${nodes.length} nodes`;
  const cause =
    reached === undefined
      ? 'float16 does not hold the values or constants of'
      : `activations reach ${Math.round(reached).toLocaleString('en')}, beyond float16:`;
  const text = `${cause} ${count}, which ${nodes.length === 1 ? 'computes' : 'compute'} with float32: ${list.join(', ')}${more}`;
  return [noteOf('beyondHalf', { nodes, ...(reached !== undefined && { reached }) }, text)];
}

/**
 * Caches of a language model that are float16.
 * @param caches number of inputs and outputs
 * @param hasConfig true if the config.json that tells transformers.js 3 about them is at hand; undefined if version 3 does not know the target
 */
export function cachesNote(caches: number, to: OnnxTarget, hasConfig?: boolean): Note {
  if (caches === 0) return noteOf('halfCaches', { caches }, 'the model has no caches of float32 that could be float16');
  const where = `config.json${hasConfig ? '' : ', which was not found'}`;
  const told = `; transformers.js 3 reads that from ${where}: "transformers.js_config": {"kv_cache_dtype": {"${to}": "float16"}}`;
  return noteOf(
    'halfCaches',
    { caches, hasConfig },
    `${caches} caches are float16${hasConfig === undefined ? '' : told}`,
  );
}

/** Caches that stay float32, though config.json says otherwise. */
export function floatCachesNote(to: OnnxTarget): Note {
  const text = `the caches stay float32, and config.json says float16 of ${to} to transformers.js 3; `;
  return noteOf('floatCaches', { to }, text, mention('kvCache', 'float16'), ' makes them so');
}

/** The version of ai.onnx lacks casts to float16. @param opset undefined if the model imports none */
export function noHalfNote(opset: number | undefined, needed: number): Note {
  const cause =
    opset === undefined ? 'the model imports no ai.onnx opset' : `the model imports opset ${opset} of ai.onnx`;
  const text = `${cause}, so nodes stay float32; float16 casts need opset ${needed}`;
  return noteOf('opsetWithoutHalf', { opset, needed }, text);
}

/** Words for a reason, in the list of weights without integers. */
function integersFor(reason: RestoredReason): string {
  switch (reason.kind) {
    case 'readBy':
      return reason.operator;
    case 'inFunction':
      return `${reason.operator} in a function`;
    case 'noOpset':
      return 'graphs that import no ai.onnx opset';
    case 'functionOpset':
      return `functions of opset ${reason.opset}`;
    case 'opset':
      return `opset ${reason.opset} (${reason.operator} would mean something else in a newer one)`;
  }
}

/** Weights of a target for integers that are restored to floats at every run. @param found at least one */
export function restoredNote(found: readonly RestoredReason[]): Note {
  const counts = new Map<string, number>();
  for (const reason of found) {
    const text = integersFor(reason);
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  const weights = found.length === 1 ? '1 weight becomes' : `${found.length} weights become`;
  const list = most(counts).map(([text]) => text);
  const text = `${weights} floats again at every run, as there are no integers for ${list.join(', ')}`;
  return noteOf('restoredAtEveryRun', { weights: found.length, reasons: found }, text);
}

/**
 * Signed weights that are multiplied as integers, with 7 bits or with 8.
 * @param weights their number, at least 1
 */
export function signedNote(weights: number, bits: 7 | 8): Note {
  const one = weights === 1;
  const data = { weights, bits };
  const where = 'on x86 processors without VNNI, onnxruntime saturates sums of products with signed weights of 8 bits';
  if (bits === 8) {
    const text = `${where}, which ${one ? '1 weight has' : `${weights} weights have`}: outputs err there`;
    return noteOf('saturates', data, text);
  }
  const text = `${one ? '1 signed weight has' : `${weights} signed weights have`} 7 bits, because ${where}; `;
  return noteOf('reducedRange', data, text, mention('reduceRange', false), ` gives ${one ? 'it' : 'them'} 8`);
}

/** Weights that have 8 bits where the target has 4. @param operators number of weights by the operator that reads them, at least one */
export function eightBitsNote(operators: Counts): Note {
  const weights = sum(operators.values());
  const list = most(operators).map(([operator, n]) => `${n} of ${operator}`);
  const text = `${weights === 1 ? '1 weight has' : `${weights} weights have`} 8 bits, as 4 lose too much or do not fit: ${list.join(', ')}`;
  return noteOf('eightBits', { weights, operators: Object.fromEntries(operators) }, text);
}

/** Words for a reason, in the list of weights without statistics. */
function withoutInputs(reason: NoInputsReason): string {
  switch (reason.kind) {
    case 'readBy':
      return `read by ${reason.operator}`;
    case 'rank':
      return `${reason.rank} dimensions`;
    case 'alongInputs':
      return 'scales along the inputs';
    case 'oneScale':
      return 'one scale';
    case 'tooLong':
      return `${reason.inputs} inputs`;
  }
}

/** Weights whose codes do not depend on the statistics. @param found at least one */
export function noInputsNote(found: readonly WithoutInputs[]): Note {
  const list = [...grouped(found, ({ reason }) => withoutInputs(reason))]
    .map(([text, some]) => `${quotedNames(some.map(({ name }) => name))} (${text})`)
    .join('; ');
  const data = { tensors: found.map(({ name }) => name), reasons: found.map(({ reason }) => reason) };
  return noteOf('noStatistics', data, `rounded to the nearest without statistics: ${list}`);
}

/** Reasons why nothing of a model is converted. */
export type WhyNothing =
  /** Its weights are too small, or read by other operators. */
  | { readonly why: 'noWeights' }
  /** Its weights are codes already. */
  | { readonly why: 'quantized'; readonly weights: number; readonly bits: readonly number[] }
  /** Its weights have this type already. */
  | { readonly why: 'sameType'; readonly dtype: string }
  /** Its weights have a type that the target does not take. */
  | { readonly why: 'dtype'; readonly dtype: string; readonly others: readonly OnnxTarget[] }
  /** Its products are in functions. */
  | { readonly why: 'inFunctions'; readonly others: readonly OnnxTarget[] }
  /** Its weights are those of another operator. */
  | { readonly why: 'operator'; readonly operator: string; readonly others: readonly OnnxTarget[] };

function listOf(names: readonly string[], word: string): string {
  const last = names.at(-1) ?? '';
  return names.length < 2 ? last : `${names.slice(0, -1).join(', ')} ${word} ${last}`;
}

function nothingText(reason: WhyNothing): string {
  switch (reason.why) {
    case 'noWeights':
      return 'the model has no weights that are large enough and of a kind worth quantizing';
    case 'quantized': {
      const bits = listOf(reason.bits.map(String), 'and');
      return `the weights are codes of ${bits} bits already; convert the model that they were made of`;
    }
    case 'sameType':
      return `the weights are ${reason.dtype}`;
    case 'dtype': {
      const others = reason.others.length === 0 ? '' : `${listOf(reason.others, 'and')} take them, and `;
      return `the weights are ${reason.dtype}; ${others}the model they were made of, in F32, can be converted`;
    }
    case 'inFunctions': {
      return `MatMul nodes inside functions cannot use block-quantized weights; inline the functions, or choose ${listOf(reason.others, 'or')}`;
    }
    case 'operator': {
      const others = listOf(reason.others, 'and');
      return `blocks are for matrix multiplication and tables; ${others} take weights of ${reason.operator} as well`;
    }
  }
}

/** Nothing of a model is converted. */
export function nothingNote(reason: WhyNothing): Note {
  return noteOf('nothingConverted', { ...reason }, nothingText(reason));
}

/** Weights of an operator that stay as they are. */
export interface KeptBy {
  readonly operator: string;
  readonly bytes: number;
}

const megabytes = (bytes: number) =>
  bytes < 1e6 ? `${Math.round(bytes / 1e3)} kB` : `${Math.round(bytes / 1e5) / 10} MB`;

/**
 * A target that leaves most of a model as it is.
 * @param saved share of the bytes that it saves
 * @param kept operators of the weights that stay, those with most bytes first
 * @param helps the target that makes the file smallest, and the share that it saves; undefined if all save as little
 */
export function littleNote(
  saved: number,
  kept: readonly KeptBy[],
  helps: { readonly to: OnnxTarget; readonly saved: number } | undefined,
): Note {
  const percent = (share: number) => `${Math.round(100 * share)}%`;
  const list = kept.slice(0, 4).map(({ operator, bytes }) => `${megabytes(bytes)} of ${operator}`);
  const stay = list.length === 0 ? '' : `; as they are: ${list.join(', ')}${kept.length > list.length ? ', …' : ''}`;
  const data = { saved, kept, ...(helps && { helps }) };
  if (helps === undefined)
    return noteOf('littleConverted', data, `this target saves ${percent(saved)} of the bytes${stay}`);
  const text = `this target saves ${percent(saved)} of the bytes${stay}; `;
  return noteOf('littleConverted', data, text, mention('to', helps.to), ` saves ${percent(helps.saved)}`);
}

/**
 * Tensors that most GPUs cannot bind.
 * @param tensors names, and bytes as the GPU has them, the largest first; at least one
 */
export function largeBindingsNote(tensors: readonly { readonly name: string; readonly bytes: number }[]): Note {
  const [first] = tensors;
  const more = tensors.length > 1 ? ` and ${tensors.length - 1} more` : '';
  const text =
    `on WebGPU, ${first?.name} (${megabytes(first?.bytes ?? 0)})${more} need larger bindings than the 128 MiB that each GPU has; ` +
    'many have 256 MiB or more';
  return noteOf('largeBindings', { tensors }, text);
}

/** Words about a result on WebGPU, behind those about other backends. */
const onWebGpuWords: Readonly<Record<OnWebGpu, string>> = {
  gpu: 'and on WebGPU',
  integersOnCpu:
    'and on WebGPU, where products and convolutions of integers stay on the CPU; those of q8-blocks do not',
  activationsOnCpu: 'and on WebGPU, where activations become integers on the CPU',
  needsFloat16: 'and on WebGPU if the GPU has 16-bit floats (shader-f16), in which products also add up there',
};

/**
 * Backends of onnxruntime on which a result runs, and gives what it gives in WebAssembly.
 * @param tooLarge bytes of its weights, if WebAssembly cannot hold them
 * @param hasExperts true for a QMoE with shares, which WebGPU of onnxruntime-web 1.30 refuses
 */
export function runsOnNote(onWebGpu: OnWebGpu, tooLarge: number | undefined, hasExperts: boolean): Note {
  const webgpu = hasExperts ? 'refused' : onWebGpu;
  if (tooLarge !== undefined) {
    const text = `runs natively; its weights take ${megabytes(tooLarge)}, and all of the memory of WebAssembly is 4 GiB`;
    return noteOf('runsOn', { wasm: 'tooLarge', node: 'right', webgpu }, text);
  }
  const words = hasExperts
    ? ' and natively; WebGPU of onnxruntime-web 1.30 refuses the QMoE of experts'
    : `, natively, ${onWebGpuWords[onWebGpu]}`;
  return noteOf('runsOn', { wasm: 'right', node: 'right', webgpu }, `runs in WebAssembly${words}`);
}

/** Products whose zero points are floats, which MatMulNBits takes in WebAssembly and natively alone (tests/bench/webgpu.mjs). */
export function floatZeroPointsNote(): Note {
  return noteOf(
    'floatZeroPoints',
    {},
    'on WebGPU, products with zero points in float stay on the CPU, with copies before and behind; those with zeroPoints: true do not',
  );
}

// Run-time costs of a result, measured with onnxruntime-web 1.30 in one thread (tests/bench/onnx.mjs).

/** Products with blocks. */
export function blockCostNote(): Note {
  return noteOf(
    'blockCost',
    {},
    'in WebAssembly, MatMul nodes with blocks take 2 to 14 times as long as float32 for a single row, and 1.1 to 1.6 times for 64 rows; they ' +
      'need a quarter of the memory',
  );
}

/** Products of integers. */
export function integerCostNote(): Note {
  return noteOf(
    'integerCost',
    {},
    'in WebAssembly, matrix multiplications take 0.5 to 0.7 and convolutions 0.6 times as long as float32, an LSTM 1.2 to 1.4 times',
  );
}

/** Products of integers between activations that are integers. */
export function staticCostNote(): Note {
  return noteOf(
    'staticCost',
    {},
    'static ranges are for NPUs and TensorRT: in onnxruntime-web, convolutions take 0.7 to 2.3 times as long as with q8, and products as long; ' +
      'inputs beyond the ranges of the samples saturate',
  );
}

/** Products that stay floats, because the samples gave no ranges of their activations. @param weights at least one name */
export function noRangesNote(weights: readonly string[]): Note {
  const list = weights.slice(0, 3).join(', ') + (weights.length > 3 ? ', …' : '');
  const products = weights.length === 1 ? '1 product has' : `${weights.length} products have`;
  return noteOf('noRanges', { weights }, `${products} no ranges of activations, which stay floats: ${list}`);
}

/** Activations that stay floats in a model of an old version. */
export function floatActivationsNote(obstacle: Obstacle): Note {
  const text = `activations stay floats, and only weights are codes: ${reasonText(obstacle) ?? ''}`;
  return noteOf('floatActivations', { obstacle }, text);
}

/** Codes that are restored to floats when the model is loaded. */
export function castCostNote(): Note {
  return noteOf(
    'castCost',
    {},
    'when it runs, the model has the speed of float32 and takes its memory; only the file is smaller',
  );
}

/** Codes that are restored to floats at every run. @param canCast true if an option restores them once instead */
export function dequantizeCostNote(canCast: boolean): Note {
  return noteOf(
    'dequantizeCost',
    {},
    'onnxruntime dequantizes the weights at every run: in WebAssembly matrix multiplications take 4 to 19 times as long as float32 for a single row, 1.2 to ' +
      '1.7 times for 64 rows, convolutions 1 to 1.2 times, and recurrent layers twice. ',
    canCast ? mention('dequantize', 'cast') : "The session option extra: { session: { disable_quant_qdq: '1' } }",
    ' does it once, and takes the memory of float32',
  );
}

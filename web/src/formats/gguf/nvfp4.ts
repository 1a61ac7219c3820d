/**
 * NVFP4: the weights that llama.cpp multiplies with a scale of the whole matrix, and the architectures whose graphs do so.
 * Reference: github.com/ggml-org/llama.cpp, src/llama-model.cpp (load_tensors) of the year 2026, which loads `.scale` tensors for every
 * architecture, and src/models, such as qwen3.cpp at 069be0a and gemma4.cpp at 06e514f, which pass them to the products. The list is that of
 * v0.5.0: there, logits stay the same to the last bit if the scales are doubled and all blocks halved. Measured and left out: smollm3, gemma2,
 * gemma3 and nomic-bert, whose graphs multiply attention by the scales and the feed-forward part without them.
 */

import { ScalepointError } from '../../core/errors.js';
import { mention } from '../../core/option-problem.js';
import { show } from '../../core/show.js';
import { elementsOf } from '../codecs/elements.js';
import type { Nvfp4BlocksForm } from '../codecs/nvfp4-blocks.js';
import type { LogicalTensor, SourceTensor } from '../format.js';
import { partName, plainTensor } from '../tensors.js';
import { type FileType, fileTypes } from './targets.js';

/** Architectures with graphs that multiply all weights by their scales; the others ignore some of them or all. */
export const scaledArchitectures: readonly string[] = [
  'llama',
  'mistral3',
  'qwen3',
  'qwen3moe',
  'qwen3next',
  'qwen35',
  'qwen35moe',
  'gemma4',
  'cohere2',
  'mamba',
  'mamba2',
];

/** Weights that have a scale. */
const scaled =
  /^blk\.\d+\.(attn_(q|k|v|output|qkv|gate)|ffn_(gate|up|down)(_shexp|_exps)?|ssm_(in|out|alpha|beta))\.weight$/;

/** True for a weight whose scale llama.cpp loads. */
export function hasScale(name: string): boolean {
  return scaled.test(name);
}

/** Fails for NVFP4 and an architecture whose graph ignores the scales. */
export function checkScaled(fileType: FileType, architecture: unknown): void {
  if (fileTypes[fileType].base !== 'NVFP4') return;
  if (typeof architecture === 'string' && scaledArchitectures.includes(architecture)) return;
  const message =
    `NVFP4 has a scale for each weight, which llama.cpp does not always apply in models of the architecture ${show(architecture)}; ` +
    `it does for ${scaledArchitectures.join(', ')}`;
  const effect = 'has no such scale, so that every architecture computes with it';
  throw new ScalepointError('UNSUPPORTED_DTYPE', message, {
    hint: { kind: 'try', option: mention('to', 'MXFP4'), effect },
  });
}

/** Suffix of the tensor with the scale, in place of that of the weight. */
export const scalePart = { suffix: '.scale', replaces: '.weight' } as const;

const form: Nvfp4BlocksForm = { codec: 'nvfp4-blocks' };

/** A weight in NVFP4, and the tensors that mean nothing without it. */
export interface ScaledWeight {
  /** The weight with its scale. Without a scale, in files of converters that write none, the blocks alone are the values. */
  readonly weight: LogicalTensor;
  /** The tensors of its scale and of the scale of its inputs. */
  readonly beside: readonly SourceTensor[];
}

/** The weights in NVFP4, by their stored tensors. Left out are those whose scale has another type or shape. */
export function scaledWeights(tensors: readonly SourceTensor[]): ReadonlyMap<SourceTensor, ScaledWeight> {
  const found = new Map<SourceTensor, ScaledWeight>();
  const coded = tensors.filter(({ dtype }) => dtype === 'NVFP4');
  if (coded.length === 0) return found;
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  for (const tensor of coded) {
    const { name, shape, dtype } = tensor;
    // Some other converters keep `.weight` in the name of the scale.
    const scaleNames = [partName(name, scalePart), `${name}.scale`];
    const scale = scaleNames.flatMap((one) => (one === name ? [] : (byName.get(one) ?? [])))[0];
    const matrices = elementsOf(shape.slice(0, -2));
    const fits = scale?.dtype === 'F32' && scale.shape.length === 1 && scale.shape[0] === matrices;
    if (scale !== undefined && !fits) continue;
    const input = byName.get(partName(name, { suffix: '.input_scale', replaces: '.weight' }));
    const parts: LogicalTensor['parts'] = [
      { role: 'data', tensor },
      ...(scale === undefined ? [] : [{ role: 'globalScale' as const, tensor: scale }]),
    ];
    const beside = [scale, input].flatMap((one) => (one === undefined || one === tensor ? [] : one));
    found.set(tensor, { weight: { name, shape, type: dtype, form, parts }, beside });
  }
  return found;
}

/** Tensors as a whole: weights in NVFP4 together with their scales. */
export function withScales(tensors: readonly SourceTensor[]): LogicalTensor[] {
  const weights = scaledWeights(tensors);
  const scales = new Set(
    [...weights.values()].flatMap(({ weight: { parts } }) => parts.slice(1).map((one) => one.tensor)),
  );
  return tensors.flatMap((tensor) => (scales.has(tensor) ? [] : (weights.get(tensor)?.weight ?? plainTensor(tensor))));
}

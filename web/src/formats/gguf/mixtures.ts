/** Results whose weights have different types, chosen by what each of them loses. */
import { blockTypes } from '../../core/blocks.js';
import type { Mixtures } from '../format.js';
import { categoryOf } from './mixture.js';
import { type FileType, fileTypes, ggufTargets, type TargetType } from './options.js';
import { storedSize } from './splits.js';

/**
 * Types for models that were trained with few values, and for experts: others lose too much in them to be worth the time. And those of points
 * on a grid, of which most are made with the importance of columns alone.
 */
const special = /^(MXFP4|TQ|Q[12]_0|IQ[123]_)/;

/** What weights may become. Of types of one size, the better one is chosen for each weight. */
const types: readonly TargetType[] = [...blockTypes.filter((type) => !special.test(type)), 'F16', 'BF16'];

/** The file type that stands for a type: the usual one of those that most tensors get it in. */
function fileTypeOf(type: string): FileType | undefined {
  const names = ggufTargets.filter((name) => fileTypes[name].base === type);
  return names.find((name) => name.endsWith('_M')) ?? names[0];
}

/**
 * All that a model computes comes from its embeddings and leaves by its output layer, so that their errors reach the logits as they are.
 * Errors of the others are one of many that are added up. The divergence of the logits is lower than with the mixtures of llama-quantize for
 * weights from 4 to 16; with 1 it is higher for some models whose embeddings are large.
 */
const endWeight = 8;

export const mixtures: Mixtures = {
  to: 'Q4_K_M',
  types: (to) => (to === 'copy' ? undefined : types),
  stored: storedSize,
  weight(name) {
    const category = categoryOf(name);
    return category === 'output' || category === 'embedding' ? endWeight : 1;
  },
  nearest(elements) {
    const [most] = [...elements].filter(([type]) => fileTypeOf(type) !== undefined).sort(([, a], [, b]) => b - a);
    return (most && fileTypeOf(most[0])) ?? this.to;
  },
};

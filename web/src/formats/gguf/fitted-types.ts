/** Types for results whose weights differ in type, chosen by the error of each weight. */
import { blockTypes } from '../../core/blocks.js';
import type { Mixtures } from '../format.js';
import { categoryOf } from './mixture.js';
import { storedSize } from './splits.js';
import { type FileType, fileTypes, ggufTargets, type TargetType } from './targets.js';

/** Types that mixtures may have. */
const fitted = new Set<TargetType>(Object.values(fileTypes).flatMap((row) => ('fitted' in row ? [row.base] : [])));

/** Types of weights. Among types of one size, the better one is chosen for each weight. */
const types: readonly TargetType[] = [...blockTypes, 'F16' as const, 'BF16' as const].filter((type) =>
  fitted.has(type),
);

/** File type that stands for a type: the usual one among those that give it to most tensors. */
function fileTypeOf(type: string): FileType | undefined {
  const names = ggufTargets.filter((name) => fileTypes[name].base === type);
  return names.find((name) => name.endsWith('_M')) ?? names[0];
}

/**
 * Weight of the errors of embeddings and the output layer, which reach the logits directly, while errors of other layers are averaged. With
 * weights from 4 to 16, the divergence of the logits is lower than with llama-quantize's mixtures; with 1 it is higher for some models with
 * large embeddings.
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

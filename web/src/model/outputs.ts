import { formats } from '../formats/registry.js';
import { languageArchitectures } from '../language/facts.js';
import type { ModelInfo } from './read.js';

/** Ways to compare the outputs of a model with those of another. */
export type OutputsKind =
  /** A language model on texts, as `evaluateModel` does. */
  | { readonly kind: 'texts' }
  /** Any model on arrays, as `compareModels` does with `run`. */
  | { readonly kind: 'arrays' }
  /** A language model of an architecture that cannot be computed. */
  | { readonly kind: 'unknown'; readonly architecture: string; readonly known: readonly string[] };

/**
 * How the outputs of a model can be compared; undefined if they cannot, and it does not seem to be a language model.
 * @param converted its architecture as a plan of a conversion states it
 */
export function outputsKind(
  { format, metadata }: Pick<ModelInfo, 'format' | 'metadata'>,
  converted: string | undefined,
): OutputsKind | undefined {
  const architecture = converted ?? metadata['general.architecture'];
  if (typeof architecture === 'string') {
    const experts = metadata[`${architecture}.expert_count`];
    const isDense = typeof experts !== 'number' || experts === 0;
    if (isDense && languageArchitectures.includes(architecture)) return { kind: 'texts' };
    return { kind: 'unknown', architecture, known: languageArchitectures };
  }
  const runs = formats().find(({ name }) => name === format)?.compareRuns !== undefined;
  return runs ? { kind: 'arrays' } : undefined;
}

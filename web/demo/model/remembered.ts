// Choices that the browser remembers from one visit to the next.
import type { ModelFile } from '../shared/files.js';
import { recall, remember } from '../shared/remember.js';
import { hashOf, type ModelChoice, usualFormat } from './choice.js';
import { totalBytes } from './sizes.js';

/** A model that a size was chosen for, and the size. */
const sizeKey = ({ name, files }: ModelFile) => `${name} ${totalBytes(files)} `;

/** The part of a choice that applies to any model. Rules, kept tensors and sizes belong to one model. */
function forAny({ size: _, statistics: __, ...choice }: ModelChoice): ModelChoice {
  return { ...choice, kept: new Set(), rules: [] };
}

/** Remembers a choice for the next visit: its size for the same model, the rest for any. */
export function rememberChoice(model: ModelFile, choice: ModelChoice): void {
  const format = usualFormat(model);
  const { size } = choice;
  if (size === undefined) remember('model', hashOf(format, forAny(choice)));
  remember('model-size', size === undefined ? '' : sizeKey(model) + hashOf(format, { ...forAny(choice), size }));
}

/** Settings for a model: those with a size that were chosen for it, or those of the model before, or of the last visit. */
export function rememberedFor(
  model: ModelFile,
  before?: { readonly model: ModelFile; readonly choice: ModelChoice },
): string {
  const [key, sized] = [sizeKey(model), recall('model-size')];
  if (sized.startsWith(key)) return sized.slice(key.length);
  return before === undefined ? recall('model') : hashOf(usualFormat(before.model), forAny(before.choice));
}

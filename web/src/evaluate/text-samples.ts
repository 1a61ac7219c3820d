/** Samples of texts, for models that a runtime runs. */

import type { Opened } from '../convert/open.js';
import { typeError } from '../core/errors.js';
import { ofType } from '../core/option-problem.js';
import type { ModelRuns, ModelSample, ModelSamples } from '../formats/run.js';
import { chunkedTokens, type TextOptions } from './text-options.js';
import type { LanguageData } from './tokens.js';

const isText = (one: unknown) => typeof one === 'string' || ArrayBuffer.isView(one) || Array.isArray(one);

/** True for texts and ids, which are not samples. */
export function isLanguageData(data: LanguageData | ModelSamples): data is LanguageData {
  if (typeof data === 'string' || ArrayBuffer.isView(data)) return true;
  return Array.isArray(data) && data.length > 0 && data.every((one) => isText(one) || typeof one === 'number');
}

/** Samples of texts: one for each chunk. */
export async function samplesOfTexts(
  opened: Opened,
  runs: ModelRuns,
  data: LanguageData,
  options: TextOptions,
): Promise<ModelSample[]> {
  if (runs.tokens === undefined) {
    throw typeError('data', ofType('iterable of samples', '{ files }'), data);
  }
  const limits = { vocabulary: runs.tokens, context: Number.POSITIVE_INFINITY };
  const { ids, size } = await chunkedTokens('data', data, [opened], limits, options);
  const samples: ModelSample[] = [];
  for (let at = 0; at < ids.length; at += size) samples.push(runs.sampleOf(ids.subarray(at, at + size)));
  return samples;
}

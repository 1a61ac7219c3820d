import { convertersFrom } from '../architectures/registry.js';
import { type Opened, withModel } from '../convert/open.js';
import type { ModelInput } from '../convert/recognize.js';
import { languageArchitectures } from './facts.js';

/** The ways to compare the outputs of a model with those of another. */
export interface OutputsKind {
  /** True if it can be judged on texts, as `evaluateModel` does. */
  readonly takesTexts: boolean;
  /** True if it can be run on arrays, as `compareModels` does with `run`. Both then need onnxruntime-web. */
  readonly takesArrays: boolean;
  /** The architecture of a language model. */
  readonly architecture?: string | undefined;
}

/** Architectures that can be judged on texts. */
export { languageArchitectures };

/** The architecture of a language model, in llama.cpp's spelling, and its number of experts; undefined for other models. */
async function architectureOf({ format, model, beside }: Opened): Promise<readonly [string, unknown] | undefined> {
  for (const converter of convertersFrom(format.name)) {
    const converted = await converter
      .convert(model, beside, { missingBytes: 'keep', requantize: true })
      .catch(() => undefined);
    if (converted === undefined) continue;
    const { architecture, contents } = converted;
    return [architecture, contents?.view.metadata[`${architecture}.expert_count`]];
  }
  const architecture = model.metadata['general.architecture'];
  return typeof architecture === 'string' ? [architecture, model.metadata[`${architecture}.expert_count`]] : undefined;
}

/** Finds the ways to compare the outputs of a model. Reads what plans read. @throws what `inspectModel` throws */
export function outputsKind(input: ModelInput): Promise<OutputsKind> {
  return withModel(input, {}, async (opened) => {
    const runs = await opened.format.runs?.(opened.model);
    if (runs !== undefined) return { takesTexts: runs.tokens !== undefined && runs.hasLogits, takesArrays: true };
    const [architecture, experts = 0] = (await architectureOf(opened)) ?? [];
    const isKnown = architecture !== undefined && languageArchitectures.includes(architecture);
    return { takesTexts: isKnown && experts === 0, takesArrays: false, architecture };
  });
}

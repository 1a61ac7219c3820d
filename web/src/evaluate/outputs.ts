import { convertersFrom } from '../architectures/registry.js';
import { hasTokenizerJson } from '../architectures/tokenizer-json.js';
import { languageArchitectures } from '../architectures/traits.js';
import { withModel } from '../convert/open.js';
import type { ModelInput } from '../convert/recognize.js';
import type { GgufModel } from '../formats/gguf/gguf.js';

/** The ways to compare the outputs of a model with those of another. */
export interface OutputsKind {
  /** True if it can be judged on texts, as `evaluateModel` does. */
  readonly takesTexts: boolean;
  /** True if it can be run on arrays, as `compareModels` does with `run`. Both then need onnxruntime-web. */
  readonly takesArrays: boolean;
  /** True if its file has a vocabulary that turns texts into tokens. */
  readonly hasVocabulary?: boolean;
  /** The architecture of a language model. */
  readonly architecture?: string | undefined;
}

/** Finds the ways to compare the outputs of a model. Reads what plans read. @throws what `inspectModel` throws */
export function outputsKind(input: ModelInput): Promise<OutputsKind> {
  return withModel(input, {}, async ({ format, model, beside }) => {
    const runs = await format.runs?.(model);
    if (runs !== undefined) return { takesTexts: runs.tokens !== undefined && runs.hasLogits, takesArrays: true };
    // Find the architecture of a language model, in llama.cpp's spelling, and its number of experts.
    let { metadata } = model;
    let architecture = metadata['general.architecture'];
    for (const converter of convertersFrom(format.name)) {
      if (converter.turnsBack === true) continue;
      const converting = converter.convert(model, beside, { missingBytes: 'keep', requantize: true });
      const converted = await converting.catch(() => undefined);
      if (converted === undefined) continue;
      architecture = converted.architecture;
      metadata = converted.contents?.view.metadata ?? {};
      break;
    }
    if (typeof architecture !== 'string') return { takesTexts: false, takesArrays: false, architecture: undefined };
    const experts = metadata[`${architecture}.expert_count`] ?? 0;
    const takesTexts = languageArchitectures.includes(architecture) && experts === 0;
    const hasVocabulary = format.name === 'gguf' && hasTokenizerJson((model as GgufModel).header);
    return { takesTexts, takesArrays: false, architecture, hasVocabulary };
  });
}

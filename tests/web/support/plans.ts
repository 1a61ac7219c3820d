// Plans of formats as tests look at them.
import { partsOf } from '../../../web/src/codecs/registry.js';
import type { FilePlan, PlannedPart, PlannedTensor, SourceTensor } from '../../../web/src/formats/format.js';
import type { GgufHeader } from '../../../web/src/formats/gguf/header.js';
import type { GgufTarget } from '../../../web/src/formats/gguf/options.js';
import { type GgufChoices, planGguf as planFile } from '../../../web/src/formats/gguf/plan.js';

/** A part, and where it begins in the file. */
export interface PlacedPart extends PlannedPart {
  readonly byteOffset: number;
}

/** A plan of one file, with everything where it is asked for. */
export interface FlatPlan {
  readonly header: Uint8Array<ArrayBuffer>;
  readonly size: number;
  readonly tensors: readonly (Omit<PlannedTensor, 'source' | 'parts'> & {
    readonly source: SourceTensor;
    readonly parts: readonly PlacedPart[];
  })[];
  readonly notes: readonly string[];
  readonly quantizationConfig: Readonly<Record<string, unknown>> | undefined;
}

/** The same plan, flat. Its tensors have to be stored as they are, one part each. */
export function flat({ files, tensors, notes, sidecars }: FilePlan): FlatPlan {
  const [file] = files;
  if (file === undefined || files.length !== 1) throw new Error(`expected one file, got ${files.length}`);
  const [first] = file.segments;
  if (first === undefined || !('bytes' in first) || first.at !== 0) throw new Error('expected the header first');
  const places = new Map(
    file.segments.map((segment) => {
      if ('copied' in segment) throw new Error('expected no bytes of the input');
      return ['bytes' in segment ? segment.bytes : `${segment.tensor} ${segment.role}`, segment.at];
    }),
  );
  return {
    header: first.bytes,
    size: file.size,
    tensors: tensors.map((tensor, i) => ({
      ...tensor,
      source: tensor.source.parts[0]!.tensor,
      parts: tensor.parts.map((part) => {
        const byteOffset = places.get(part.constant ?? `${i} ${part.role}`);
        if (byteOffset === undefined) throw new Error(`${part.name} has no place`);
        return { ...part, byteOffset };
      }),
    })),
    notes,
    quantizationConfig: sidecars.find(({ option }) => option === 'config')?.value,
  };
}

/** What decides about a GGUF result beside its target. */
export type GgufOptions = Omit<GgufChoices, 'to'>;

/** The plan of a GGUF result; its options are not checked. */
export function planGguf(header: GgufHeader, to: GgufTarget, options: GgufOptions = {}): FlatPlan {
  return flat(planFile(header, { ...options, to }, partsOf));
}

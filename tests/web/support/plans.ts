// Plans of formats as tests look at them.

import type { Note } from '../../../web/src/core/note.js';
import type { Part } from '../../../web/src/formats/codecs/codec.js';
import { partsOf } from '../../../web/src/formats/codecs/registry.js';
import { type FilePlan, madeBytes, type PlannedTensor, type SourceTensor } from '../../../web/src/formats/format.js';
import type { GgufHeader } from '../../../web/src/formats/gguf/header.js';
import type { GgufChoices } from '../../../web/src/formats/gguf/options.js';
import { planGguf as planFile } from '../../../web/src/formats/gguf/plan.js';
import type { GgufTarget } from '../../../web/src/formats/gguf/targets.js';
import { tensorBytes } from '../../../web/src/formats/safetensors/header.js';
import { layoutSafetensors, type NamedTensor } from '../../../web/src/formats/safetensors/write-header.js';

/** A file to be written, with its tensors as the reader finds them. */
export function laidOut(tensors: readonly NamedTensor[], metadata?: Readonly<Record<string, string>>) {
  const { header, order, offsets, size } = layoutSafetensors(tensors, metadata);
  const placed = [...order].map((index) => {
    const { name, dtype, shape } = tensors[index]!;
    return { name, dtype, shape, bytes: tensorBytes(dtype, shape)!, byteOffset: offsets[index]! };
  });
  return { header: madeBytes(header), tensors: placed, size };
}

/** A part, and where it begins in the file. */
interface PlacedPart extends Omit<Part, 'suffix'> {
  readonly name: string;
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
  readonly notes: readonly Note[];
  readonly quantizationConfig: Readonly<Record<string, unknown>> | undefined;
}

/** The same plan, flat. Its tensors have to be stored as they are, one part each. */
export function flat({ files, tensors, notes, sidecars }: FilePlan): FlatPlan {
  const [file] = files;
  if (file === undefined || files.length !== 1) throw new Error(`expected one file, got ${files.length}`);
  const [first] = file.segments;
  if (first === undefined || !('made' in first || 'bytes' in first) || first.at !== 0) {
    throw new Error('expected the header first');
  }
  const header = 'made' in first ? madeBytes(first.made) : first.bytes;
  const places = new Map(
    file.segments.flatMap((segment): [string, number][] => {
      if ('copied' in segment || 'md5' in segment) throw new Error('expected no bytes of the input');
      return 'bytes' in segment || 'made' in segment ? [] : [[`${segment.tensor} ${segment.role}`, segment.at]];
    }),
  );
  // Parts that are known have no segments of their own. Only safetensors has them, and its header says where they are.
  let entries: Record<string, { data_offsets: [number, number] }> | undefined;
  const knownPlace = (name: string): number => {
    entries ??= JSON.parse(new TextDecoder().decode(header.subarray(8))) as NonNullable<typeof entries>;
    return header.length + entries[name]!.data_offsets[0];
  };
  return {
    header,
    size: file.size,
    tensors: tensors.map((tensor, i) => ({
      ...tensor,
      source: tensor.source.parts[0]!.tensor,
      parts: tensor.parts.map(({ suffix, ...part }) => {
        const name = tensor.source.name + suffix;
        const byteOffset = part.constant === undefined ? places.get(`${i} ${part.role}`) : knownPlace(name);
        if (byteOffset === undefined) throw new Error(`${name} has no place`);
        return { ...part, name, byteOffset };
      }),
    })),
    notes,
    quantizationConfig: sidecars.find(({ option }) => option === 'config')?.value,
  };
}

/** Options that decide about a GGUF result beside its target. */
export type GgufOptions = Omit<GgufChoices, 'to'>;

/** The plan of a GGUF result; its options are not checked. */
export function planGguf(header: GgufHeader, to: GgufTarget, options: GgufOptions = {}): FlatPlan {
  return flat(planFile(header, { ...options, to }, partsOf));
}

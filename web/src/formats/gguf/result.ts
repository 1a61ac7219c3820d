/** Lays out GGUF results, after types have been chosen. */

import { type BlockSearch, type BlockType, searchedTypes } from '../../core/blocks.js';
import { rangeError } from '../../core/errors.js';
import { type Note, noteOf } from '../../core/note.js';
import { mention, without } from '../../core/option-problem.js';
import type { CastForm } from '../codecs/cast.js';
import type { Role } from '../codecs/codec.js';
import type { GgmlForm } from '../codecs/ggml.js';
import type { MicroscaledForm } from '../codecs/microscaled.js';
import type { Nvfp4BlocksForm } from '../codecs/nvfp4-blocks.js';
import type { Feedback, FilePlan, LogicalTensor, OutputFile, PartsOf, PlannedTensor, Segment } from '../format.js';
import type { Reason } from '../reason.js';
import { largeNote, shardLimit, shardSuffix, shardsOf } from '../shards.js';
import type { WeightMoments } from '../statistics.js';
import { convertedLogical, keptLogical } from '../tensors.js';
import { defaultAlignment, type GgufPair, type GgufTensor } from './contents.js';
import { type LayoutOptions, layoutGguf } from './layout.js';
import type { GgufChoices } from './options.js';
import { mostSplits, splitPairs, storedSize } from './splits.js';
import { isCastType, isSearched, type TargetType } from './targets.js';
import { ggmlBytes, ggmlType } from './types.js';

/** Type of a tensor in a result, and the reason if it is kept. */
export interface Choice {
  readonly type: string;
  readonly kept?: Reason;
  /** The type that the tensor would have, if rows were whole blocks of it; undefined if they are. */
  readonly unfit?: string | undefined;
}

/** A tensor of a result. */
export interface ResultTensor extends Choice {
  readonly name: string;
  readonly shape: readonly number[];
  /** Weight of the errors of each column. */
  readonly importance?: Float32Array<ArrayBuffer> | undefined;
  /** Set if the weight is rounded with GPTQ. */
  readonly feedback?: Feedback | undefined;
  /** Moments of the inputs, if they are known. */
  readonly moments?: WeightMoments | undefined;
  /** Set for a tensor that is a further part of another one's form: the role of the part. */
  readonly role?: Role;
  /** Source with its index in the plan, or computed bytes. */
  readonly from: { readonly source: LogicalTensor; readonly index: number } | Uint8Array<ArrayBuffer>;
}

/** The note about a stated alignment that the tensors do not have. */
function alignmentNote(stated: number): Note {
  return noteOf(
    'wrongAlignment',
    { stated, actual: defaultAlignment },
    `general.alignment says ${stated}, but llama-quantize pads to 32, and so does this file: llama.cpp will not find its tensors. `,
    mention('fixAlignment', true),
    ' states 32',
  );
}

/** The form of a type. */
function formTo(
  type: string,
  { importance, search }: { importance?: ResultTensor['importance']; search?: BlockSearch | undefined } = {},
): CastForm | GgmlForm | Nvfp4BlocksForm {
  const weighted = importance === undefined ? {} : { importance };
  if (isCastType(type)) return { codec: 'cast', to: type, ...weighted };
  // Importance takes part in the search alone.
  if (type === 'NVFP4')
    return {
      codec: 'nvfp4-blocks',
      ...(search === 'best' || importance !== undefined ? { search: true } : {}),
      ...weighted,
    };
  const to = type as BlockType;
  return { codec: 'ggml', to, ...weighted, ...(search === 'best' && searchedTypes.includes(to) ? { best: true } : {}) };
}

/** The form of weights that are in NVFP4 already, with a scale of the matrix. */
const takenCodes: Nvfp4BlocksForm = { codec: 'nvfp4-blocks', takesCodes: true };

/** True if each code of a source has a place in NVFP4 of GGUF. */
function canTakeCodes({ form, gathered }: LogicalTensor): boolean {
  const { codec, kind, tool } = form as MicroscaledForm;
  const isWhole = gathered === undefined || gathered.members !== undefined;
  return isWhole && codec === 'microscaled' && kind === 'nvfp4' && tool !== 'mlx';
}

/** Notes about tensors that a better search hardly changes, or not at all. */
function searchNotes(results: readonly ResultTensor[], search: BlockSearch | undefined): Note[] {
  if (search !== 'best') return [];
  const fedBack = results.flatMap(({ name, feedback }) => (feedback === undefined ? [] : [name]));
  const unchanged =
    fedBack.length === 0
      ? []
      : [
          noteOf(
            'searchWithoutEffect',
            { tensors: fedBack },
            mention('search', 'best'),
            ' changes only rows that keep their nearest codes in weights with ',
            mention('method', 'gptq'),
            ', which finds scales of its own',
          ),
        ];
  const made = results.filter(
    ({ type, kept }) => kept === undefined && !isCastType(type) && !isSearched(type as TargetType),
  );
  if (made.length === 0) return unchanged;
  const types = [...new Set(made.map(({ type }) => type))];
  const text = `no better search for ${types.join(', ')}: these tensors use ggml's own search`;
  return [...unchanged, noteOf('noBetterSearch', { types, tensors: made.map(({ name }) => name) }, text)];
}

/** True if a tensor can be copied: its elements are contiguous and have that type. */
function isAsStored({ gathered, parts }: LogicalTensor, type: string): boolean {
  return gathered === undefined && parts.length === 1 && parts[0]?.tensor.dtype === type;
}

/** Options of a result's layout. */
export interface ResultLayout extends Omit<LayoutOptions, 'fixAlignment'> {
  readonly choices: Pick<GgufChoices, 'fixAlignment' | 'shardSize' | 'splitTensors' | 'keepSplit' | 'part' | 'search'>;
}

const extension = '.gguf';

/** Bytes of each tensor in the result. */
function sizesOf(results: readonly ResultTensor[]): number[] {
  return results.map(({ type, shape }) => storedSize(ggmlBytes(ggmlType(type), shape) ?? 0));
}

/** Index of the file that holds a tensor's source. */
const fileOf = ({ from }: ResultTensor) => (from instanceof Uint8Array ? 0 : (from.source.parts[0]?.tensor.file ?? 0));

/** Index of the first tensor of each file of the input, in the list sorted by file. @throws RangeError if a file has no tensors left */
function beginsAsInput(results: readonly ResultTensor[]): readonly number[] | undefined {
  const files = results.map(fileOf);
  const count = files.reduce((most, file) => Math.max(most, file), 0) + 1;
  if (count === 1) return undefined;
  return Array.from({ length: count }, (_, file) => {
    const begin = files.indexOf(file);
    if (begin < 0)
      throw rangeError('keepSplit', without('pruneLayers'), true, {
        kind: 'because',
        message: `no tensor of file ${file + 1} of ${count} is left`,
      });
    return begin;
  });
}

/** Index of the first tensor of each file of the result; undefined for one file without a number. */
function beginsOf(results: readonly ResultTensor[], choices: ResultLayout['choices']): readonly number[] | undefined {
  if (choices.keepSplit === true) return beginsAsInput(results);
  const sizes = sizesOf(results);
  if (choices.splitTensors !== undefined) {
    return shardsOf(sizes, Number.POSITIVE_INFINITY, choices.splitTensors, mostSplits);
  }
  const limit = shardLimit(choices, sizes);
  return limit === undefined ? undefined : shardsOf(sizes, limit, undefined, mostSplits);
}

/** Lays out the files of a result. The first one has the metadata. */
function layOut(
  pairs: readonly GgufPair[],
  results: readonly ResultTensor[],
  { choices, alignment = defaultAlignment, keepDimensions = false }: ResultLayout,
): { files: OutputFile[]; wrongAlignment: number | undefined } {
  const { fixAlignment = false } = choices;
  const begins = beginsOf(results, choices);
  let wrongAlignment: number | undefined;
  const files = (begins ?? [0]).map((begin, i, all): OutputFile => {
    const some = results.slice(begin, all[i + 1]);
    const own = [
      ...(i === 0 ? pairs : []),
      ...(begins === undefined ? [] : splitPairs(i, all.length, results.length, choices)),
    ];
    const entries = some.map(({ name, type, shape }) => ({ name, dtype: type, shape }));
    const options = { fixAlignment, keepDimensions, alignment: i === 0 ? alignment : defaultAlignment };
    const layout = layoutGguf(own, entries, options);
    wrongAlignment ??= layout.wrongAlignment;
    const segments: Segment[] = [{ at: 0, bytes: layout.header }];
    for (const [j, { from, role = 'data' }] of some.entries()) {
      const at = (layout.tensors[j] as GgufTensor).byteOffset;
      if (from instanceof Uint8Array) segments.push({ at, bytes: from });
      else segments.push({ at, tensor: from.index, role });
    }
    const name =
      begins === undefined ? { suffix: '' } : { suffix: shardSuffix(i, all.length, extension), replaces: extension };
    return { ...name, size: layout.size, segments };
  });
  return { files, wrongAlignment };
}

/** Plans a result. Tensors are written in the given order. Splits are those of gguf-split. */
export function planResult(
  pairs: readonly GgufPair[],
  results: readonly ResultTensor[],
  partsOf: PartsOf,
  options: ResultLayout,
): FilePlan {
  const { files, wrongAlignment } = layOut(pairs, results, options);
  const tensors: PlannedTensor[] = [];
  for (const { type, kept, from, importance, feedback, moments, role, unfit } of results) {
    if (from instanceof Uint8Array || role !== undefined) continue;
    const { source, index } = from;
    if (kept !== undefined && isAsStored(source, type)) tensors[index] = keptLogical(source, kept);
    else {
      const form =
        type === 'NVFP4' && canTakeCodes(source)
          ? takenCodes
          : formTo(type, { importance, search: options.choices.search });
      const planned = convertedLogical(source, form, partsOf(source.shape, form));
      tensors[index] = moments === undefined ? planned : { ...planned, feedback, moments };
    }
    if (unfit !== undefined) tensors[index] = { ...(tensors[index] as PlannedTensor), unfit };
  }
  return {
    format: 'gguf',
    files,
    tensors,
    notes: [
      ...(wrongAlignment === undefined ? [] : [alignmentNote(wrongAlignment)]),
      ...searchNotes(results, options.choices.search),
      ...largeNote(options.choices, results, sizesOf(results)),
    ],
    sidecars: [],
  };
}

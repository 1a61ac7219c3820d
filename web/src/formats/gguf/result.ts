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
import { keptLogical } from '../tensors.js';
import { defaultAlignment, type GgufPair, type GgufTensor, ggmlBytes, ggmlType, paddedSize } from './contents.js';
import { type LayoutOptions, layoutGguf } from './layout.js';
import type { GgufChoices } from './options.js';
import { mostSplits, splitPairs } from './pairs.js';
import { isCastType, isSearched, type TargetType } from './targets.js';

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
  /** Divergence for each unit of its relative error, if it is known. */
  readonly divergence?: number | undefined;
  /** Set for a tensor that is a further part of another one's form: the role of the part. */
  readonly role?: Role;
  /** Source with its index in the plan, or computed bytes. */
  readonly from: { readonly source: LogicalTensor; readonly index: number } | Uint8Array<ArrayBuffer>;
}

/** The form of weights that are in NVFP4 already, with a scale of the matrix. */
const takenCodes: Nvfp4BlocksForm = { codec: 'nvfp4-blocks', takesCodes: true };

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

/** Options of a result's layout. */
export interface ResultLayout extends Omit<LayoutOptions, 'fixAlignment'> {
  readonly choices: Pick<GgufChoices, 'fixAlignment' | 'shardSize' | 'splitTensors' | 'keepSplit' | 'part' | 'search'>;
}

const extension = '.gguf';

/** Bytes of each tensor in the result. */
function tensorSizes(results: readonly ResultTensor[]): number[] {
  return results.map(({ type, shape }) => paddedSize(ggmlBytes(ggmlType(type), shape) ?? 0));
}

/**
 * Index of the first tensor of each file of the result; undefined for one file without a number.
 * @throws RangeError if a file that is to be kept has no tensors left
 */
function fileBegins(results: readonly ResultTensor[], choices: ResultLayout['choices']): readonly number[] | undefined {
  if (choices.keepSplit === true) {
    const files = results.map(({ from }) =>
      from instanceof Uint8Array ? 0 : (from.source.parts[0]?.tensor.file ?? 0),
    );
    const count = files.reduce((most, file) => Math.max(most, file), 0) + 1;
    if (count === 1) return undefined;
    return Array.from({ length: count }, (_, file) => {
      const begin = files.indexOf(file);
      if (begin >= 0) return begin;
      const message = `no tensor of file ${file + 1} of ${count} is left`;
      throw rangeError('keepSplit', without('pruneLayers'), true, { kind: 'because', message });
    });
  }
  const sizes = tensorSizes(results);
  if (choices.splitTensors !== undefined) {
    return shardsOf(sizes, Number.POSITIVE_INFINITY, choices.splitTensors, mostSplits);
  }
  const limit = shardLimit(choices, sizes);
  return limit === undefined ? undefined : shardsOf(sizes, limit, undefined, mostSplits);
}

/** Plans a result. Tensors are written in the given order. Splits are those of gguf-split. */
export function planResult(
  pairs: readonly GgufPair[],
  results: readonly ResultTensor[],
  partsOf: PartsOf,
  { choices, alignment = defaultAlignment, keepDimensions = false }: ResultLayout,
): FilePlan {
  // Lay out the files. The first one has the metadata.
  const begins = fileBegins(results, choices);
  const notes: Note[] = [];
  const files = (begins ?? [0]).map((begin, i, all): OutputFile => {
    const some = results.slice(begin, all[i + 1]);
    const own = [
      ...(i === 0 ? pairs : []),
      ...(begins === undefined ? [] : splitPairs(i, all.length, results.length, choices)),
    ];
    const layout = layoutGguf(
      own,
      some.map(({ name, type, shape }) => ({ name, dtype: type, shape })),
      {
        fixAlignment: choices.fixAlignment ?? false,
        keepDimensions,
        alignment: i === 0 ? alignment : defaultAlignment,
      },
    );
    const stated = layout.wrongAlignment;
    if (stated !== undefined)
      notes.push(
        noteOf(
          'wrongAlignment',
          { stated, actual: defaultAlignment },
          `general.alignment says ${stated}, but llama-quantize pads to 32, and so does this file: llama.cpp will not find its tensors. `,
          mention('fixAlignment', true),
          ' states 32',
        ),
      );
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

  // Plan the tensors, in the order of the input.
  const tensors: PlannedTensor[] = [];
  for (const result of results) {
    const { type, kept, from, feedback, moments, divergence, role, unfit } = result;
    if (from instanceof Uint8Array || role !== undefined) continue;
    const { source, index } = from;
    const { gathered, parts } = source;
    const isAsStored = gathered === undefined && parts.length === 1 && parts[0]?.tensor.dtype === type;
    if (kept !== undefined && isAsStored) tensors[index] = keptLogical(source, kept);
    else {
      const form = resultForm(result, source, choices.search);
      const planned = { source, form, parts: partsOf(source.shape, form) };
      const isTaken = form === takenCodes;
      const known = { ...planned, ...(divergence !== undefined && { divergence }) };
      tensors[index] = moments === undefined || isTaken ? known : { ...known, feedback, moments };
    }
    if (unfit !== undefined) tensors[index] = { ...(tensors[index] as PlannedTensor), unfit };
  }
  notes.push(...searchNotes(results, choices.search), ...largeNote(choices, results, tensorSizes(results)));
  return { format: 'gguf', files, tensors, notes, sidecars: [] };
}

/** The form of a tensor that is converted. */
function resultForm(
  { type, importance }: ResultTensor,
  { form: { codec, ...rest }, gathered }: LogicalTensor,
  search: BlockSearch | undefined,
): CastForm | GgmlForm | Nvfp4BlocksForm {
  const weighted = importance === undefined ? {} : { importance };
  if (isCastType(type)) return { codec: 'cast', to: type, ...weighted };
  if (type === 'NVFP4') {
    // Codes with a scale of the matrix have places in NVFP4 of GGUF.
    const { kind, tool } = rest as Partial<MicroscaledForm>;
    const isWhole = gathered === undefined || gathered.members !== undefined;
    if (isWhole && codec === 'microscaled' && kind === 'nvfp4' && tool !== 'mlx') return takenCodes;
    const searches = search === 'best' || importance !== undefined;
    return { codec: 'nvfp4-blocks', ...(searches ? { search: true } : {}), ...weighted };
  }
  const to = type as BlockType;
  return { codec: 'ggml', to, ...weighted, ...(search === 'best' && searchedTypes.includes(to) ? { best: true } : {}) };
}

/**
 * The layout of compressed-tensors, which vLLM, transformers and llama.cpp's converter load: integers or float8 with scales.
 * Reference: github.com/vllm-project/compressed-tensors at ac8e2ba8.
 */

import { ScalepointError } from '../../../core/errors.js';
import { type Note, noteOf } from '../../../core/note.js';
import { show } from '../../../core/show.js';
import type { CastType } from '../../codecs/cast.js';
import { type Form, tileElements } from '../../codecs/codec.js';
import {
  type CompressedForm,
  canWeighCompressedTensors,
  codesPerUnit,
  type Packing,
  rowsPerWord,
  spareBits,
  wordsOf,
} from '../../codecs/compressed-tensors.js';
import { elementsOf } from '../../codecs/elements.js';
import { quoted } from '../../files/bytes.js';
import type { Finding, LogicalTensor, PlannedTensor, Reader, SourceTensor } from '../../format.js';
import { MatchingWork, NamePattern } from '../../name-pattern.js';
import { statisticsNames } from '../../statistics.js';
import { elementCount } from '../../tensors.js';
import { cutUnitsNotes, keeperByName, linearOnly } from '../keep.js';
import {
  type CodedLayout,
  type CodedTarget,
  type Fields,
  type FoundWeight,
  type FoundWeights,
  floatOptions,
  formSharing,
  isFields,
  moduleOfWeight,
  noteFound,
  partsByRole,
  problemFound,
  type SafetensorsChoices,
  type StoredModel,
} from './layout.js';

// ------------------------------------------------------------------------------------------------------------------------ finding
/**
 * Finds codes among the tensors of a file, and their scales, by name.
 * Reference: github.com/vllm-project/compressed-tensors, src/compressed_tensors/compressors at ac8e2ba8.
 */

/** Codes, with the tensors that belong to them by name. */
interface Candidate {
  readonly name: string;
  readonly data: SourceTensor;
  readonly scale: SourceTensor;
  readonly zeroPoint: SourceTensor | undefined;
}

/** The shape of codes, and the facts of their form that names do not tell. */
interface FoundCodes {
  readonly shape: readonly number[];
  readonly type: string;
  readonly form: Omit<CompressedForm, 'codec' | 'symmetric' | 'scale'>;
}

/** Finds weights in the layout of compressed-tensors. */
async function findCompressed(model: StoredModel): Promise<FoundWeights> {
  const weights: FoundWeight[] = [];
  const refused = new Map<string, string>();
  let groupOf: ReturnType<typeof configGroups> | undefined;
  for (const data of model.tensors) {
    const isPlain = data.dtype === 'I8' || data.dtype === 'F8_E4M3';
    const name = isPlain ? data.name : /^(.*)_packed$/s.exec(data.name)?.[1];
    const scale = model.tensor(`${name}_scale`);
    if (name === undefined || !/^(F32|F16|BF16)$/.test(scale?.dtype ?? '') || scale === undefined) continue;
    const group = model.tensor(`${name}_g_idx`);
    if (isPlain && group !== undefined) continue;
    const zeroPoint = model.tensor(`${name}_zero_point`);
    const candidate = { name, data, scale, zeroPoint };
    if (groupOf === undefined) {
      const quantization = (await model.json('config.json'))?.quantization_config;
      groupOf = isFields(quantization) ? configGroups(quantization) : () => undefined;
    }
    const stated = groupOf(name.replace(/\.weight$/, ''))?.weights;
    const bits = isFields(stated) ? stated.num_bits : undefined;
    const found = isPlain ? plainCodes(candidate) : await packedCodes(model, candidate, bits);
    if (found === undefined) continue;
    const { shape, type } = found;
    const form: CompressedForm = {
      ...found.form,
      codec: 'compressed-tensors',
      symmetric: zeroPoint === undefined,
      scale: scale.dtype as CastType,
    };
    const isGrouped = group !== undefined && (await hasGroups(model, group, shape, form));
    if (isGrouped === undefined) {
      refused.set(data.name, 'with a g_idx that does not give each group as many columns');
      continue;
    }
    const parts = partsByRole({ data, scale, zeroPoint, group: isGrouped ? group : undefined });
    // Scales of the layer's inputs describe how it runs, not the weight.
    const inputs = ['scale', 'global_scale', 'zero_point'].map((part) => `${name.replace(/weight$/, '')}input_${part}`);
    weights.push({
      tensor: { name, shape, type, form: isGrouped ? { ...form, grouped: true } : form, parts } satisfies LogicalTensor,
      beside: [`${name}_zero_point`, `${name}_shape`, `${name}_g_idx`, ...inputs],
    });
  }
  return { weights, refused };
}

/**
 * True if columns belong to the groups that `X_g_idx` states, false if these are in order; undefined for groups that have different sizes, or
 * do not exist. Loaders sort the columns by them, and cut the sorted ones into groups of the same size; a -1 stands for columns in order.
 * Reference: quantization/lifecycle/forward.py, _process_group.
 */
async function hasGroups(
  model: StoredModel,
  group: SourceTensor,
  shape: readonly number[],
  form: CompressedForm,
): Promise<boolean | undefined> {
  const columns = elementCount(shape.slice(1)) ?? 0;
  if (group.dtype !== 'I32' || group.shape.join() !== String(columns)) return undefined;
  const { groupSize = columns } = form;
  const bytes = await model.read(group);
  const view = new DataView(bytes.buffer, bytes.byteOffset, group.bytes);
  const counts = new Array<number>(columns / groupSize).fill(0);
  let inOrder = true;
  for (let i = 0; i < columns; i++) {
    const index = view.getInt32(4 * i, true);
    if (index === -1) return false;
    if (counts[index] === undefined) return undefined;
    counts[index]++;
    inOrder &&= index === Math.floor(i / groupSize);
  }
  return counts.some((count) => count !== groupSize) ? undefined : !inOrder;
}

/** int8 or float8 codes with a scale for each index of axis 0; undefined if the shapes of the parts do not match. */
function plainCodes({ data, scale, zeroPoint }: Candidate): FoundCodes | undefined {
  const { shape, dtype } = data;
  const [rows] = shape;
  // Scales of blocks may be as many as the rows by chance.
  if (scale.shape[0] !== rows || elementCount(scale.shape) !== rows) return undefined;
  const hasWrongZeros = dtype === 'F8_E4M3' || zeroPoint?.dtype !== 'I8' || elementCount(zeroPoint.shape) !== rows;
  if (zeroPoint !== undefined && hasWrongZeros) return undefined;
  const form = { type: dtype === 'I8' ? 'int' : 'float', bits: 8, groupSize: undefined, packed: false } as const;
  return { shape, type: dtype, form };
}

/** True if any of the first words has a bit of a mask. @param last true: looks at the last word of each row */
async function hasBits(model: StoredModel, data: SourceTensor, mask: number, last = false): Promise<boolean> {
  if (mask === 0) return false;
  const size = Math.min(data.bytes, 1 << 16);
  const words = await model.read(data, size);
  const view = new DataView(words.buffer, words.byteOffset, size);
  const stride = last ? 4 * (data.shape[1] ?? 1) : 4;
  for (let at = stride - 4; at < size; at += stride) if ((view.getUint32(at, true) & mask) !== 0) return true;
  return false;
}

/** All packings, the most common widths first. Codes that cross words hardly ever leave the gaps that whole codes do, which come before. */
const packings: readonly Packing[] = [
  ...([4, 8, 2] as const).map((bits) => ({ bits, wholeWords: false })),
  ...[true, false].flatMap((wholeWords) => ([3, 5, 6, 7] as const).map((bits) => ({ bits, wholeWords }))),
];

/** Largest rank of a shape. */
const maxRank = 64;

/** Packed codes; undefined if the shapes of the parts do not match. @param stated bits of the weight by config.json */
async function packedCodes(
  model: StoredModel,
  { name, data, scale, zeroPoint }: Candidate,
  stated: unknown,
): Promise<FoundCodes | undefined> {
  // Read the two or more dimensions in `X_shape`.
  const stores = model.tensor(`${name}_shape`);
  if (data.dtype !== 'I32' || data.shape.length !== 2) return undefined;
  if (stores?.dtype !== 'I64' || stores.bytes < 16 || stores.bytes > 8 * maxRank) return undefined;
  const bytes = await model.read(stores);
  const view = new DataView(bytes.buffer, bytes.byteOffset, stores.bytes);
  const shape = Array.from({ length: stores.bytes / 8 }, (_, i) => Number(view.getBigInt64(8 * i, true)));
  const [rows = 0, ...inner] = shape;
  const columns = elementCount(inner);
  if (shape.some((dimension) => dimension <= 0) || columns === undefined || data.shape[0] !== rows) return undefined;
  // Find the packing of rows with as many words. Short rows suit several widths: config.json decides, then 4 and 8 bits come first, and bits
  // where there are no codes rule a packing out. Whole codes leave gaps in all words.
  const suiting = packings.filter((packing) => wordsOf(columns, packing) === data.shape[1]);
  suiting.sort((a, b) => Number(b.bits === stated) - Number(a.bits === stated));
  let packing = suiting.length === 1 ? suiting[0] : undefined;
  for (const one of packing === undefined ? suiting : []) {
    const gaps = spareBits(codesPerUnit(one), one);
    const isWrong =
      (await hasBits(model, data, spareBits(columns, one), true)) ||
      (await hasBits(model, data, gaps)) ||
      (zeroPoint !== undefined && (await hasBits(model, zeroPoint, gaps)));
    if (isWrong) continue;
    packing = one;
    break;
  }
  // Compare the other parts with it.
  const [, groups = 0, ...others] = scale.shape;
  const scaleRank = others.every((dimension) => dimension === 1) ? scale.shape.length : 0;
  if (packing === undefined || scaleRank !== shape.length || scale.shape[0] !== rows) return undefined;
  if (!(groups > 0) || columns % groups !== 0 || (groups > 1 && inner.length > 1)) return undefined;
  const zeroWords = [wordsOf(rows, packing), groups, ...others];
  const hasWrongZeros = zeroPoint?.dtype !== 'I32' || zeroPoint.shape.join() !== zeroWords.join();
  if (zeroPoint !== undefined && hasWrongZeros) return undefined;
  const groupSize = groups === 1 ? undefined : columns / groups;
  return { shape, type: `I${packing.bits}`, form: { type: 'int', ...packing, groupSize, packed: true } };
}

// -------------------------------------------------------------------------------------------------------------------- config.json
/**
 * The `quantization_config` of codes in the layout of compressed-tensors: written for loaders, read to find codes, and compared with them.
 * Reference: github.com/vllm-project/compressed-tensors, src/compressed_tensors/quantization/quant_args.py and quant_config.py at
 * ac8e2ba8.
 */

// ------------------------------------------------------------------------------------------------------------------------ writing

/** QuantizationArgs of compressed-tensors, with the keys known to all its versions since 0.11, because it refuses unknown ones. */
export function quantizationArgs(
  args: Readonly<Record<'num_bits' | 'type' | 'symmetric' | 'strategy' | 'group_size' | 'dynamic', unknown>>,
  observer: 'minmax' | 'mse' | null,
) {
  return { ...args, actorder: null, block_structure: null, observer, observer_kwargs: {} };
}

/** int8 per token, when the model runs. */
const activationArgs = quantizationArgs(
  { num_bits: 8, type: 'int', symmetric: true, strategy: 'token', group_size: null, dynamic: true },
  null,
);

/** The part of a configuration that describes codes. */
export interface Scheme {
  /** Codes with equal keys share a group of the configuration. */
  readonly key: string;
  readonly format: string;
  readonly weights: Fields;
}

/** Settings of a configuration besides those of the weights. */
interface Settings {
  readonly activations?: 'int8-dynamic' | undefined;
  /** First version of compressed-tensors with every key. */
  readonly version: string;
}

/** The modules of weights, as a configuration names them. */
const modulesOf = (weights: readonly { readonly name: string }[]): string[] =>
  weights.flatMap(({ name }) => (name.endsWith('.weight') ? [moduleOfWeight(name)] : []));

/** The `quantization_config` for config.json; undefined if nothing has codes. @param schemeOf gives undefined for floats */
export function describe(
  tensors: readonly PlannedTensor[],
  { activations, version }: Settings,
  schemeOf: (form: Form) => Scheme | undefined,
): Record<string, unknown> | undefined {
  // Gather weights by their schemes, and the modules of matrices without codes.
  const groups = new Map<string, { readonly scheme: Scheme; readonly members: LogicalTensor[] }>();
  const schemes = new Map<Form, Scheme | undefined>();
  const plain: LogicalTensor[] = [];
  for (const { source, form } of tensors) {
    if (!schemes.has(form)) schemes.set(form, schemeOf(form));
    const scheme = schemes.get(form);
    if (scheme !== undefined) {
      const group = groups.get(scheme.key) ?? { scheme, members: [] };
      groups.set(scheme.key, group);
      group.members.push(source);
    } else if (source.shape.length === 2) plain.push(source);
  }
  const [first] = groups.values();
  if (first === undefined) return undefined;
  // An output layer that shares the embedding's weight is a module without its own tensor.
  const hasEmbedding = /(^|\.)(embed_tokens|wte|word_embeddings|shared)\.weight$/;
  const isTied =
    tensors.some(({ source }) => hasEmbedding.test(source.name)) &&
    !tensors.some(({ source }) => /(^|\.)lm_head\./.test(source.name));
  const configGroups: Record<string, unknown> = {};
  for (const { scheme, members } of groups.values()) {
    // A single group has all linear layers, and the others by name: convolutions, and embeddings that a rule selects.
    const keptByName = keeperByName([]);
    const notLinear = linearOnly(members);
    const special = members.filter(
      ({ name, shape }) => notLinear(name, shape) !== undefined || keptByName(name)?.kind === 'embedding',
    );
    const targets = groups.size === 1 ? ['Linear', ...modulesOf(special)] : modulesOf(members);
    if (targets.length === 0) continue;
    configGroups[`group_${Object.keys(configGroups).length}`] = {
      targets,
      weights: scheme.weights,
      input_activations: activations === undefined ? null : activationArgs,
      output_activations: null,
      // Loaders read this format; older ones read that of the whole file.
      format: scheme.format,
    };
  }
  return {
    quant_method: 'compressed-tensors',
    format: first.scheme.format,
    quantization_status: 'compressed',
    global_compression_ratio: null,
    ignore: [...modulesOf(plain), ...(isTied ? ['lm_head'] : [])],
    kv_cache_scheme: null,
    config_groups: configGroups,
    sparsity_config: {},
    transform_config: {},
    version,
  };
}

// ------------------------------------------------------------------------------------------------------------------------ reading

const stringsIn = (value: unknown): readonly string[] =>
  Array.isArray(value) ? value.filter((item) => typeof item === 'string') : [];

/** Most expressions of a configuration: each may be compared with each module. */
const mostExpressions = 1000;

function badExpressions(has: string, cause?: unknown): ScalepointError {
  const message = `config.json: quantization_config has ${has} expressions for modules`;
  return new ScalepointError('BAD_FILE', message, { cause });
}

/** Lists of modules, by their names or by expressions at their start. */
export class ModuleLists {
  /** The first list with each name. */
  readonly #names = new Map<string, number>();
  readonly #patterns = new Map<NamePattern, number>();

  /** @throws ScalepointError `BAD_FILE` for too many expressions */
  constructor(lists: readonly (readonly string[])[]) {
    const work = new MatchingWork();
    const seen = new Set<string>();
    for (const [i, list] of lists.entries()) {
      for (const entry of list) {
        if (seen.has(entry)) continue;
        seen.add(entry);
        if (!entry.startsWith('re:')) {
          this.#names.set(entry, i);
          continue;
        }
        try {
          this.#patterns.set(new NamePattern(`^(?:${entry.slice(3)})`, 'ignore', work), i);
        } catch {
          // Only Python supports this expression.
        }
        if (this.#patterns.size > mostExpressions) throw badExpressions(`more than ${mostExpressions}`);
      }
    }
  }

  /** The first list that has a module; -1 if no list does. */
  find(module: string): number {
    const named = this.#names.get(module) ?? Number.POSITIVE_INFINITY;
    for (const [pattern, i] of this.#patterns) {
      if (i >= named) break;
      try {
        if (pattern.test(module)) return i;
      } catch (cause) {
        throw badExpressions(`too many steps of matching in ${quoted(pattern.source)}, among its`, cause);
      }
    }
    return named === Number.POSITIVE_INFINITY ? -1 : named;
  }
}

/** Gives the group of a module in a `quantization_config`. Matches by name override those by class. */
function configGroups({ config_groups: all }: Fields): (module: string) => Fields | undefined {
  const groups = isFields(all) ? Object.values(all).filter(isFields) : [];
  const lists = groups.map(({ targets }) => stringsIn(targets));
  const modules = new ModuleLists(lists);
  const usual = groups[lists.findIndex((targets) => targets.includes('Linear') || targets.includes('Embedding'))];
  return (module) => groups[modules.find(module)] ?? usual;
}

/** Findings for weights that contradict the `quantization_config` that describes them. */
function verifyCompressed(coded: readonly LogicalTensor[], quantization: Fields): Finding[] {
  const groupOf = configGroups(quantization);
  const ignored = new ModuleLists([stringsIn(quantization.ignore)]);
  return coded.flatMap(({ name, shape, form }): Finding[] => {
    const tensor = { tensor: name };
    if (!name.endsWith('.weight'))
      return [noteFound('notNameable', 'config.json cannot refer to it: its name does not end in .weight', tensor)];
    const module = moduleOfWeight(name);
    if (ignored.find(module) >= 0)
      return [problemFound('ignored', 'config.json says that it holds no codes (ignore)', tensor)];
    const group = groupOf(module);
    if (group === undefined) return [problemFound('noGroup', 'no group of config.json names it', tensor)];
    const weights = isFields(group.weights) ? group.weights : {};
    const { type, bits, symmetric, groupSize, packed } = form as CompressedForm;
    // A group of a whole row equals one scale per row.
    const isWholeRow = groupSize === undefined && weights.group_size === shape[1];
    const facts: Fields = {
      num_bits: bits,
      type,
      symmetric,
      ...(groupSize !== undefined && { group_size: groupSize }),
      ...(groupSize === undefined && weights.strategy === 'group' && !isWholeRow && { strategy: 'channel' }),
    };
    const found = Object.entries(facts).flatMap(([key, actual]): Finding[] => {
      const stated = weights[key];
      const text = `config.json says ${key} ${show(stated)}, but it is ${show(actual)}`;
      return stated === actual ? [] : [problemFound('configDiffers', text, { ...tensor, key, stated, actual })];
    });
    const stated = group.format ?? quantization.format;
    if (typeof stated !== 'string' || (stated === 'pack-quantized') === packed) return found;
    const actual = packed ? 'packed' : 'not packed';
    const text = `config.json says format ${show(stated)}, but the codes are ${actual}`;
    return [...found, problemFound('configDiffers', text, { ...tensor, key: 'format', stated, actual })];
  });
}

// --------------------------------------------------------------------------------------------------------------------- the layout
const codeOptions = ['include', 'config', ...floatOptions];
const integerOptions = ['scheme', 'granularity', 'range', 'packed', ...statisticsNames, ...codeOptions];

const targets = {
  int8: {
    about: '8 bits, in groups',
    kind: 'integers',
    bits: 8,
    groupSizes: [128, 64, 32],
    options: [...integerOptions, 'activations'],
    mixedWith: ['bfloat16'],
    preset: 'balanced',
  },
  int4: {
    about: '4 bits, in groups',
    kind: 'integers',
    bits: 4,
    groupSizes: [128],
    expertGroups: [128, 64, 32],
    options: integerOptions,
    mixedWith: ['int8', 'bfloat16'],
    preset: 'small',
  },
  float8e4m3fn: {
    about: '8 bits, small floats and a scale for each row',
    kind: 'floats',
    options: codeOptions,
    mixedWith: ['bfloat16'],
  },
} as const satisfies Record<string, CodedTarget>;

/** True if codes are stored one per byte; otherwise integers are packed. */
export function hasByteCodes({ packed, activations }: SafetensorsChoices): boolean {
  return packed === false || activations !== undefined;
}

/** vLLM as the reader of codes that config.json describes. */
export const vllmReader: Reader = {
  program: 'vLLM',
  code: 'vllm serve ./FOLDER',
  needs: "Save config.json into the model's folder as well, in place of the one there.",
};

export const compressedTensorsLayout = {
  label: 'compressed-tensors',
  codecs: ['compressed-tensors'],
  quantMethods: ['compressed-tensors'],
  find: findCompressed,
  verify: verifyCompressed,
  floats: (form) => (form as CompressedForm).scale,
  /** Rows that share words of zero points stay together, and groups of both sides must end at the same columns. */
  canBeCut({ shape, form }) {
    const compressed = form as CompressedForm;
    const { packed, symmetric, wholeWords, grouped, groupSize = 1 } = compressed;
    if (elementsOf(shape.slice(1)) * rowsPerWord(compressed) <= tileElements) return true;
    return (!packed || symmetric) && !wholeWords && !grouped && tileElements % groupSize === 0;
  },
  targets,
  joinsLayers: true,
  splitsExperts: true,
  readers: () => [vllmReader],
  plan({ tensors, choices, isModel }) {
    const { scheme = 'symmetric', range = 'min-max', include, activations } = choices;
    const isPacked = !hasByteCodes(choices);
    const share = formSharing<CompressedForm>();
    /** The last form with its key. Consecutive tensors often share one. */
    let last: { readonly to: string; readonly dtype: string; readonly form: CompressedForm } | undefined;
    return {
      ...(isModel && include !== 'all' ? { notLinear: linearOnly(tensors) } : {}),
      formOf({ to, dtype }, groupSize) {
        if (last?.to === to && last.dtype === dtype && last.form.groupSize === groupSize) return last.form;
        const { kind, bits = 8 }: CodedTarget = targets[to as keyof typeof targets];
        const isFloat = kind === 'floats';
        const form = share({
          codec: 'compressed-tensors',
          type: isFloat ? 'float' : 'int',
          bits,
          symmetric: scheme === 'symmetric' || isFloat,
          groupSize,
          packed: !isFloat && isPacked,
          scale: dtype === 'F64' ? 'F32' : (dtype as CastType),
          ...(range === 'min-max' || isFloat ? {} : { range }),
        });
        last = { to, dtype, form };
        return form;
      },
      weighing: {
        takes: (shape, form) => canWeighCompressedTensors(shape, form as CompressedForm),
        add: (form, importance): CompressedForm => ({ ...(form as CompressedForm), range: 'mse', importance }),
      },
      sidecars(planned) {
        // Give integers, and float8 with a scale for each row, their schemes.
        const value = describe(planned, { activations, version: '0.11.0' }, (form) => {
          const { codec, type, bits, symmetric, groupSize, packed, range } = form as CompressedForm;
          if (codec !== 'compressed-tensors') return undefined;
          const plain = activations === undefined ? 'naive-quantized' : 'int-quantized';
          const args = {
            num_bits: bits,
            type,
            symmetric,
            strategy: groupSize === undefined ? 'channel' : 'group',
            group_size: groupSize ?? null,
            dynamic: false,
          };
          return {
            key: `${bits} ${groupSize}`,
            format: type === 'float' ? 'float-quantized' : packed ? 'pack-quantized' : plain,
            // Name the closest observer of llm-compressor.
            weights: quantizationArgs(args, range === 'mse' ? 'mse' : 'minmax'),
          };
        });
        return value === undefined ? [] : [{ option: 'config', value }];
      },
      /** The readers of the codes, where they differ from the usual ones. */
      notes(planned) {
        const converted = planned.flatMap(({ source, form }) =>
          form.codec === 'compressed-tensors' ? [{ ...source, form: form as CompressedForm }] : [],
        );
        const notes: Note[] = [];
        const note = (kind: string, text: string, weights: typeof converted) =>
          notes.push(noteOf(kind, { tensors: weights.map(({ name }) => name) }, text));
        const notLinear = linearOnly(planned.map(({ source }) => source));
        const special = converted.filter(({ name, shape }) => notLinear(name, shape) !== undefined);
        if (special.length > 0) {
          const become =
            special.length === 1
              ? 'weight of layers that are not linear becomes'
              : 'weights of layers that are not linear become';
          const readers = 'Scalepoint reads them, vLLM, transformers and llama.cpp do not';
          note('codesOfOtherLayers', `${special.length} ${become} codes: ${readers}`, special);
        }
        if (
          hasByteCodes(choices) &&
          choices.activations === undefined &&
          converted.some(({ form }) => form.type === 'int')
        ) {
          // The converter ignores zero points of codes that are not packed.
          const readers = choices.scheme === 'asymmetric' ? 'transformers' : "transformers and llama.cpp's converter";
          const text = `plain int8 codes are read by ${readers}; vLLM needs packed codes (the default)`;
          notes.push(noteOf('plainCodes', {}, text));
        }
        const rows = converted.filter(
          ({ shape, form: { packed, groupSize } }) => packed && groupSize === undefined && shape.length === 2,
        );
        if (rows.length > 0) {
          const text =
            "packed codes with one scale a row are read by vLLM and transformers; llama.cpp's converter needs groups";
          note('packedRows', text, rows);
        }
        return [...notes, ...cutUnitsNotes(planned)];
      },
    };
  },
} satisfies CodedLayout;

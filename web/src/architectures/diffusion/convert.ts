/**
 * Converts checkpoints of diffusion models to GGUF in one step; the tools of ComfyUI-GGUF take three. Types are those of its patched
 * llama-quantize, for which all blocks of a model count alike.
 * Reference: github.com/city96/ComfyUI-GGUF, tools/convert.py at 4dfc025 (branch auto_convert), tools/lcpp.patch and
 * tools/fix_5d_tensors.py at 795e451.
 */

import { rangeError, ScalepointError } from '../../core/errors.js';
import { noteOf } from '../../core/note.js';
import { type Hint, mention } from '../../core/option-problem.js';
import { elementsOf } from '../../formats/codecs/elements.js';
import type { LowRankForm } from '../../formats/codecs/low-rank.js';
import { quoted } from '../../formats/files/bytes.js';
import type { FilePlan, LogicalTensor, OpenModel, PartsOf, SourceTensor } from '../../formats/format.js';
import { ggmlType } from '../../formats/gguf/contents.js';
import { edited } from '../../formats/gguf/edits.js';
import { checkScaled } from '../../formats/gguf/nvfp4.js';
import type { GgufChoices } from '../../formats/gguf/options.js';
import { type GgufKey, pairOf } from '../../formats/gguf/pairs.js';
import { fileTypeOf } from '../../formats/gguf/plan.js';
import { planResult, type ResultTensor } from '../../formats/gguf/result.js';
import { type FileType, fileTypes, isCastType, type TargetType } from '../../formats/gguf/targets.js';
import { ruleFor } from '../../formats/options.js';
import { type Reason, rankReason, reasons } from '../../formats/reason.js';
import { originalModel } from '../../formats/safetensors/diffusers.js';
import { type DiffusionArchitecture, staysFloat } from '../../formats/safetensors/diffusion.js';
import {
  codedLayoutOf,
  lowRankLayout,
  quantizedLayoutOf,
  sourceNotes,
} from '../../formats/safetensors/layouts/registry.js';
import { tensorsAsFloats } from '../../formats/safetensors/safetensors.js';
import { plainTensor } from '../../formats/tensors.js';
import { floatTypeOf, gatherStored } from '../carry-out.js';
import type { Converted } from '../converter.js';
import { architectureReason, type Named, parameterReason, withoutPrefix } from './detect.js';

// --------------------------------------------------------------------------------------------------------------------- the checks

/** ggml's own limit is 63; the programs that read these files have raised theirs. */
const mostNameBytes = 127;

/** Names of the scales of quantized weights. The codes cannot be decoded without them. */
const scaleName = /(^|\.)scaled_fp8$|\.(scale_weight|scale_input|weight_scale|input_scale|comfy_quant)$/;

function unsupportedTensor({ name: tensor, byteOffset }: SourceTensor, message: string, hint?: Hint): never {
  throw new ScalepointError('UNSUPPORTED_DTYPE', `tensor ${quoted(tensor)}: ${message}`, { tensor, byteOffset, hint });
}

const firstPart = ({ parts: [part] }: LogicalTensor) => (part as LogicalTensor['parts'][number]).tensor;

// ------------------------------------------------------------------------------------------------------------------------- mixtures

type Class = 'value' | 'query, key and value' | 'down';

const has = (...parts: string[]) => {
  return (name: string) => parts.some((part) => name.includes(part));
};

/** Classes of tensors by their names. The first match decides. */
const classes: readonly (readonly [Class, (name: string) => boolean])[] = [
  [
    'value',
    has(
      'attn_v.weight',
      '.to_v.weight',
      '.v.weight',
      '.attn.w1v.weight',
      '.attn.w2v.weight',
      '_attn.v_proj.weight',
      '.add_v_proj.weight',
    ),
  ],
  ['query, key and value', has('attn_qkv.weight', 'attn.qkv.weight', 'attention.qkv.weight')],
  [
    'down',
    has(
      'ffn_down',
      '.ffn.2.weight',
      '.ff.net.2.weight',
      '.mlp.layer2.weight',
      '.adaln_modulation_mlp.2.weight',
      '.feed_forward.w2.weight',
      '.img_mlp.net.2.weight',
      '.txt_mlp.net.2.weight',
    ),
  ],
  ['down', (name) => name.includes('experts.') && name.includes('.w2.weight')],
];

/** Type of each class of tensors, by file type. */
const ofClass: Readonly<Record<Class, Readonly<Partial<Record<FileType, TargetType>>>>> = {
  value: { Q2_K: 'Q3_K', Q3_K_L: 'Q5_K', Q4_K_M: 'Q6_K', Q5_K_M: 'Q6_K' },
  'query, key and value': { Q3_K_M: 'Q4_K', Q3_K_L: 'Q4_K', Q4_K_M: 'Q5_K', Q5_K_M: 'Q6_K' },
  down: {
    Q3_K_M: 'Q4_K',
    Q3_K_L: 'Q5_K',
    Q4_K_S: 'Q5_K',
    Q4_K_M: 'Q6_K',
    Q5_K_M: 'Q6_K',
    Q4_0: 'Q4_1',
    Q5_0: 'Q5_1',
  },
};

/** Types of the first and the last block of Qwen-Image. */
const ofQwenEnds: Readonly<Partial<Record<FileType, TargetType>>> = {
  Q2_K: 'Q4_K',
  Q3_K_S: 'Q4_K',
  Q3_K_M: 'Q4_K',
  Q3_K_L: 'Q4_K',
  Q4_K_M: 'Q5_K',
  Q5_K_M: 'Q6_K',
};
const isQwenEnd = has('transformer_blocks.0.', 'transformer_blocks.59.');

/** Chooses the type of each tensor by its name. It counts them, so they must come in the order of the file. */
function diffusionMixture(architecture: string, fileType: FileType): (name: string) => TargetType {
  const { base } = fileTypes[fileType];
  let values = 0;
  return (name) => {
    const [found] = classes.find(([, matches]) => matches(name)) ?? [];
    const seen = found === 'value' ? values++ : 0;
    const ofEnd = architecture === 'qwen_image' && isQwenEnd(name) ? ofQwenEnds[fileType] : undefined;
    if (ofEnd !== undefined) return ofEnd;
    if (found === undefined) return base;
    if (found === 'value' && fileType === 'Q3_K_M') return seen < 2 ? 'Q5_K' : 'Q4_K';
    if (found === 'value' && fileType === 'Q4_K_S' && seen < 4) return 'Q5_K';
    return ofClass[found][fileType] ?? base;
  };
}

// ------------------------------------------------------------------------------------------------------------------------ decisions

/** A tensor during conversion. */
interface Item {
  readonly name: string;
  /** Shape in the result: that of the source, or rows of 256. */
  readonly shape: readonly number[];
  readonly stored: readonly number[];
  readonly dtype: string;
  readonly isCoded: boolean;
  readonly source: LogicalTensor;
}

const mostDimensions = 4;
/** Largest element count of a tensor that is stored as F32. */
const fewElements = 1024;
/** Row length of reshaped tensors, and their least element count. */
const [reshapedRow, leastReshaped] = [256, 512];

/** True for names of bare parameters. Programs read their bytes directly, so they stay floats. */
const isRaw = (name: string) => !/\.(weight|bias)$/.test(name);

/** Type of a tensor that is not quantized. F32 becomes F16, unless the target is F32. */
function plainTypeOf({ precise = [] }: DiffusionArchitecture, item: Item, keepsF32: boolean): string {
  const { name, stored, dtype, isCoded, source } = item;
  const type = isCoded ? dtype : floatTypeOf(firstPart(source));
  if (stored.length > mostDimensions) return 'F32';
  if (dtype === 'F32' || dtype === 'F64' || dtype === 'BF16') {
    if (stored.length <= 1 || elementsOf(stored) <= fewElements || isRaw(name)) return 'F32';
    if (precise.some((part) => name.includes(part))) return 'F32';
  }
  return type === 'F32' && !keepsF32 ? 'F16' : type;
}

/** Reason not to quantize a tensor; undefined if it is quantized. */
function keptReason(architecture: DiffusionArchitecture, { name, shape, stored }: Item): Reason | undefined {
  const first = shape.findIndex((dimension) => dimension !== 1);
  const rank = first < 0 ? 0 : shape.length - first;
  if (stored.length > mostDimensions) return rankReason(stored.length);
  if (shape.length < 2 || rank < 2) return rankReason(1);
  if (rank > 2) return rankReason(rank);
  if (isRaw(name)) return parameterReason;
  if (!name.endsWith('weight')) return reasons.notWeight;
  if (name.includes('_norm.weight')) return reasons.norm;
  if (staysFloat(architecture, name)) return architectureReason;
  return undefined;
}

/** Chooses the type and shape of each tensor. */
function choicesOf(
  architecture: DiffusionArchitecture,
  items: readonly Item[],
  fileType: FileType,
  choices: GgufChoices,
): ResultTensor[] {
  const { base } = fileTypes[fileType];
  const { pure = false, rules = [] } = choices;
  const mixed = diffusionMixture(architecture.name, fileType);
  return items.map((item, index): ResultTensor => {
    const { name, shape, source } = item;
    const from = { source, index };
    const plain = plainTypeOf(architecture, item, fileType === 'F32');
    const reason = keptReason(architecture, item);
    if (reason !== undefined) return { name, shape, from, type: plain, kept: reason };
    const usual = pure || isCastType(base) ? base : mixed(name);
    const rule = ruleFor(rules, name);
    if (rule?.keep === true) return { name, shape, from, type: plain, kept: reasons.rule };
    // Rows that its blocks do not fit become F16.
    const wanted = rule?.to === undefined ? usual : (rule.to as TargetType);
    const type = (shape.at(-1) ?? 1) % ggmlType(wanted).elements === 0 ? wanted : 'F16';
    return { name, shape, from, type, ...(type === item.dtype ? { kept: reasons.sameType } : {}) };
  });
}

/** Sorts tensors into writing order: file order, except that a tensor of more than 4 dimensions follows its bias, or comes last. */
function inWritingOrder(results: readonly ResultTensor[]): ResultTensor[] {
  const isLarge = ({ shape }: ResultTensor) => shape.length > mostDimensions;
  const large = new Map(results.filter(isLarge).map((result) => [result.name, result]));
  const ordered: ResultTensor[] = [];
  for (const result of results) {
    if (isLarge(result)) continue;
    ordered.push(result);
    const weight = result.name.replace('.bias', '.weight');
    const follows = large.get(weight);
    if (follows !== undefined) ordered.push(follows);
    large.delete(weight);
  }
  return [...ordered, ...large.values()];
}

// ------------------------------------------------------------------------------------------------------------------------ the whole

/** A tensor of the checkpoint with its shape in the result. Codes have the type of the floats that they are restored to. */
function itemOf(architecture: DiffusionArchitecture, { name, tensor }: Named<LogicalTensor>): Item {
  // Small convolutions are reshaped because blocks of 256 do not divide their rows.
  const { shape: stored } = tensor;
  const n = elementsOf(stored);
  const isShort = stored.length > 1 && n >= leastReshaped && n % reshapedRow === 0;
  const isCut = architecture.reshapes === true && isShort && (stored.at(-1) ?? 1) % reshapedRow !== 0;
  const shape = isCut ? [n / reshapedRow, reshapedRow] : stored;
  const layout = codedLayoutOf(tensor.form);
  const first = firstPart(tensor);
  if (layout === undefined) {
    floatTypeOf(first);
    const source = tensor.gathered === undefined ? gatherStored({ name, shape, stored: [first] }) : tensor;
    return { name, shape, stored: tensor.shape, dtype: first.dtype, isCoded: false, source };
  }
  if (isCut && layout !== lowRankLayout) {
    unsupportedTensor(first, `it is quantized already, and ${architecture.name} needs other rows; start from floats`);
  }
  return {
    name,
    shape,
    stored: tensor.shape,
    dtype: layout.floats(tensor.form),
    isCoded: true,
    source: {
      ...tensor,
      name,
      shape,
      form: isCut ? ({ ...tensor.form, rowLength: reshapedRow } as LowRankForm) : tensor.form,
      isRenamed: true,
    },
  };
}

/**
 * Converts a checkpoint to GGUF.
 * @param architecture the detected one
 * @param isDiffusers true for the layout of diffusers
 * @throws ScalepointError `UNSUPPORTED_DTYPE`, `BAD_FILE`
 */
export async function convertDiffusion(
  model: OpenModel,
  architecture: DiffusionArchitecture,
  isDiffusers: boolean,
): Promise<Converted> {
  const { dropped = [] } = architecture;
  const isRestored = model.adapters !== undefined || model.tensors.some(({ name }) => scaleName.test(name));
  const stored = isRestored ? await tensorsAsFloats(model, true) : model.tensors.map(plainTensor);
  const original = isDiffusers ? originalModel(stored) : undefined;
  const all = original?.tensors ?? stored;
  const named = withoutPrefix(all).filter(({ name }) => !dropped.some((part) => name.includes(part)));
  // Refuse tensors that readers would fail to load or misread.
  const scale = named.find(({ name }) => scaleName.test(name));
  if (scale !== undefined) {
    unsupportedTensor(
      firstPart(scale.tensor),
      'the weights are quantized already, as float8 with scales, in a layout that is not known here; start from the checkpoint in ' +
        'BF16 or F16, or from float8 without scales',
    );
  }
  for (const {
    name,
    tensor: { name: from },
  } of named) {
    const bytes = new TextEncoder().encode(name).length;
    if (bytes <= mostNameBytes) continue;
    const message = `the name has ${bytes} bytes, more than the ${mostNameBytes} that readers allow`;
    throw new ScalepointError('BAD_FILE', `tensor ${quoted(from)}: ${message}`, { tensor: from });
  }
  const items = named.map((one) => itemOf(architecture, one));
  return {
    architecture: architecture.name,
    tensors: items.map(({ source }) => source),
    plan(choices, partsOf: PartsOf): FilePlan {
      const gguf = choices as GgufChoices;
      for (const name of ['importance', 'pruneLayers', 'keepSplit'] as const) {
        if (gguf[name] !== undefined) throw rangeError(name, { kind: 'onlyFor', files: 'language models' }, gguf[name]);
      }
      // Refuse codes unless they are to be quantized again.
      const coded = items.find(({ source }) => quantizedLayoutOf(source.form) !== undefined);
      if (coded !== undefined && gguf.requantize !== true)
        unsupportedTensor(
          firstPart(coded.source),
          `the weights are quantized already, as ${coded.source.type} with scales`,
          {
            kind: 'try',
            option: mention('requantize', true),
            effect: 'starts from the values of the codes, which adds to their errors',
          },
        );
      // Copies of safetensors are safetensors.
      if (gguf.to === 'copy') throw new Error('a copy is not a conversion');
      if (gguf.to === 'lora-gguf')
        throw rangeError('to', { kind: 'onlyFor', files: 'folders of language models' }, gguf.to);
      const fileType = fileTypeOf(gguf.to);
      checkScaled(fileType, architecture.name);
      const results = inWritingOrder(choicesOf(architecture, items, fileType, gguf));
      const keys: GgufKey[] = [
        { name: 'general.architecture', type: 'string', value: architecture.name },
        { name: 'general.quantization_version', type: 'u32', value: 2 },
        { name: 'general.file_type', type: 'u32', value: fileTypes[fileType].id },
      ];
      for (const { name, shape, stored } of items)
        if (shape !== stored) keys.push({ name: `comfy.gguf.orig_shape.${name}`, type: 'i32[]', value: stored });
      const pairs = keys.map(pairOf);
      const plan = planResult(edited(pairs, { pairs }, gguf.metadata), results, partsOf, {
        choices: gguf,
        keepDimensions: true,
      });
      const sources = items.map(({ source }) => source);
      // Say which programs read the result, and what it lacks or loses.
      const taken = new Set(named.map(({ tensor }) => tensor.name));
      const left = all.flatMap(({ name }) => (taken.has(name) ? [] : [name]));
      const readers =
        `the file follows the tools of ComfyUI-GGUF for ${architecture.name}; ComfyUI with that extension and stable-diffusion.cpp read it, ` +
        'and llama.cpp does not';
      const others = `${left.length === 1 ? '1 tensor is' : `${left.length} tensors are`} left out, as those of text encoders and VAEs are`;
      const convolutions = 'models with many convolutions lose more by quantizing than others do';
      const notes = [
        ...sourceNotes(sources),
        ...(original ? [original.note] : []),
        noteOf('diffusionReaders', { architecture: architecture.name }, readers),
        ...(left.length > 0 ? [noteOf('leftOut', { tensors: left }, others)] : []),
        ...(architecture.reshapes ? [noteOf('manyConvolutions', {}, convolutions)] : []),
      ];
      return { ...plan, notes: [...notes, ...plan.notes] };
    },
  };
}

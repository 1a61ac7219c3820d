/**
 * Converts checkpoints of diffusion models to GGUF in one step; the tools of ComfyUI-GGUF take three.
 * Reference: github.com/city96/ComfyUI-GGUF, tools/convert.py at 4dfc025 (branch auto_convert), tools/lcpp.patch and
 * tools/fix_5d_tensors.py at 795e451.
 */

import { rangeError, ScalepointError } from '../../core/errors.js';
import { type Note, noteOf } from '../../core/note.js';
import { type Hint, mention } from '../../core/option-problem.js';
import { elementsOf } from '../../formats/codecs/elements.js';
import type { LowRankForm } from '../../formats/codecs/low-rank.js';
import { quoted } from '../../formats/files/bytes.js';
import type { FilePlan, LogicalTensor, OpenModel, PartsOf, SourceTensor } from '../../formats/format.js';
import { edited } from '../../formats/gguf/edits.js';
import { checkScaled } from '../../formats/gguf/nvfp4.js';
import type { GgufChoices } from '../../formats/gguf/options.js';
import { type GgufKey, pairOf } from '../../formats/gguf/pairs.js';
import { fileTypeOf } from '../../formats/gguf/plan.js';
import { planResult, type ResultTensor } from '../../formats/gguf/result.js';
import { type FileType, fileTypes, isCastType, type TargetType } from '../../formats/gguf/targets.js';
import { ruleFor } from '../../formats/options.js';
import { type Reason, rankReason, reasons } from '../../formats/reason.js';
import type { originalModel } from '../../formats/safetensors/diffusers.js';
import { type Architecture, staysFloat } from '../../formats/safetensors/diffusion.js';
import type {
  codedLayoutOf,
  lowRankLayout,
  quantizedLayoutOf,
  sourceNotes,
} from '../../formats/safetensors/layouts/registry.js';
import type { tensorsAsFloats } from '../../formats/safetensors/stored-model.js';
import { plainTensor } from '../../formats/tensors.js';
import type { Converted } from '../converter.js';
import { gathered, plainType } from '../gathered.js';
import { type Named, withoutPrefix } from './detect.js';
import { DiffusionMixture, fitting } from './mixture.js';
import { architectureReason, parameterReason } from './reasons.js';

/** Functions that are loaded already, and load code on demand. Bundlers would cut an app that imports them from here into more files. */
export interface DiffusionTools {
  readonly codedLayoutOf: typeof codedLayoutOf;
  readonly quantizedLayoutOf: typeof quantizedLayoutOf;
  readonly adapted: typeof lowRankLayout;
  readonly notesOn: typeof sourceNotes;
  readonly asFloats: typeof tensorsAsFloats;
  /** Reads models in the layout of diffusers. */
  readonly original?: typeof originalModel | undefined;
}

// --------------------------------------------------------------------------------------------------------------------- the checks

/** ggml's own limit is 63; the programs that read these files have raised theirs. */
const mostNameBytes = 127;

/** Names of the scales of quantized weights. The codes cannot be decoded without them. */
const scaleName = /(^|\.)scaled_fp8$|\.(scale_weight|scale_input|weight_scale|input_scale|comfy_quant)$/;

const isQuantized = ({ tensors }: OpenModel) => tensors.some(({ name }) => scaleName.test(name));

function unsupported({ name: tensor, byteOffset }: SourceTensor, message: string, hint?: Hint): never {
  throw new ScalepointError('UNSUPPORTED_DTYPE', `tensor ${quoted(tensor)}: ${message}`, { tensor, byteOffset, hint });
}

const firstPart = ({ parts: [part] }: LogicalTensor) => (part as LogicalTensor['parts'][number]).tensor;

/** Rejects tensors that readers would fail to load or misread. @throws ScalepointError */
function check(named: readonly Named<LogicalTensor>[]): void {
  const scale = named.find(({ name }) => scaleName.test(name));
  if (scale !== undefined) {
    unsupported(
      firstPart(scale.tensor),
      'the weights are quantized already, as float8 with scales, in a layout that is not known here; start from the checkpoint in ' +
        'BF16 or F16, or from float8 without scales',
    );
  }
  for (const { name, tensor } of named) {
    const bytes = new TextEncoder().encode(name).length;
    if (bytes <= mostNameBytes) continue;
    throw new ScalepointError(
      'BAD_FILE',
      `tensor ${quoted(tensor.name)}: the name has ${bytes} bytes, more than the ${mostNameBytes} that readers allow`,
      { tensor: tensor.name },
    );
  }
}

/** Rejects codes unless they are to be quantized again. @throws ScalepointError `UNSUPPORTED_DTYPE` */
function checkRequantize(
  items: readonly Item[],
  { requantize = false }: GgufChoices,
  { quantizedLayoutOf }: DiffusionTools,
): void {
  const coded = items.find(({ source }) => quantizedLayoutOf(source.form) !== undefined);
  if (coded === undefined || requantize) return;
  unsupported(firstPart(coded.source), `the weights are quantized already, as ${coded.source.type} with scales`, {
    kind: 'try',
    option: mention('requantize', true),
    effect: 'starts from the values of the codes, which adds to their errors',
  });
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

/** Shape in the file. Small convolutions are reshaped because blocks of 256 do not divide their rows. */
function shapeOf({ reshapes = false }: Architecture, shape: readonly number[]): readonly number[] {
  const n = elementsOf(shape);
  const isShort = shape.length > 1 && n >= leastReshaped && n % reshapedRow === 0;
  return reshapes && isShort && (shape.at(-1) ?? 1) % reshapedRow !== 0 ? [n / reshapedRow, reshapedRow] : shape;
}

/** True for names of bare parameters. Programs read their bytes directly, so they stay floats. */
const isRaw = (name: string) => !/\.(weight|bias)$/.test(name);

/** Type of a tensor that is not quantized. F32 becomes F16, unless the target is F32. */
function plainTypeOf({ precise = [] }: Architecture, item: Item, keepsF32: boolean): string {
  const { name, stored, dtype, isCoded, source } = item;
  const type = isCoded ? dtype : plainType(firstPart(source));
  if (stored.length > mostDimensions) return 'F32';
  if (dtype === 'F32' || dtype === 'F64' || dtype === 'BF16') {
    if (stored.length <= 1 || elementsOf(stored) <= fewElements || isRaw(name)) return 'F32';
    if (precise.some((part) => name.includes(part))) return 'F32';
  }
  return type === 'F32' && !keepsF32 ? 'F16' : type;
}

/** Reason not to quantize a tensor; undefined if it is quantized. */
function keptReason(architecture: Architecture, { name, shape, stored }: Item): Reason | undefined {
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

/** File type of a target. Copies do not occur here: copies of safetensors are safetensors. */
function fileTypeFor({ to }: GgufChoices, { name }: Architecture): FileType {
  if (to === 'copy') throw new Error('a copy is not a conversion');
  const fileType = fileTypeOf(to);
  checkScaled(fileType, name);
  return fileType;
}

/** Chooses the type and shape of each tensor. */
function choicesOf(
  architecture: Architecture,
  items: readonly Item[],
  fileType: FileType,
  choices: GgufChoices,
): ResultTensor[] {
  const { base } = fileTypes[fileType];
  const { pure = false, rules = [] } = choices;
  const mixture = new DiffusionMixture(architecture.name, fileType);
  return items.map((item, index): ResultTensor => {
    const { name, shape, source } = item;
    const from = { source, index };
    const plain = plainTypeOf(architecture, item, fileType === 'F32');
    const reason = keptReason(architecture, item);
    if (reason !== undefined) return { name, shape, from, type: plain, kept: reason };
    const mixed = pure || isCastType(base) ? base : mixture.typeOf(name);
    const rule = ruleFor(rules, name);
    if (rule?.keep === true) return { name, shape, from, type: plain, kept: reasons.rule };
    const type = fitting(rule?.to === undefined ? mixed : (rule.to as TargetType), shape);
    return { name, shape, from, type, ...(type === item.dtype ? { kept: reasons.sameType } : {}) };
  });
}

/** Sorts tensors into writing order: file order, except that a tensor of more than 4 dimensions follows its bias, or comes last. */
function inOrder(results: readonly ResultTensor[]): ResultTensor[] {
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

/** Keys of the metadata. */
function keysOf(architecture: Architecture, items: readonly Item[], fileType: FileType): GgufKey[] {
  const reshaped = items.filter(({ shape, stored }) => shape !== stored);
  return [
    { name: 'general.architecture', type: 'string', value: architecture.name },
    { name: 'general.quantization_version', type: 'u32', value: 2 },
    { name: 'general.file_type', type: 'u32', value: fileTypes[fileType].id },
    ...reshaped.map(({ name, stored }): GgufKey => {
      return { name: `comfy.gguf.orig_shape.${name}`, type: 'i32[]', value: stored };
    }),
  ];
}

// ------------------------------------------------------------------------------------------------------------------------ the whole

/** The note about the programs that read the file. */
function readersNote(architecture: string): Note {
  const text =
    `the file follows the tools of ComfyUI-GGUF for ${architecture}; ComfyUI with that extension and stable-diffusion.cpp read it, and ` +
    'llama.cpp does not';
  return noteOf('diffusionReaders', { architecture }, text);
}

/** The note about tensors of other models in the checkpoint. */
function droppedNote(tensors: readonly string[]): Note {
  const count = tensors.length === 1 ? '1 tensor is' : `${tensors.length} tensors are`;
  return noteOf('leftOut', { tensors }, `${count} left out, as those of text encoders and VAEs are`);
}

function notesOf({ name, reshapes = false }: Architecture, dropped: readonly string[]): Note[] {
  const convolutions = 'models with many convolutions lose more by quantizing than others do';
  return [
    readersNote(name),
    ...(dropped.length > 0 ? [droppedNote(dropped)] : []),
    ...(reshapes ? [noteOf('manyConvolutions', {}, convolutions)] : []),
  ];
}

/** A tensor of the checkpoint with its shape in the result. Codes have the type of the floats that they are restored to. */
function itemOf(
  architecture: Architecture,
  { name, tensor }: Named<LogicalTensor>,
  { codedLayoutOf, adapted }: DiffusionTools,
): Item {
  const shape = shapeOf(architecture, tensor.shape);
  const layout = codedLayoutOf(tensor.form);
  const first = firstPart(tensor);
  if (layout === undefined) {
    plainType(first);
    const source = tensor.gathered === undefined ? gathered({ name, shape, stored: [first] }) : tensor;
    return { name, shape, stored: tensor.shape, dtype: first.dtype, isCoded: false, source };
  }
  const isReshaped = shape !== tensor.shape;
  if (isReshaped && layout !== adapted) {
    unsupported(first, `it is quantized already, and ${architecture.name} needs other rows; start from floats`);
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
      form: isReshaped ? ({ ...tensor.form, rowLength: reshapedRow } as LowRankForm) : tensor.form,
      isRenamed: true,
    },
  };
}

/**
 * Converts a checkpoint to GGUF.
 * @param architecture the detected one
 * @throws ScalepointError `UNSUPPORTED_DTYPE`, `BAD_FILE`
 */
export async function convertDiffusion(
  model: OpenModel,
  architecture: Architecture,
  tools: DiffusionTools,
): Promise<Converted> {
  const { dropped = [] } = architecture;
  const isRestored = isQuantized(model) || model.adapters !== undefined;
  const stored = isRestored ? await tools.asFloats(model, true) : model.tensors.map(plainTensor);
  const original = tools.original?.(stored);
  const all = original?.tensors ?? stored;
  const named = withoutPrefix(all).filter(({ name }) => !dropped.some((part) => name.includes(part)));
  check(named);
  const items = named.map((one) => itemOf(architecture, one, tools));
  const droppedNames = () => {
    const taken = new Set(named.map(({ tensor }) => tensor.name));
    return all.flatMap(({ name }) => (taken.has(name) ? [] : [name]));
  };
  return {
    architecture: architecture.name,
    tensors: items.map(({ source }) => source),
    plan(choices, partsOf: PartsOf): FilePlan {
      const gguf = choices as GgufChoices;
      for (const name of ['importance', 'pruneLayers', 'keepSplit'] as const) {
        if (gguf[name] !== undefined) throw rangeError(name, { kind: 'onlyFor', files: 'language models' }, gguf[name]);
      }
      checkRequantize(items, gguf, tools);
      const fileType = fileTypeFor(gguf, architecture);
      const results = inOrder(choicesOf(architecture, items, fileType, gguf));
      const pairs = keysOf(architecture, items, fileType).map(pairOf);
      const plan = planResult(edited(pairs, { pairs }, gguf.metadata), results, partsOf, {
        choices: gguf,
        keepDimensions: true,
      });
      const sources = items.map(({ source }) => source);
      const before = [...tools.notesOn(sources), ...(original ? [original.note] : [])];
      return { ...plan, notes: [...before, ...notesOf(architecture, droppedNames()), ...plan.notes] };
    },
  };
}

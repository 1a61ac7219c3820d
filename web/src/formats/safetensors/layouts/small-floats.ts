/**
 * Small floats with scales. NVFP4, MXFP4 and MXFP8 are written as compressed-tensors stores them, which vLLM loads. These, NVFP4 of ModelOpt,
 * MXFP4 of gpt-oss, and float8 or int8 with a scale for the whole tensor or for each block of it, as in DeepSeek's checkpoints, are read.
 * Reference: github.com/vllm-project/compressed-tensors at ac8e2ba8; github.com/NVIDIA/TensorRT-Model-Optimizer at 0d7d92d, modelopt/torch/export;
 * github.com/deepseek-ai/DeepSeek-V3 at dca08f2, inference/fp8_cast_bf16.py.
 */

import type { CastType } from '../../codecs/cast.js';
import {
  canWeighMicroscaled,
  feedsMicroscaled,
  type MicroscaledForm,
  type MicroscaledKind,
  microscaled,
  microscaledBlock,
} from '../../codecs/microscaled.js';
import { type ScaledForm, scaledElements } from '../../codecs/scaled-elements.js';
import { grouped } from '../../files/bytes.js';
import type { LogicalTensor, PlannedTensor, SourceTensor } from '../../format.js';
import { rankReason } from '../../reason.js';
import { elementCount } from '../../tensors.js';
import { cutUnitsNotes, joinedMatrix, linearOnly } from '../keep.js';
import { describe, quantizationArgs, vllmReader } from './compressed-tensors.js';
import {
  blockOptions,
  type CodedLayout,
  type CodedTarget,
  castTypes,
  type Fields,
  type FoundWeight,
  fedBlockOptions,
  formSharing,
  isFields,
  partsByRole,
  type StoredModel,
} from './layout.js';

// ------------------------------------------------------------------------------------------------------------------------ reading

/** Facts that config.json tells. */
interface ConfigFacts {
  /** Type of the floats before quantization. @defaultValue bfloat16 */
  readonly floats: CastType;
  /** Rows and columns of blocks. @defaultValue those of all known checkpoints */
  readonly block: readonly [rows: number, columns: number];
}

function factsOfConfig(config: Fields = {}): ConfigFacts {
  const { quantization_config: quantization, text_config: text } = config;
  const types = [config, isFields(text) ? text : {}].map(({ torch_dtype: torch, dtype }) => torch ?? dtype);
  const floats = types.map((type) => castTypes.get(typeof type === 'string' ? type.replace(/^torch\./, '') : type));
  const { config_groups: groups, weight_block_size: stated }: Fields = isFields(quantization) ? quantization : {};
  const structures = Object.values(isFields(groups) ? groups : {}).map(
    (group) => isFields(group) && isFields(group.weights) && group.weights.block_structure,
  );
  const isBlock = (block: unknown): block is [number, number] =>
    Array.isArray(block) && block.length === 2 && block.every((n) => Number.isSafeInteger(n) && n > 0 && n <= 2 ** 16);
  return {
    floats: floats.find((type) => type !== undefined) ?? 'BF16',
    block: [stated, ...structures].find(isBlock) ?? [128, 128],
  };
}

/** A weight, if the stored parts are exactly those that its form has. */
function weightOfForm(
  name: string,
  shape: readonly number[],
  form: MicroscaledForm,
  stored: Readonly<Record<string, SourceTensor | undefined>>,
): LogicalTensor | undefined {
  const parts: { role: string; tensor: SourceTensor }[] = [];
  for (const part of microscaled.parts(shape, form)) {
    const tensor = stored[part.role];
    if (tensor === undefined || tensor.bytes !== part.bytes) return undefined;
    // The scale of a matrix has no dimension or one of 1. Exponents are stored under the name of their type, too.
    const isSame = part.role === 'globalScale' || tensor.shape.join() === part.shape.join();
    const isExponent = part.dtype === 'U8' && part.role === 'scale' && tensor.dtype === 'F8_E8M0';
    if (!isSame || !(tensor.dtype === part.dtype || isExponent)) return undefined;
    parts.push({ role: part.role, tensor });
  }
  return { name, shape, type: microscaled.label(form), form, parts, isRenamed: parts[0]?.tensor.name !== name };
}

/** Microscaled codes whose data is `data`. */
function microscaledWeight(model: StoredModel, data: SourceTensor, floats: CastType): LogicalTensor | undefined {
  const [rows = 0, bytes = 0, blocks = 0, blockBytes, ...others] = data.shape;
  const [, name = data.name, end] = /^(.*)_(packed|blocks)$/s.exec(data.name) ?? [];
  const form = (kind: MicroscaledKind, tool: MicroscaledForm['tool']): MicroscaledForm => {
    return { codec: 'microscaled', kind, tool, floats };
  };
  if (end === 'blocks') {
    // gpt-oss has matrices of several experts, in blocks of 16 bytes.
    const scale = model.tensor(`${name}_scales`);
    const fits = data.dtype === 'U8' && scale?.dtype === 'U8' && blockBytes === 16 && others.length === 0;
    const size = [rows, bytes, blocks];
    if (!fits || rows * bytes * blocks === 0 || scale.shape.join() !== size.join()) return undefined;
    const mxfp4 = form('mxfp4', 'gpt-oss');
    const shape = [rows, bytes, 32 * blocks];
    const parts = partsByRole({ data, scale });
    return { name, shape, type: microscaled.label(mxfp4), form: mxfp4, parts, isRenamed: true };
  }
  if (data.shape.length > 2 || rows * bytes === 0) return undefined;
  const scale = model.tensor(`${name}_scale`);
  if (data.dtype === 'F8_E4M3' && end === undefined)
    return weightOfForm(name, [rows, bytes], form('mxfp8', 'compressed-tensors'), { data, scale });
  if (data.dtype !== 'U8') return undefined;
  const shape = [rows, 2 * bytes];
  if (end === undefined) {
    const globalScale = model.tensor(`${name}_scale_2`);
    return weightOfForm(name, shape, form('nvfp4', 'modelopt'), { data, scale, globalScale });
  }
  const globalScale = model.tensor(`${name}_global_scale`);
  const kind = globalScale === undefined ? 'mxfp4' : 'nvfp4';
  return weightOfForm(name, shape, form(kind, 'compressed-tensors'), { data, scale, globalScale });
}

const elementTypes: readonly string[] = ['F8_E4M3', 'F8_E5M2', 'I8'];

/** Elements with a scale for all of them, or for each block. */
function scaledWeight(
  model: StoredModel,
  data: SourceTensor,
  { floats, block }: ConfigFacts,
): LogicalTensor | undefined {
  const { name, shape, dtype } = data;
  const scale = model.tensor(`${name}_scale_inv`) ?? model.tensor(`${name}_scale`);
  if (scale === undefined || !/^(F32|F16|BF16)$/.test(scale.dtype)) return undefined;
  if (shape.length === 0 || shape.includes(0) || model.tensor(`${name}_g_idx`) !== undefined) return undefined;
  // The whole tensor may have a zero point.
  const zeroPoint = model.tensor(`${name}_zero_point`);
  const isWhole = elementCount(scale.shape) === 1;
  const fits = isWhole && dtype === 'I8' && zeroPoint?.dtype === 'I8' && zeroPoint.bytes === 1;
  if (zeroPoint !== undefined && !fits) return undefined;
  const [blockRows, blockColumns] = isWhole ? [] : block;
  const form: ScaledForm = {
    codec: 'scaled-elements',
    type: dtype as ScaledForm['type'],
    scale: scale.dtype as CastType,
    blockRows,
    blockColumns,
    floats,
    ...(zeroPoint !== undefined && { hasZeroPoint: true }),
  };
  const [, expected] = scaledElements.parts(shape, form);
  if (!isWhole && (shape.length !== 2 || scale.shape.join() !== expected?.shape.join())) return undefined;
  return { name, shape, type: dtype, form, parts: partsByRole({ data, scale, zeroPoint }) };
}

// ------------------------------------------------------------------------------------------------------------------------ writing

const smallFloatsTarget = (codes: MicroscaledKind, about: string) =>
  ({
    about,
    kind: 'microscaled',
    codes,
    options: codes === 'mxfp8' ? blockOptions : fedBlockOptions,
    mixedWith: ['bfloat16'],
  }) as const satisfies CodedTarget;

const targets = {
  nvfp4: smallFloatsTarget('nvfp4', '4 bits, small floats in blocks of 16, for NVIDIA GPUs'),
  mxfp4: smallFloatsTarget('mxfp4', '4 bits, small floats in blocks of 32'),
  mxfp8: smallFloatsTarget('mxfp8', '8 bits, small floats in blocks of 32'),
};

/** Facts of schemes of compressed-tensors. */
const schemes: Readonly<Record<MicroscaledKind, readonly [format: string, strategy: string, scale: string]>> = {
  nvfp4: ['nvfp4-pack-quantized', 'tensor_group', 'torch.float8_e4m3fn'],
  mxfp4: ['mxfp4-pack-quantized', 'group', 'torch.uint8'],
  mxfp8: ['mxfp8-quantized', 'group', 'torch.uint8'],
};

export const smallFloatsLayout = {
  label: 'small floats with scales',
  /** The tool that made a weight. */
  labelOf(form) {
    const { codec, type, tool } = form as Partial<ScaledForm & MicroscaledForm>;
    if (codec === 'scaled-elements') return `${type === 'I8' ? 'int8' : 'float8'} with scales`;
    return tool === 'modelopt' ? 'ModelOpt' : (tool ?? '');
  },
  codecs: ['microscaled', 'scaled-elements'],
  quantMethods: ['compressed-tensors', 'fp8', 'modelopt', 'mxfp4'],
  floats: (form) => (form as MicroscaledForm | ScaledForm).floats,
  targets,
  joinsLayers: true,
  splitsExperts: true,
  readers: () => [vllmReader],

  async find(model) {
    const weights: FoundWeight[] = [];
    let facts: ConfigFacts | undefined;
    for (const data of model.tensors) {
      const isElements = elementTypes.includes(data.dtype);
      if (data.dtype !== 'U8' && !isElements) continue;
      const isBlocks = data.name.endsWith('_blocks');
      const base = data.name.replace(/_packed$/, '');
      const module = base.slice(0, base.lastIndexOf('.') + 1);
      const hasAny = (...names: readonly string[]) => names.some((name) => model.tensor(name) !== undefined);
      if (!isBlocks && !hasAny(`${base}_scale`, `${base}_scale_inv`)) continue;
      // Leave layers that ComfyUI marks, and those whose inputs are scaled, too, to layouts that know them.
      if (!isBlocks && hasAny(`${module}comfy_quant`, `${module}pre_quant_scale`)) continue;
      facts ??= factsOfConfig(await model.json('config.json'));
      const tensor =
        microscaledWeight(model, data, facts.floats) ??
        (isElements && !isBlocks ? scaledWeight(model, data, facts) : undefined);
      if (tensor === undefined) continue;
      // Scales of the layer's inputs describe how it runs, not the weight.
      const inputs = ['input_scale', 'input_global_scale', 'input_zero_point'].map((part) => module + part);
      const beside = [`${base}_shape`, ...inputs].filter((name) => !isBlocks && hasAny(name));
      weights.push({ tensor, beside });
    }
    return { weights };
  },

  plan({ tensors, choices, isModel }) {
    const share = formSharing<MicroscaledForm>();
    return {
      ...(isModel ? { notLinear: linearOnly(tensors) } : {}),
      obstacle({ source: { shape }, codes }) {
        const [, dimension = 0] = shape;
        if (shape.length !== 2) return rankReason(shape.length);
        const by = microscaledBlock(codes as MicroscaledKind);
        return dimension % by === 0 ? undefined : { kind: 'notDivisible', dimension, by };
      },
      formOf({ codes, dtype }) {
        return share({
          codec: 'microscaled',
          kind: codes as MicroscaledKind,
          tool: 'compressed-tensors',
          floats: dtype === 'F64' ? 'F32' : (dtype as CastType),
          ...(choices.range === 'mse' && { search: true }),
        });
      },
      weighing: {
        takes: canWeighMicroscaled,
        feeds: (form) => feedsMicroscaled(form as MicroscaledForm),
        add: (form, importance): MicroscaledForm => ({ ...(form as MicroscaledForm), search: true, importance }),
      },
      /** Weights of joined layers get their ranges from each other. */
      finish(planned) {
        const matrixOf = ({ source, form }: PlannedTensor) =>
          (form as MicroscaledForm).kind === 'nvfp4' ? joinedMatrix(source.name) : undefined;
        const matrices = grouped(planned, matrixOf);
        return planned.map((tensor) => {
          const matrix = matrixOf(tensor);
          const all = matrix === undefined ? [] : (matrices.get(matrix) ?? []);
          const others = all.flatMap((other) => (other === tensor ? [] : [other.source]));
          return others.length === 0 ? tensor : { ...tensor, sharesRangeWith: others };
        });
      },
      sidecars(planned) {
        const value = describe(planned, { version: '0.15.0' }, (form) => {
          if (form.codec !== 'microscaled') return undefined;
          const { kind } = form as MicroscaledForm;
          const [format, strategy, scale_dtype] = schemes[kind];
          const args = {
            num_bits: kind === 'mxfp8' ? 8 : 4,
            type: 'float',
            symmetric: true,
            strategy,
            group_size: microscaledBlock(kind),
            dynamic: false,
          };
          return { key: kind, format, weights: { ...quantizationArgs(args, 'minmax'), scale_dtype } };
        });
        return value === undefined ? [] : [{ option: 'config', value }];
      },
      notes: cutUnitsNotes,
    };
  },
} satisfies CodedLayout;

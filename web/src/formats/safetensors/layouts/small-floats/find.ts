/**
 * Finds weights of small floats with scales: NVFP4, MXFP4 and MXFP8 of compressed-tensors, NVFP4 of ModelOpt, and float8 or int8 with a
 * scale for the whole tensor or for each block of it, as in DeepSeek's checkpoints.
 * Reference: github.com/vllm-project/compressed-tensors at ac8e2ba8; github.com/NVIDIA/TensorRT-Model-Optimizer at 0d7d92d, modelopt/torch/export;
 * github.com/deepseek-ai/DeepSeek-V3 at dca08f2, inference/fp8_cast_bf16.py.
 */
import type { CastType } from '../../../codecs/cast.js';
import { type MicroscaledForm, type MicroscaledKind, microscaled } from '../../../codecs/microscaled.js';
import { type ScaledForm, scaledElements } from '../../../codecs/scaled-elements.js';
import type { LogicalTensor, SourceTensor } from '../../../format.js';
import { elementCount } from '../../../tensors.js';
import { isFields } from '../../stored-model.js';
import type { Fields, FoundWeight, FoundWeights, StoredModel } from '../layout.js';

/** Facts that config.json tells. */
interface ConfigFacts {
  /** Type of the floats before quantization. */
  readonly floats: CastType;
  /** Rows and columns of blocks. */
  readonly block: readonly [rows: number, columns: number];
}

const castTypes: Readonly<Record<string, CastType>> = { float32: 'F32', float16: 'F16', bfloat16: 'BF16' };

/** Blocks of all known checkpoints. */
const usualBlock = [128, 128] as const;

/** The type that config.json gives the floats; bfloat16 without one. */
function floatsIn(config: Fields | undefined): CastType {
  const text = config?.text_config;
  for (const keys of [config, isFields(text) ? text : undefined]) {
    const type = keys?.torch_dtype ?? keys?.dtype;
    const known = typeof type === 'string' ? castTypes[type.replace(/^torch\./, '')] : undefined;
    if (known !== undefined) return known;
  }
  return 'BF16';
}

/** The size of blocks that a quantization_config states. */
function blockIn(config: Fields | undefined): ConfigFacts['block'] {
  const quantization = config?.quantization_config;
  if (!isFields(quantization)) return usualBlock;
  const groups = isFields(quantization.config_groups) ? Object.values(quantization.config_groups) : [];
  const structures = groups.map((group) => isFields(group) && isFields(group.weights) && group.weights.block_structure);
  for (const block of [quantization.weight_block_size, ...structures]) {
    const [rows, columns, ...others] = Array.isArray(block) ? block : [];
    const fits = (n: unknown): n is number => Number.isSafeInteger(n) && (n as number) > 0 && (n as number) <= 2 ** 16;
    if (fits(rows) && fits(columns) && others.length === 0) return [rows, columns];
  }
  return usualBlock;
}

const blocksEnd = '_blocks';

const scaleTypes: readonly string[] = ['F32', 'F16', 'BF16'];

/** A weight, if the stored parts are exactly those that its form has. */
function exactly(
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
    const dtypes = part.dtype === 'U8' && part.role === 'scale' ? ['U8', 'F8_E8M0'] : [part.dtype];
    if (!isSame || !dtypes.includes(tensor.dtype)) return undefined;
    parts.push({ role: part.role, tensor });
  }
  return { name, shape, type: microscaled.label(form), form, parts, isRenamed: parts[0]?.tensor.name !== name };
}

/** MXFP4 of gpt-oss: matrices of several experts, in blocks of 16 bytes. */
function expertsOfGptOss(model: StoredModel, data: SourceTensor, floats: CastType): LogicalTensor | undefined {
  const [experts = 0, rows = 0, blocks = 0, bytes, ...others] = data.shape;
  const name = data.name.slice(0, -blocksEnd.length);
  const scale = model.tensor(`${name}_scales`);
  if (data.dtype !== 'U8' || scale?.dtype !== 'U8' || bytes !== 16 || others.length > 0) return undefined;
  const size = experts * rows * blocks;
  if (size === 0 || scale.shape.join() !== [experts, rows, blocks].join()) return undefined;
  const form: MicroscaledForm = { codec: 'microscaled', kind: 'mxfp4', tool: 'gpt-oss', floats };
  const parts = [
    { role: 'data', tensor: data },
    { role: 'scale', tensor: scale },
  ];
  return { name, shape: [experts, rows, 32 * blocks], type: microscaled.label(form), form, parts, isRenamed: true };
}

/** Microscaled codes whose data is `data`. */
function microscaledWeight(model: StoredModel, data: SourceTensor, floats: CastType): LogicalTensor | undefined {
  const [rows = 0, bytes = 0, ...others] = data.shape;
  if (others.length > 0 || rows * bytes === 0) return undefined;
  const isPacked = data.name.endsWith('_packed');
  const name = isPacked ? data.name.slice(0, -'_packed'.length) : data.name;
  const scale = model.tensor(`${name}_scale`);
  const form = (kind: MicroscaledKind, tool: MicroscaledForm['tool']): MicroscaledForm => {
    return { codec: 'microscaled', kind, tool, floats };
  };
  if (data.dtype === 'F8_E4M3' && !isPacked) {
    return exactly(name, [rows, bytes], form('mxfp8', 'compressed-tensors'), { data, scale });
  }
  if (data.dtype !== 'U8') return undefined;
  const shape = [rows, 2 * bytes];
  if (!isPacked) {
    return exactly(name, shape, form('nvfp4', 'modelopt'), {
      data,
      scale,
      globalScale: model.tensor(`${name}_scale_2`),
    });
  }
  const globalScale = model.tensor(`${name}_global_scale`);
  const kind = globalScale === undefined ? 'mxfp4' : 'nvfp4';
  return exactly(name, shape, form(kind, 'compressed-tensors'), { data, scale, globalScale });
}

const elementTypes: readonly string[] = ['F8_E4M3', 'F8_E5M2', 'I8'];

/** Elements with a scale for all of them, or for each block. */
function scaledWeight(
  model: StoredModel,
  data: SourceTensor,
  { floats, block }: ConfigFacts,
): LogicalTensor | undefined {
  const { name, shape, dtype } = data;
  const inverse = model.tensor(`${name}_scale_inv`);
  const scale = inverse ?? model.tensor(`${name}_scale`);
  if (scale === undefined || !scaleTypes.includes(scale.dtype) || shape.length === 0 || shape.includes(0))
    return undefined;
  if (model.tensor(`${name}_g_idx`) !== undefined) return undefined;
  // The whole tensor may have a zero point.
  const zeroPoint = model.tensor(`${name}_zero_point`);
  const isZeroPoint = zeroPoint === undefined || (dtype === 'I8' && zeroPoint.dtype === 'I8' && zeroPoint.bytes === 1);
  const isWhole = elementCount(scale.shape) === 1;
  if (!isZeroPoint || (zeroPoint !== undefined && !isWhole)) return undefined;
  const hasZeroPoint = zeroPoint === undefined ? {} : { hasZeroPoint: true };
  const form = (blockRows?: number, blockColumns?: number): ScaledForm => {
    const type = dtype as ScaledForm['type'];
    return {
      codec: 'scaled-elements',
      type,
      scale: scale.dtype as CastType,
      blockRows,
      blockColumns,
      floats,
      ...hasZeroPoint,
    };
  };
  const its = isWhole ? form() : form(...block);
  const [, expected] = scaledElements.parts(shape, its);
  if (!isWhole && (shape.length !== 2 || scale.shape.join() !== expected?.shape.join())) return undefined;
  return {
    name,
    shape,
    type: dtype,
    form: its,
    parts: [
      { role: 'data', tensor: data },
      { role: 'scale', tensor: scale },
      ...(zeroPoint === undefined ? [] : [{ role: 'zeroPoint', tensor: zeroPoint }]),
    ],
  };
}

/** Finds weights of small floats with scales. */
export async function findSmallFloats(model: StoredModel): Promise<FoundWeights> {
  const weights: FoundWeight[] = [];
  let facts: ConfigFacts | undefined;
  for (const data of model.tensors) {
    const base = data.name.endsWith('_packed') ? data.name.slice(0, -'_packed'.length) : data.name;
    if (data.dtype !== 'U8' && !elementTypes.includes(data.dtype)) continue;
    if (data.name.endsWith(blocksEnd)) {
      const tensor = expertsOfGptOss(model, data, floatsIn(await model.json('config.json')));
      if (tensor !== undefined) weights.push({ tensor });
      continue;
    }
    if (model.tensor(`${base}_scale`) === undefined && model.tensor(`${base}_scale_inv`) === undefined) continue;
    const module = base.slice(0, base.lastIndexOf('.') + 1);
    // Leave layers that ComfyUI marks, and those whose inputs are scaled, too, to layouts that know them.
    if (['comfy_quant', 'pre_quant_scale'].some((last) => model.tensor(module + last) !== undefined)) continue;
    if (facts === undefined) {
      const config = await model.json('config.json');
      facts = { floats: floatsIn(config), block: blockIn(config) };
    }
    const tensor =
      microscaledWeight(model, data, facts.floats) ??
      (elementTypes.includes(data.dtype) ? scaledWeight(model, data, facts) : undefined);
    if (tensor === undefined) continue;
    // Scales of the layer's inputs describe how it runs, not the weight.
    const beside = [
      `${base}_shape`,
      `${module}input_scale`,
      `${module}input_global_scale`,
      `${module}input_zero_point`,
    ];
    weights.push({ tensor, beside: beside.filter((name) => model.tensor(name) !== undefined) });
  }
  return { weights };
}

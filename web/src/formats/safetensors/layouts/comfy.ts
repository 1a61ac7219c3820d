/**
 * The layout of ComfyUI: codes with a marker for each layer, in a file with the names that its loaders know. Weights are found by the markers,
 * by the metadata of the file, and float8 by the marker of older files.
 * Reference: github.com/Comfy-Org/ComfyUI at 0271a469, comfy/quant_ops.py, comfy/ops.py, and comfy/utils.py, convert_old_quants;
 * Comfy-Org/comfy-kitchen at 0935c34b, comfy_kitchen/backends/eager/quantization.py, dequantize_int8_convrot_weight.
 */

import { show } from '../../../core/show.js';
import { tileElements } from '../../codecs/codec.js';
import { type ComfyForm, type ComfyFormat, comfyGroup, comfyLabel, mostRotated } from '../../codecs/comfy.js';
import type { SourceTensor } from '../../format.js';
import { elementCount } from '../../tensors.js';
import {
  type CodedLayout,
  type CodedTarget,
  type Fields,
  type FoundWeight,
  fieldsInJson,
  floatOptions,
  isFields,
  partsByRole,
  type StoredModel,
} from './layout.js';

/** Largest marker that is read. */
const mostMarkerBytes = 4096;

/** A layer with codes. */
interface Layer {
  readonly name: string;
  /** Its settings; undefined if they cannot be read. */
  readonly settings: Fields | undefined;
  /** The marker, if it is a tensor. */
  readonly marker?: string;
  /** True for the names of older files. */
  readonly isOld?: boolean;
}

/** Layers with codes by name: those that the metadata list, or else those of older files, and those with a marker. */
async function comfyLayers(model: StoredModel): Promise<ReadonlyMap<string, Layer>> {
  const layers = new Map<string, Layer>();
  const key = '_quantization_metadata';
  const text = Object.hasOwn(model.metadata, key) ? model.metadata[key] : undefined;
  const listed = typeof text === 'string' ? fieldsInJson(text)?.layers : undefined;
  for (const [name, settings] of isFields(listed) ? Object.entries(listed) : [])
    layers.set(name, { name, settings: isFields(settings) ? settings : undefined });
  // As in ComfyUI, the marker of older files counts only without metadata. All of their layers are float8.
  const old = model.tensors.find(({ name }) => /(^|\.)scaled_fp8$/.test(name));
  if (layers.size === 0 && old !== undefined) {
    for (const { name: scale } of model.tensors) {
      const name = /^(.*)\.scale_weight$/s.exec(scale)?.[1];
      if (name !== undefined)
        layers.set(name, { name, settings: { format: 'float8_e4m3fn' }, marker: old.name, isOld: true });
    }
  }
  for (const tensor of model.tensors) {
    const name = /^(.*)\.comfy_quant$/s.exec(tensor.name)?.[1];
    if (name === undefined || tensor.dtype !== 'U8') continue;
    const settings = tensor.bytes > mostMarkerBytes ? undefined : fieldsInJson(await model.read(tensor));
    layers.set(name, { name, settings, marker: tensor.name });
  }
  return layers;
}

const bracketed = (shape: readonly number[]) => `[${shape.join(', ')}]`;

/** Facts of each format: its form, and types of the codes and of their scales. */
const formats: Readonly<Record<ComfyFormat, { form: ComfyForm; data: string; scales: readonly string[] }>> = {
  float8_e4m3fn: { form: { codec: 'comfy', format: 'float8_e4m3fn' }, data: 'F8_E4M3', scales: ['F32'] },
  float8_e5m2: { form: { codec: 'comfy', format: 'float8_e5m2' }, data: 'F8_E5M2', scales: ['F32'] },
  int8_tensorwise: { form: { codec: 'comfy', format: 'int8_tensorwise' }, data: 'I8', scales: ['F32'] },
  mxfp8: { form: { codec: 'comfy', format: 'mxfp8' }, data: 'F8_E4M3', scales: ['U8', 'F8_E8M0'] },
  nvfp4: { form: { codec: 'comfy', format: 'nvfp4' }, data: 'U8', scales: ['F8_E4M3', 'U8'] },
};
const oneScale: ComfyForm = { codec: 'comfy', format: 'int8_tensorwise', hasOneScale: true };

/** The form of codes with scales of a shape; undefined if their shapes do not match. */
function formWithScales(format: ComfyFormat, { shape }: SourceTensor, scale: readonly number[]): ComfyForm | undefined {
  const [rows = 0, stored = 0] = shape;
  const columns = format === 'nvfp4' ? 2 * stored : stored;
  const count = elementCount(scale);
  const group = comfyGroup(format);
  const { form } = formats[format];
  if (rows * columns === 0) return undefined;
  if (group !== undefined) {
    const expected = [Math.ceil(rows / 128) * 128, Math.ceil(columns / group / 4) * 4];
    return columns % group === 0 && scale.join() === expected.join() ? form : undefined;
  }
  if (format !== 'int8_tensorwise') return count === 1 ? form : undefined;
  // Scales without a second dimension have another meaning where ComfyUI restores the floats.
  const isColumn = scale.length === 2 && scale[1] === 1;
  if (count === 1 && !(rows === 1 && isColumn)) return oneScale;
  return count === rows && isColumn ? form : undefined;
}

/** The weight of a layer, or why it cannot be read; undefined if the layer has plain floats. */
function weightOfLayer(model: StoredModel, layer: Layer): FoundWeight | string | undefined {
  const { name: path, settings, marker, isOld = false } = layer;
  const data = model.tensor(`${path}.weight`);
  if (data === undefined) return undefined;
  const { format, params } = settings ?? {};
  if (typeof format !== 'string') return 'and its marker is not that of a format';
  if (!Object.hasOwn(formats, format)) return `as ${JSON.stringify(format.slice(0, 40))}, which is not read here`;
  const known = format as ComfyFormat;
  const { convrot, convrot_groupsize: rotation = 256 }: Fields = { ...(isFields(params) ? params : {}), ...settings };
  if (convrot && known !== 'int8_tensorwise') return `as ${known}, and rotated (convrot)`;
  if (model.tensor(`${path}.pre_quant_scale`) !== undefined) return 'with scales of its inputs (pre_quant_scale)';
  const types = formats[known];
  const scale = model.tensor(`${path}.${isOld ? 'scale_weight' : 'weight_scale'}`);
  const globalScale = known === 'nvfp4' ? model.tensor(`${path}.weight_scale_2`) : undefined;
  const [rows = 0, width = 0] = data.shape;
  if (data.dtype !== types.data) return `as ${known}, and stored as ${data.dtype}`;
  if (data.shape.length !== 2) return `as ${known}, and has ${data.shape.length} dimensions`;
  if (scale === undefined || (known === 'nvfp4' && globalScale === undefined)) return 'and its scale is missing';
  if (!types.scales.includes(scale.dtype)) return `with a scale of type ${scale.dtype}`;
  if (globalScale !== undefined && globalScale.dtype !== 'F32') return `with a scale of type ${globalScale.dtype}`;
  const plain = formWithScales(known, data, scale.shape);
  if (plain === undefined) return `with scales of shape ${bracketed(scale.shape)} for ${bracketed(data.shape)}`;
  const isPower = typeof rotation === 'number' && rotation >= 4 && Number.isInteger(Math.log2(rotation) / 2);
  if (convrot && !(isPower && rotation <= mostRotated && width % rotation === 0))
    return `and rotated in groups of ${show(rotation)} (convrot_groupsize)`;
  if (globalScale !== undefined && elementCount(globalScale.shape) !== 1) return 'with several scales of the tensor';
  // Readers cut padded rows off by sizes that the file does not have; a bias shows the number of rows.
  const bias = model.tensor(`${path}.bias`);
  if (bias?.shape.length === 1 && (bias.shape[0] ?? 1) < rows) return 'with padded rows';
  return {
    tensor: {
      name: data.name,
      shape: known === 'nvfp4' ? [rows, 2 * width] : data.shape,
      type: comfyLabel(known),
      form: convrot ? ({ ...plain, rotation: rotation as number } satisfies ComfyForm) : plain,
      parts: partsByRole({ data, scale, globalScale }),
    },
    beside: [...(marker === undefined ? [] : [marker]), `${path}.${isOld ? 'scale_input' : 'input_scale'}`],
  };
}

const comfyTarget = (codes: ComfyFormat, text: string, ...options: readonly string[]) =>
  ({
    about: `ComfyUI: ${text}`,
    kind: 'comfy',
    codes,
    options: [...options, ...floatOptions],
  }) as const satisfies CodedTarget;

const targets = {
  'comfy-fp8': comfyTarget('float8_e4m3fn', '8 bits, small floats and a scale for each tensor'),
  'comfy-int8': comfyTarget('int8_tensorwise', '8 bits, integers and a scale for each row', 'range'),
  'comfy-mxfp8': comfyTarget('mxfp8', '8.25 bits, small floats and a power of two for each 32'),
  'comfy-nvfp4': comfyTarget('nvfp4', '4.5 bits, small floats and a scale for each 16', 'range'),
};

export const comfyLayout = {
  label: 'ComfyUI',
  codecs: ['comfy'],
  findsFirst: true,
  async find(model) {
    const weights: FoundWeight[] = [];
    const refused = new Map<string, string>();
    for (const layer of (await comfyLayers(model)).values()) {
      const found = weightOfLayer(model, layer);
      if (typeof found === 'string') refused.set(`${layer.name}.weight`, `${found}; start from the model in floats`);
      else if (found !== undefined) weights.push(found);
    }
    return { weights, refused };
  },
  // The file does not tell the type that the weights had. Models of ComfyUI are bfloat16 more often than not.
  floats: () => 'BF16',
  // Tiles of 128 rows are cut into columns where they are long.
  canBeCut: ({ shape, form }) => (form as ComfyForm).format !== 'int8_tensorwise' || (shape[1] ?? 1) <= tileElements,
  targets,
  forKnownModels: true,
  load: async () => (await import('./comfy-plan.js')).planComfy,
  readers: (file) => [
    {
      program: 'ComfyUI',
      code: `mv ${file} ComfyUI/models/diffusion_models/`,
      needs:
        'The node Load Diffusion Model loads the file. A text encoder belongs into models/text_encoders, for the node Load CLIP; a ' +
        'checkpoint with several models belongs into models/checkpoints, for the node Load Checkpoint.',
    },
  ],
} satisfies CodedLayout;

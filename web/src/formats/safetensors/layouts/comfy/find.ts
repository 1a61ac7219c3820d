/**
 * Finds weights that ComfyUI's loader reads as codes: by the marker of each layer, by the metadata of the file, and float8 by the marker of
 * older files.
 * Reference: github.com/Comfy-Org/ComfyUI at 0271a469, comfy/ops.py, and comfy/utils.py, convert_old_quants; Comfy-Org/comfy-kitchen at
 * 0935c34b, comfy_kitchen/backends/eager/quantization.py, dequantize_int8_convrot_weight.
 */

import { show } from '../../../../core/show.js';
import { type ComfyForm, type ComfyFormat, comfyGroup, comfyLabel, mostRotated } from '../../../codecs/comfy.js';
import type { SourceTensor } from '../../../format.js';
import { elementCount } from '../../../tensors.js';
import { isFields } from '../../stored-model.js';
import type { Fields, FoundWeight, FoundWeights, StoredModel } from '../layout.js';

/** Largest marker that is read. */
const mostMarkerBytes = 4096;

const readFormats: readonly ComfyFormat[] = ['float8_e4m3fn', 'float8_e5m2', 'int8_tensorwise', 'mxfp8', 'nvfp4'];

/** An object in JSON; undefined for other contents. */
function parsed(text: string | Uint8Array): Fields | undefined {
  try {
    const value: unknown = JSON.parse(typeof text === 'string' ? text : new TextDecoder().decode(text));
    return isFields(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

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

const markerEnd = '.comfy_quant';

/** The layers that have a marker. */
async function markedLayers(model: StoredModel): Promise<Layer[]> {
  const layers: Layer[] = [];
  for (const tensor of model.tensors) {
    const { name, dtype, bytes } = tensor;
    if (!name.endsWith(markerEnd) || dtype !== 'U8') continue;
    const settings = bytes > mostMarkerBytes ? undefined : parsed(await model.read(tensor));
    layers.push({ name: name.slice(0, -markerEnd.length), settings, marker: name });
  }
  return layers;
}

/** The layers that the metadata list. */
function listedLayers({ metadata }: StoredModel): Layer[] {
  const key = '_quantization_metadata';
  const text = Object.hasOwn(metadata, key) ? metadata[key] : undefined;
  const layers = typeof text === 'string' ? parsed(text)?.layers : undefined;
  if (!isFields(layers)) return [];
  return Object.entries(layers).map(([name, settings]) => ({
    name,
    settings: isFields(settings) ? settings : undefined,
  }));
}

const oldMarker = /(^|\.)scaled_fp8$/;
const oldScale = '.scale_weight';

/** The layers of older files, all of float8. */
function oldLayers({ tensors }: StoredModel): Layer[] {
  const marker = tensors.find(({ name }) => oldMarker.test(name));
  if (marker === undefined) return [];
  return tensors.flatMap(({ name }): Layer[] =>
    name.endsWith(oldScale)
      ? [
          {
            name: name.slice(0, -oldScale.length),
            settings: { format: 'float8_e4m3fn' },
            marker: marker.name,
            isOld: true,
          },
        ]
      : [],
  );
}

const text = (shape: readonly number[]) => `[${shape.join(', ')}]`;

/** Types of the codes and of their scales, by format. */
const types: Readonly<Record<ComfyFormat, readonly [data: string, scales: readonly string[]]>> = {
  float8_e4m3fn: ['F8_E4M3', ['F32']],
  float8_e5m2: ['F8_E5M2', ['F32']],
  int8_tensorwise: ['I8', ['F32']],
  mxfp8: ['F8_E4M3', ['U8', 'F8_E8M0']],
  nvfp4: ['U8', ['F8_E4M3', 'U8']],
};

/** Number of columns rotated together, from a marker; undefined without rotation. */
function rotationOf({ convrot, convrot_groupsize: size = 256 }: Fields): unknown {
  return convrot ? size : undefined;
}

/** The form of rotated codes; undefined if they cannot be rotated so. */
function rotatedForm(plain: ComfyForm, rotation: unknown, columns: number): ComfyForm | undefined {
  const isPower = typeof rotation === 'number' && rotation >= 4 && Number.isInteger(Math.log2(rotation) / 2);
  return isPower && rotation <= mostRotated && columns % rotation === 0 ? { ...plain, rotation } : undefined;
}

/** The weight of a layer, or why it cannot be read; undefined if the layer has plain floats. */
function weightOf(model: StoredModel, layer: Layer): FoundWeight | string | undefined {
  const { name: path, settings, marker, isOld = false } = layer;
  const data = model.tensor(`${path}.weight`);
  if (data === undefined) return undefined;
  const refused = (why: string) => `${why}; start from the model in floats`;
  const { format, params } = settings ?? {};
  if (typeof format !== 'string') return refused('and its marker is not that of a format');
  if (!readFormats.includes(format as ComfyFormat))
    return refused(`as ${JSON.stringify(format.slice(0, 40))}, which is not read here`);
  const known = format as ComfyFormat;
  const rotation = rotationOf({ ...(isFields(params) ? params : {}), ...settings });
  if (rotation !== undefined && known !== 'int8_tensorwise') return refused(`as ${known}, and rotated (convrot)`);
  if (model.tensor(`${path}.pre_quant_scale`) !== undefined)
    return refused('with scales of its inputs (pre_quant_scale)');
  const [dataType, scaleTypes] = types[known];
  const scale = model.tensor(`${path}.${isOld ? 'scale_weight' : 'weight_scale'}`);
  const globalScale = known === 'nvfp4' ? model.tensor(`${path}.weight_scale_2`) : undefined;
  if (data.dtype !== dataType) return refused(`as ${known}, and stored as ${data.dtype}`);
  if (data.shape.length !== 2) return refused(`as ${known}, and has ${data.shape.length} dimensions`);
  if (scale === undefined || (known === 'nvfp4' && globalScale === undefined))
    return refused('and its scale is missing');
  if (!scaleTypes.includes(scale.dtype) || (globalScale !== undefined && globalScale.dtype !== 'F32')) {
    return refused(`with a scale of type ${(scaleTypes.includes(scale.dtype) ? globalScale : scale)?.dtype}`);
  }
  const plain = formFor(known, data, scale);
  if (plain === undefined) return refused(`with scales of shape ${text(scale.shape)} for ${text(data.shape)}`);
  const form = rotation === undefined ? plain : rotatedForm(plain, rotation, data.shape[1] as number);
  if (form === undefined) return refused(`and rotated in groups of ${show(rotation)} (convrot_groupsize)`);
  if (globalScale !== undefined && elementCount(globalScale.shape) !== 1)
    return refused('with several scales of the tensor');
  const [rows = 0, width = 0] = data.shape;
  const shape = known === 'nvfp4' ? [rows, 2 * width] : data.shape;
  // Readers cut padded rows off by sizes that the file does not have; a bias shows the number of rows.
  const bias = model.tensor(`${path}.bias`);
  if (bias !== undefined && bias.shape.length === 1 && (bias.shape[0] as number) < rows)
    return refused('with padded rows');
  return {
    tensor: {
      name: data.name,
      shape,
      type: comfyLabel(known),
      form,
      parts: [
        { role: 'data', tensor: data },
        { role: 'scale', tensor: scale },
        ...(globalScale === undefined ? [] : [{ role: 'globalScale', tensor: globalScale }]),
      ],
    },
    beside: [...(marker === undefined ? [] : [marker]), `${path}.${isOld ? 'scale_input' : 'input_scale'}`],
  };
}

const forms: Readonly<Record<ComfyFormat, ComfyForm>> = {
  float8_e4m3fn: { codec: 'comfy', format: 'float8_e4m3fn' },
  float8_e5m2: { codec: 'comfy', format: 'float8_e5m2' },
  int8_tensorwise: { codec: 'comfy', format: 'int8_tensorwise' },
  mxfp8: { codec: 'comfy', format: 'mxfp8' },
  nvfp4: { codec: 'comfy', format: 'nvfp4' },
};
const oneScale: ComfyForm = { codec: 'comfy', format: 'int8_tensorwise', hasOneScale: true };

const ceil = (n: number, unit: number) => Math.ceil(n / unit) * unit;

/** The form of codes with these scales; undefined if their shapes do not match. */
function formFor(format: ComfyFormat, { shape }: SourceTensor, scale: SourceTensor): ComfyForm | undefined {
  const [rows = 0, stored = 0] = shape;
  const columns = format === 'nvfp4' ? 2 * stored : stored;
  const count = elementCount(scale.shape);
  const group = comfyGroup(format);
  if (rows * columns === 0) return undefined;
  if (group !== undefined) {
    const expected = [ceil(rows, 128), ceil(columns / group, 4)];
    return columns % group === 0 && scale.shape.join() === expected.join() ? forms[format] : undefined;
  }
  if (format !== 'int8_tensorwise') return count === 1 ? forms[format] : undefined;
  if (count === 1 && rows !== 1) return oneScale;
  // Scales without a second dimension have another meaning where ComfyUI restores the floats.
  return count === rows && scale.shape.length === 2 && scale.shape[1] === 1
    ? forms[format]
    : rows === 1 && count === 1
      ? oneScale
      : undefined;
}

/** Finds the weights of a file of ComfyUI. */
export async function findComfy(model: StoredModel): Promise<FoundWeights> {
  const weights: FoundWeight[] = [];
  const refused = new Map<string, string>();
  // As in ComfyUI, older markers count only without metadata.
  const listed = listedLayers(model);
  const layers = new Map<string, Layer>();
  for (const layer of listed.length > 0 ? listed : oldLayers(model)) layers.set(layer.name, layer);
  for (const layer of await markedLayers(model)) layers.set(layer.name, layer);
  for (const layer of layers.values()) {
    const found = weightOf(model, layer);
    if (typeof found === 'string') refused.set(`${layer.name}.weight`, found);
    else if (found !== undefined) weights.push(found);
  }
  return { weights, refused };
}

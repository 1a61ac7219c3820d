/**
 * Weights as ComfyUI stores them in safetensors. `L.weight` is stored as
 *   L.weight          the codes; float4 two to a byte, the first one in the high bits
 *   L.weight_scale    a scale for the tensor, for each row, or for each group of neighbors in a row
 *   L.weight_scale_2  of nvfp4: the scale of the tensor
 *   L.comfy_quant     the format, as the bytes of a JSON object
 * Scales multiply. Those of groups are padded to 128 rows and 4 groups, in the order of cuBLAS.
 * Reference: github.com/Comfy-Org/ComfyUI at 0271a469, comfy/quant_ops.py and comfy/ops.py; Comfy-Org/comfy-kitchen at 7d86acf6.
 */
import { ComfyKindId, ComfyRecord } from '../../core/door.js';
import { codecInCore } from './calls.js';
import { floatsFinite } from './checks.js';
import type { Codec, Form, Grid, TileCut } from './codec.js';
import { byteRuns, cutAlong, cutByRange, cutOutputs, elementPart, elementRuns, elementsOf } from './elements.js';

/** Names that ComfyUI has for its formats. */
export type ComfyFormat = 'float8_e4m3fn' | 'float8_e5m2' | 'int8_tensorwise' | 'mxfp8' | 'nvfp4';

export interface ComfyForm extends Form {
  readonly codec: 'comfy';
  readonly format: ComfyFormat;
  /** True: int8 and nvfp4 search for scales with the least squared error. @defaultValue false */
  readonly search?: boolean;
  /** True for int8 with one scale for all rows, which is only read. @defaultValue false */
  readonly hasOneScale?: boolean;
  /** Int8 sources only: columns rotated together, a power of 4 that divides their number; undefined without rotation. */
  readonly rotation?: number | undefined;
}

/** Facts of a format. */
interface Facts {
  readonly kind: ComfyKindId;
  /** Type of the codes, and of the scales of groups. */
  readonly data: string;
  readonly scale: string;
  /** Elements that share a scale; undefined for all of the tensor, or of a row. */
  readonly group?: number;
  /** True for one scale for the whole tensor, beside those of groups if there are any. */
  readonly hasTensorScale: boolean;
  readonly label: string;
}

const table: Readonly<Record<ComfyFormat, Facts>> = {
  float8_e4m3fn: { kind: ComfyKindId.float8, data: 'F8_E4M3', scale: 'F32', hasTensorScale: true, label: 'F8_E4M3' },
  float8_e5m2: { kind: ComfyKindId.float8E5M2, data: 'F8_E5M2', scale: 'F32', hasTensorScale: true, label: 'F8_E5M2' },
  int8_tensorwise: { kind: ComfyKindId.int8, data: 'I8', scale: 'F32', hasTensorScale: false, label: 'I8' },
  // Readers take the bytes of powers of two as they are. Older ones do not know F8_E8M0.
  mxfp8: {
    kind: ComfyKindId.mxFloat8,
    data: 'F8_E4M3',
    scale: 'U8',
    group: 32,
    hasTensorScale: false,
    label: 'MXFP8',
  },
  nvfp4: {
    kind: ComfyKindId.nvFloat4,
    data: 'U8',
    scale: 'F8_E4M3',
    group: 16,
    hasTensorScale: true,
    label: 'NVFP4',
  },
};

/** Elements of a row that share a scale; undefined for all of the tensor, or of a row. */
export const comfyGroup = (format: ComfyFormat): number | undefined => table[format].group;

/** Type of weights in a format, for reports. */
export const comfyLabel = (format: ComfyFormat): string => table[format].label;

/** Largest number of columns that are rotated together. */
export const mostRotated = 1 << 16;

/** Rows and groups in a tile of scales, and its bytes. */
const [tileRows, tileGroups, tileBytes] = [128, 4, 512];

/** True if a single scale is all there is. */
function hasSingleScale({ format, hasOneScale }: ComfyForm): boolean {
  return hasOneScale === true || (table[format].hasTensorScale && table[format].group === undefined);
}

function comfyGrid(shape: readonly number[], form: ComfyForm): Grid {
  const { group } = table[form.format];
  if (hasSingleScale(form) && form.rotation === undefined) return { rows: undefined, rowUnit: 1, columnUnit: 1 };
  return group === undefined
    ? { rows: shape[0], rowUnit: 1, columnUnit: form.rotation ?? 1 }
    : { rows: shape[0], rowUnit: tileRows, columnUnit: group * tileGroups };
}

export const comfy: Codec<ComfyForm> = codecInCore(ComfyRecord, {
  id: 'comfy',
  label: ({ format }) => comfyLabel(format),

  parts(shape, form) {
    const { format, rotation } = form;
    const { data, scale, group } = table[format];
    const [rows = 0, columns = 0] = shape;
    const padded = (n: number, unit: number) => Math.ceil(n / unit) * unit;
    const scales =
      group !== undefined
        ? [padded(rows, tileRows), padded(columns / group, tileGroups)]
        : hasSingleScale(form)
          ? []
          : [rows, ...shape.slice(1).map(() => 1)];
    const rotated = rotation === undefined ? {} : { convrot: true, convrot_groupsize: rotation };
    const constant = new TextEncoder().encode(JSON.stringify({ format, ...rotated }));
    return [
      elementPart('data', '', data, format === 'nvfp4' ? [rows, columns / 2] : shape),
      elementPart('scale', '_scale', scale, scales),
      ...(format === 'nvfp4' ? [elementPart('globalScale', '_scale_2', 'F32', [])] : []),
      { ...elementPart('marker', '.comfy_quant', 'U8', [constant.length], '.weight'), constant },
    ];
  },

  grid: comfyGrid,

  runs(_shape, form, role, rectangle) {
    const { row, rows, column, columns, width } = rectangle;
    if (role === 'data') return elementRuns((n) => (form.format === 'nvfp4' ? n / 2 : n), rectangle);
    const { group } = table[form.format];
    if (role === 'globalScale' || hasSingleScale(form)) return byteRuns(0, 4);
    if (group === undefined) return byteRuns(row * 4, rows * 4);
    // Tiles of scales are in rows, too.
    const perTile = group * tileGroups;
    const stride = Math.ceil(width / perTile) * tileBytes;
    const offset = (row / tileRows) * stride + (column / perTile) * tileBytes;
    return byteRuns(offset, Math.ceil(columns / perTile) * tileBytes, Math.ceil(rows / tileRows), stride);
  },

  *cuts(shape, form, roles, source) {
    const elements = elementsOf(shape);
    if (elements === 0) return;
    // Rows of int8 stay whole.
    const [rows = 1] = shape;
    const tiles = [
      ...(form.format === 'int8_tensorwise'
        ? cutOutputs([rows, elements / rows], roles, { unit: source?.rows === undefined ? 1 : source.rowUnit })
        : cutAlong([comfyGrid(shape, form), source], elements, roles)),
    ] as TileCut[];
    if (!table[form.format].hasTensorScale || tiles.length === 1) {
      yield* tiles;
      return;
    }
    const rectangles = tiles.map(({ rectangle }) => rectangle);
    yield* cutByRange(rectangles, roles, hasSingleScale(form) ? 'scale' : 'globalScale');
  },

  tileIn(tile, form) {
    const { ranges, roles } = tile;
    const needsElements = ranges === undefined || ranges.length === 0 || roles.some((role) => role !== 'globalScale');
    // Scales of groups need the elements, as codes do. A scale of the tensor alone needs no more than one group of columns.
    const isSingle = !needsElements || (hasSingleScale(form) && !roles.includes('data') && ranges !== undefined);
    if (isSingle) return { ...tile, rows: 1, columns: table[form.format].group ?? 1 };
    return roles.includes('data') ? tile : { ...tile, roles: ['data', ...roles] };
  },
  record: ({ format, search = false, hasOneScale = false, rotation = 0 }) => ({
    kind: table[format].kind,
    search,
    oneScale: hasOneScale,
    rotation,
  }),
  calls: { encode: 'encodeComfy', decode: 'decodeComfy' },

  checks(_shape, { format }, role) {
    const { data, scale, group } = table[format];
    if (role === 'data') return floatsFinite(data, 'element', true);
    if (role === 'globalScale') return floatsFinite('F32', 'scale');
    return floatsFinite(group === 32 ? 'F8_E8M0' : scale, 'scale');
  },
});

/**
 * Weights as ComfyUI stores them in safetensors. `L.weight` is stored as
 *   L.weight          the codes; float4 two to a byte, the first one in the high bits
 *   L.weight_scale    a scale for the tensor, for each row, or for each group of neighbors in a row
 *   L.weight_scale_2  of nvfp4: the scale of the tensor
 *   L.comfy_quant     the format, as the bytes of a JSON object
 * Scales multiply. Those of groups are padded to 128 rows and 4 groups, in the order of cuBLAS.
 * Reference: github.com/Comfy-Org/ComfyUI at 0271a469, comfy/quant_ops.py and comfy/ops.py; Comfy-Org/comfy-kitchen at 7d86acf6.
 */
import { ComfyKindId, ComfyRecord, StoredRecord } from '../../core/door.js';
import { decodeTile, encodeTile, storedRecord } from './calls.js';
import { floatsFinite } from './checks.js';
import {
  type ByteRuns,
  type Codec,
  type Cuts,
  type Form,
  type Grid,
  type Part,
  type Rectangle,
  type Role,
  tileElements,
  type ValueRange,
} from './codec.js';
import { byteRuns, cutFlat, elementRuns, elementsOf, rectanglesOf } from './elements.js';

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
  readonly label: string;
}

const table: Readonly<Record<ComfyFormat, Facts>> = {
  float8_e4m3fn: { kind: ComfyKindId.float8, data: 'F8_E4M3', scale: 'F32', label: 'F8_E4M3' },
  float8_e5m2: { kind: ComfyKindId.float8E5M2, data: 'F8_E5M2', scale: 'F32', label: 'F8_E5M2' },
  int8_tensorwise: { kind: ComfyKindId.int8, data: 'I8', scale: 'F32', label: 'I8' },
  // Readers take the bytes of powers of two as they are. Older ones do not know F8_E8M0.
  mxfp8: { kind: ComfyKindId.mxFloat8, data: 'F8_E4M3', scale: 'U8', group: 32, label: 'MXFP8' },
  nvfp4: { kind: ComfyKindId.nvFloat4, data: 'U8', scale: 'F8_E4M3', group: 16, label: 'NVFP4' },
};

/** Elements of a row that share a scale; undefined for all of the tensor, or of a row. */
export const comfyGroup = (format: ComfyFormat): number | undefined => table[format].group;

/** Type of weights in a format, for reports. */
export const comfyLabel = (format: ComfyFormat): string => table[format].label;

/** Rows and groups in a tile of scales, and its bytes. */
const [tileRows, tileGroups, tileBytes] = [128, 4, 512];

const ceil = (n: number, unit: number) => Math.ceil(n / unit) * unit;

/** True for one scale for the whole tensor, beside those of groups if there are any. */
function hasTensorScale({ format }: ComfyForm): boolean {
  return format !== 'int8_tensorwise' && format !== 'mxfp8';
}

/** True if a single scale is all there is. */
function isWhole(form: ComfyForm): boolean {
  return form.hasOneScale === true || (hasTensorScale(form) && table[form.format].group === undefined);
}

/** The marker of a form. */
function markerOf({ format, rotation }: ComfyForm): Uint8Array<ArrayBuffer> {
  const rotated = rotation === undefined ? {} : { convrot: true, convrot_groupsize: rotation };
  return new TextEncoder().encode(JSON.stringify({ format, ...rotated }));
}

function partsOf(shape: readonly number[], form: ComfyForm): readonly Part[] {
  const { format } = form;
  const { data, scale, group } = table[format];
  const [rows = 0, columns = 0] = shape;
  const marker = markerOf(form);
  const scales =
    group !== undefined
      ? [ceil(rows, tileRows), ceil(columns / group, tileGroups)]
      : isWhole(form)
        ? []
        : [rows, ...shape.slice(1).map(() => 1)];
  const codes = format === 'nvfp4' ? [rows, columns / 2] : shape;
  return [
    { role: 'data', suffix: '', dtype: data, shape: codes, bytes: elementsOf(codes) },
    {
      role: 'scale',
      suffix: '_scale',
      dtype: scale,
      shape: scales,
      bytes: elementsOf(scales) * (group === undefined ? 4 : 1),
    },
    ...(format === 'nvfp4' ? [{ role: 'globalScale', suffix: '_scale_2', dtype: 'F32', shape: [], bytes: 4 }] : []),
    {
      role: 'marker',
      suffix: '.comfy_quant',
      replaces: '.weight',
      dtype: 'U8',
      shape: [marker.length],
      bytes: marker.length,
      constant: marker,
    },
  ];
}

/** The bytes of a part that hold a rectangle. */
function runsOf(form: ComfyForm, role: Role, rectangle: Rectangle): ByteRuns {
  const { row, rows, column, columns, width } = rectangle;
  if (role === 'data') return elementRuns((n) => (form.format === 'nvfp4' ? n / 2 : n), rectangle);
  const { group } = table[form.format];
  if (role === 'globalScale' || isWhole(form)) return byteRuns(0, 4, 1, 4);
  if (group === undefined) return byteRuns(row * 4, rows * 4, 1, rows * 4);
  // Tiles of scales are in rows, too.
  const perTile = group * tileGroups;
  const stride = Math.ceil(width / perTile) * tileBytes;
  const offset = (row / tileRows) * stride + (column / perTile) * tileBytes;
  return byteRuns(offset, Math.ceil(columns / perTile) * tileBytes, Math.ceil(rows / tileRows), stride);
}

/** Largest number of columns that are rotated together. */
export const mostRotated = 1 << 16;

function gridOf(shape: readonly number[], form: ComfyForm): Grid {
  const { group } = table[form.format];
  if (isWhole(form) && form.rotation === undefined) return { rows: undefined, rowUnit: 1, columnUnit: 1 };
  return group === undefined
    ? { rows: shape[0], rowUnit: 1, columnUnit: form.rotation ?? 1 }
    : { rows: shape[0], rowUnit: tileRows, columnUnit: group * tileGroups };
}

/** Rectangles of a tile each. Rows of int8 stay whole. */
function* rectangles(shape: readonly number[], form: ComfyForm, source: Grid | undefined): Generator<Rectangle, void> {
  const elements = elementsOf(shape);
  if (form.format === 'int8_tensorwise') {
    const width = elements / (shape[0] as number);
    const unit = source?.rows === undefined ? 1 : source.rowUnit;
    const most = Math.max(1, Math.floor(tileElements / width / unit)) * unit;
    for (let row = 0; row * width < elements; row += most) {
      yield { row, rows: Math.min(most, (shape[0] as number) - row), column: 0, columns: width, width };
    }
    return;
  }
  const grids = [gridOf(shape, form), ...(source === undefined ? [] : [source])];
  if (grids.some(({ rows }) => rows !== undefined)) {
    yield* rectanglesOf(elements, grids);
    return;
  }
  for (const cut of cutFlat(elements, [])) if (cut.kind === 'tile') yield cut.rectangle;
}

function* cutsOf(shape: readonly number[], form: ComfyForm, roles: readonly Role[], source?: Grid): Cuts {
  if (elementsOf(shape) === 0) return;
  const all = [...rectangles(shape, form, source)];
  const [first] = all as [Rectangle];
  if (!hasTensorScale(form) || all.length === 1) {
    for (const rectangle of all) yield { kind: 'tile', rectangle, roles };
    return;
  }
  // The scale of the tensor needs its range.
  const ranges = Float32Array.from((yield { kind: 'range', rectangles: all }) as ValueRange);
  const single = isWhole(form) ? 'scale' : 'globalScale';
  const others = roles.filter((role) => role !== single);
  if (others.length < roles.length) yield { kind: 'tile', rectangle: first, roles: [single], ranges, reads: false };
  if (others.length === 0) return;
  for (const rectangle of all) yield { kind: 'tile', rectangle, roles: others, ranges };
}

/** The record of a form for the core. */
function recordOf({ format, search = false, hasOneScale = false, rotation = 0 }: ComfyForm): ComfyRecord {
  return { kind: table[format].kind, search, oneScale: hasOneScale, rotation };
}

export const comfy: Codec<ComfyForm> = {
  id: 'comfy',
  label: ({ format }) => comfyLabel(format),
  parts: partsOf,
  grid: gridOf,
  runs: (_shape, form, role, rectangle) => runsOf(form, role, rectangle),
  cuts: cutsOf,

  encode(core, whole, form, arena) {
    const { ranges, roles } = whole;
    const needsElements = ranges === undefined || ranges.length === 0 || roles.some((role) => role !== 'globalScale');
    // Scales of groups need the elements, as codes do. A scale of the tensor alone needs no more than one group of columns.
    const isSingle = !needsElements || (isWhole(form) && !roles.includes('data') && ranges !== undefined);
    const tile = isSingle
      ? { ...whole, rows: 1, columns: table[form.format].group ?? 1 }
      : roles.includes('data')
        ? whole
        : { ...whole, roles: ['data', ...roles] };
    return core.withRecord(ComfyRecord, recordOf(form), (codes) =>
      encodeTile(core, tile, arena, (at, ...rest) => core.models.encodeComfy(at, codes, ...rest)),
    );
  },

  decode(core, { rows, columns, parts }, form, arena) {
    const rectangle = { row: 0, rows, column: 0, columns, width: columns };
    const stored = storedRecord(rows, columns, parts, (role) => {
      const { bytes, count } = runsOf(form, role, rectangle);
      return bytes * count;
    });
    return core.withRecord(ComfyRecord, recordOf(form), (codes) =>
      core.withRecord(StoredRecord, stored, (at) =>
        decodeTile(core, arena, (...addresses) => core.models.decodeComfy(at, codes, ...addresses)),
      ),
    );
  },

  checks(_shape, { format }, role) {
    const { data, scale, group } = table[format];
    if (role === 'data') return floatsFinite(data, 'element').map((check) => ({ ...check, isProblem: true }));
    if (role === 'globalScale') return floatsFinite('F32', 'scale');
    return floatsFinite(group === 32 ? 'F8_E8M0' : scale, 'scale');
  },
};

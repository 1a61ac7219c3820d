/**
 * Microscaled floats: blocks of a row share a scale of eight bits, with a scale of the whole matrix besides where blocks have float8 scales.
 *
 * `X` is stored as
 *   X_packed or X            4-bit codes, two a byte; 8-bit codes as they are
 *   X_scale                  one byte for each block: E4M3, or an exponent (E8M0)
 *   X_global_scale           of compressed-tensors: a float32 by which the scales are divided
 *   X_scale_2                of ModelOpt: a float32 by which the scales are multiplied
 * MLX stores `X.weight` as uint32 words with the same bytes and `X.scales`, without a scale of the matrix. Its matrices may be stacked.
 * The arithmetic is in cpp/codecs/microscales.cpp.
 */
import {
  GlobalScaleFormId,
  MicroscaledRecord,
  MicroscaleRuleId,
  MicroscaleTypeId,
  MinifloatId,
} from '../../core/door.js';
import { codecInCore } from './calls.js';
import { floatsFinite } from './checks.js';
import { type Codec, type Form, type Role, tileElements } from './codec.js';
import { byteRuns, cutByRange, elementPart, elementRuns, elementsOf, rectanglesOf, rowGrid } from './elements.js';

/** Kinds of microscaled floats. */
export type MicroscaledKind = 'nvfp4' | 'mxfp4' | 'mxfp8';

/** With importance, rows have to fit into tiles. */
export interface MicroscaledForm extends Form {
  readonly codec: 'microscaled' | 'mlx-floats';
  readonly kind: MicroscaledKind;
  /** Names of the parts, and use of the global scale. */
  readonly tool: 'compressed-tensors' | 'modelopt' | 'gpt-oss' | 'mlx';
  /** Type of the floats that it was made of. */
  readonly floats: 'F32' | 'F16' | 'BF16';
  /** True: searches for the scales with the smallest errors. */
  readonly search?: boolean;
}

/** Facts of each kind. */
const kinds = {
  nvfp4: { label: 'NVFP4', bits: 4, block: 16, element: MinifloatId.float4E2M1, scale: 'F8_E4M3' },
  mxfp4: { label: 'MXFP4', bits: 4, block: 32, element: MinifloatId.float4E2M1, scale: 'U8' },
  mxfp8: { label: 'MXFP8', bits: 8, block: 32, element: MinifloatId.float8E4M3FN, scale: 'U8' },
} as const;

/** Elements of a row that share a scale. */
export function microscaledBlock(kind: MicroscaledKind): number {
  return kinds[kind].block;
}

/** True if importance can weigh the columns: tiles hold whole rows of a matrix. */
export function canWeighMicroscaled(shape: readonly number[]): boolean {
  return shape.length === 2 && elementsOf(shape) > 0 && (shape[1] as number) <= tileElements;
}

/** True for forms that GPTQ can round: those with codes of 4 bits. */
export const feedsMicroscaled = ({ kind }: MicroscaledForm): boolean => kinds[kind].bits === 4;

/** True for forms with a scale of the whole matrix. */
const hasGlobal = ({ kind, tool }: MicroscaledForm) => kind === 'nvfp4' && tool !== 'mlx';

/** The record of a form for the core. */
export function microscaledRecord(form: MicroscaledForm): MicroscaledRecord {
  const { kind, tool, search = false } = form;
  const { element, block, scale } = kinds[kind];
  const isFloat8 = scale === 'F8_E4M3';
  const usedGlobal = tool === 'modelopt' ? GlobalScaleFormId.multiplies : GlobalScaleFormId.divides;
  return {
    form: {
      element,
      scale: isFloat8 ? MicroscaleTypeId.float8 : MicroscaleTypeId.powerOfTwo,
      // MLX's CUDA kernels round up. Those for Metal round to the nearest power of two.
      rule: tool === 'mlx' ? MicroscaleRuleId.ceiling : MicroscaleRuleId.nearFloor,
      block,
      // The byte of a scale of zeros: 0.125 in compressed-tensors; in MLX 0, or the power 2^0.
      zeroScale: tool === 'mlx' ? (isFloat8 ? 0 : 127) : isFloat8 ? 0x20 : 0,
      search,
    },
    global: hasGlobal(form) ? usedGlobal : GlobalScaleFormId.none,
  };
}

/** Bytes of a part for some elements of a row. */
export function microscaledBytes(role: Role, elements: number, { kind }: MicroscaledForm): number {
  const { bits, block } = kinds[kind];
  return role === 'data' ? (elements * bits) / 8 : role === 'scale' ? elements / block : 4;
}

/** A weight of gpt-oss has the matrices of several experts. */
const blockGrid = (shape: readonly number[], { kind }: MicroscaledForm) => rowGrid(shape, kinds[kind].block);

export const microscaled: Codec<MicroscaledForm> = codecInCore(MicroscaledRecord, {
  id: 'microscaled',
  label: ({ kind }) => kinds[kind].label,

  parts(shape, form) {
    const { kind, tool } = form;
    const { bits, block, scale } = kinds[kind];
    const [outer, width = 0] = [shape.slice(0, -1), shape.at(-1)];
    const scales = [...outer, width / block];
    if (tool === 'mlx')
      return [
        elementPart('data', '', 'U32', [...outer, (width * bits) / 32]),
        elementPart('scale', '.scales', 'U8', scales, '.weight'),
      ];
    return [
      bits === 4
        ? elementPart('data', tool === 'modelopt' ? '' : '_packed', 'U8', [...outer, width / 2])
        : elementPart('data', '', 'F8_E4M3', shape),
      elementPart('scale', '_scale', scale, scales),
      ...(!hasGlobal(form)
        ? []
        : tool === 'modelopt'
          ? [elementPart('globalScale', '_scale_2', 'F32', [])]
          : [elementPart('globalScale', '_global_scale', 'F32', [1])]),
    ];
  },

  grid: blockGrid,
  runs: (_shape, form, role, rectangle) =>
    role === 'globalScale' ? byteRuns(0, 4) : elementRuns((n) => microscaledBytes(role, n, form), rectangle),

  *cuts(shape, form, roles, source) {
    const elements = elementsOf(shape);
    if (elements === 0) return;
    const rectangles = [...rectanglesOf(elements, [blockGrid(shape, form), ...(source === undefined ? [] : [source])])];
    if (hasGlobal(form)) yield* cutByRange(rectangles, roles, 'globalScale');
    else for (const rectangle of rectangles) yield { kind: 'tile', rectangle, roles };
  },

  feedbackGroups: (_core, { kind }) => ({ group: kinds[kind].block, outer: 0 }),
  overflow: () => ', too large for the scale',

  checks(_shape, { kind }, role) {
    if (role === 'globalScale') return floatsFinite('F32', 'scale');
    if (role === 'scale') return floatsFinite(kinds[kind].scale === 'U8' ? 'F8_E8M0' : 'F8_E4M3', 'scale');
    if (kinds[kind].bits === 4) return [];
    return floatsFinite('F8_E4M3', 'element', true);
  },

  // Scales need the elements, as codes do. Without elements, a tile needs no memory for its columns.
  tileIn: (tile, { kind }) =>
    tile.roles.some((role) => role !== 'globalScale')
      ? { ...tile, roles: [...new Set(['data', ...tile.roles])] }
      : { ...tile, rows: 1, columns: microscaledBlock(kind) },
  record: microscaledRecord,
  calls: { encode: 'encodeMicroscaled', feedback: 'encodeMicroscaledWithFeedback', decode: 'decodeMicroscaled' },
});

/** Small floats in blocks, in the layout of MLX. */
export const mlxFloats: Codec<MicroscaledForm> = { ...microscaled, id: 'mlx-floats' };

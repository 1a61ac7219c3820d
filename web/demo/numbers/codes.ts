// Levels that are not evenly spaced: lists of values with a scale for each block, and ggml's blocks.

import { type BlockType, blockTypeInfo, type Scalepoint } from 'scalepoint';
import type { Levels } from '../shared/levels.js';
import { partsOf, type TensorParts } from './parts.js';
import type { Settings } from './settings.js';

/** The largest finite value of float8e4m3fn. */
const largestFloat8 = 448;

let float8: Float32Array | undefined;

/** The finite values of float8e4m3fn in ascending order, divided by the largest. */
function float8Values(core: Scalepoint): Float32Array {
  float8 ??= core
    .castToFloat32(
      Uint8Array.from({ length: 256 }, (_, bits) => bits),
      'float8e4m3fn',
    )
    .filter((value) => Number.isFinite(value) && !Object.is(value, -0))
    .sort()
    .map((value) => value / largestFloat8);
  return float8;
}

/** Elements that share a scale: consecutive ones, since codebooks and blocks know no axes. */
export function blockLength(settings: Settings, shape: readonly number[]): number {
  if (settings.codes === 'blocks') return blockTypeInfo(settings.block).elements;
  const count = shape.reduce((a, b) => a * b, 1);
  if (settings.granularity === 'per-tensor') return Math.max(1, count);
  if (settings.granularity === 'per-group') return settings.groupSize;
  return Math.max(1, count / (shape[0] ?? 1));
}

/** The parts of a tensor that is cut into blocks of consecutive elements. */
export function blockParts(settings: Settings, shape: readonly number[]): TensorParts {
  const count = shape.reduce((a, b) => a * b, 1);
  const groupSize = blockLength(settings, shape);
  if (groupSize >= count) return partsOf({ kind: 'per-tensor' }, [count]);
  return partsOf({ kind: 'per-group', groupSize, axis: 0 }, [count]);
}

/** Numbers as codes of uneven levels. */
export interface UnevenTensor {
  /** One index a number. Absent for blocks, whose codes and scales are interleaved bits. */
  readonly codes?: Uint8Array;
  readonly restored: Float32Array;
  /** One scale a part. Empty for blocks. */
  readonly scale: Float32Array;
  readonly codebook?: Float32Array;
  readonly comparison: ReturnType<Scalepoint['compare']>;
}

/** Quantizes with a codebook or to blocks. */
export function quantizeUneven(
  core: Scalepoint,
  values: Float32Array,
  settings: Settings,
  shape: readonly number[],
): UnevenTensor {
  if (settings.codes === 'blocks') {
    const q = core.quantizeBlocks(values, settings.block satisfies BlockType, { shape: [...shape] });
    return { restored: core.dequantize(q), scale: new Float32Array(), comparison: core.compare(values, q) };
  }
  const q = core.quantizeCodebook(values, {
    codebook: settings.codes === 'nf4' ? 'nf4' : float8Values(core),
    blockSize: blockLength(settings, shape),
  });
  return {
    codes: q.data as Uint8Array,
    restored: core.dequantize(q),
    scale: q.absmax,
    codebook: q.codebook,
    comparison: core.compare(values, q),
  };
}

/** The levels of a block that occur: its restored values, each once. */
export function levelsInUse(restored: Float32Array): { levels: Levels; codes: Int32Array } {
  const values = [...new Set(restored)].sort((a, b) => a - b);
  const rank = new Map(values.map((value, i) => [value, i]));
  return {
    levels: { ...listLevels(values), areRanks: true },
    codes: Int32Array.from(restored, (value) => rank.get(value) ?? 0),
  };
}

/** Levels from a list in ascending order. Their scale is the mean distance. */
export function listLevels(values: readonly number[]): Levels {
  const span = (values.at(-1) ?? 0) - (values[0] ?? 0);
  return {
    qmin: 0,
    qmax: Math.max(0, values.length - 1),
    scale: span / Math.max(1, values.length - 1) || 1,
    zeroPoint: values.indexOf(0),
    values,
  };
}

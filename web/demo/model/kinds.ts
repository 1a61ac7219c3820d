// Ways to store a single tensor, for the picture of its numbers.
import {
  type BlockType,
  blockTypeInfo,
  type CodebookTensor,
  type ErrorMeasures,
  type QuantizeOptions,
  type Scalepoint,
} from 'scalepoint';

/** Restored numbers, and their bytes. */
export interface RestoredNumbers {
  readonly restored: Float32Array;
  readonly bytes: number;
  readonly error: ErrorMeasures;
}

/** A way to store a tensor, to try on one. */
export interface StorageKind {
  readonly id: string;
  readonly label: string;
  readonly group: string;
  /** The length of a row has to be a multiple of this. */
  readonly multiple: number;
  apply(core: Scalepoint, values: Float32Array, shape: readonly [number, number]): RestoredNumbers;
}

function integer(bits: number, size: number | 'row' | 'tensor', range: 'min-max' | 'mse' = 'min-max'): StorageKind {
  const granularity: NonNullable<QuantizeOptions['granularity']> =
    size === 'tensor'
      ? { kind: 'per-tensor' }
      : size === 'row'
        ? { kind: 'per-channel', axis: 0 }
        : { kind: 'per-group', groupSize: size };
  const scope = size === 'tensor' ? 'one scale' : size === 'row' ? 'a scale a row' : `groups of ${size}`;
  return {
    id: `int${bits}-${size}${range === 'mse' ? '-mse' : ''}`,
    label: `int${bits}, ${scope}${range === 'mse' ? ', least error' : ''}`,
    group: 'Integers',
    multiple: 1,
    apply(core, values, shape) {
      const dtype = `int${bits}` as NonNullable<QuantizeOptions['dtype']>;
      const q = core.quantize(values, { dtype, shape: [...shape], granularity, range });
      const bytes = Math.ceil((values.length * bits) / 8) + 4 * q.scale.length;
      return { restored: core.dequantize(q), bytes, error: core.compare(values, q) };
    },
  };
}

function codebook(name: 'nf4' | 'fp4'): StorageKind {
  return {
    id: name,
    label: `${name.toUpperCase()}, blocks of 64`,
    group: 'Uneven levels',
    multiple: 1,
    apply(core, values) {
      const q: CodebookTensor = core.quantizeCodebook(values, { codebook: name, blockSize: 64 });
      const bytes = Math.ceil(values.length / 2) + 4 * Math.ceil(values.length / 64);
      return { restored: core.dequantize(q), bytes, error: core.compare(values, q) };
    },
  };
}

function float(type: 'float16' | 'bfloat16' | 'float8e4m3fn', size: number): StorageKind {
  return {
    id: type,
    label: type === 'float8e4m3fn' ? 'float8 (e4m3)' : type,
    group: 'Floats',
    multiple: 1,
    apply(core, values) {
      const bits = core.castFloat(values, type);
      const restored = core.castToFloat32(bits as Uint16Array & Uint8Array, type as 'float16');
      return { restored, bytes: values.length * size, error: core.compare(values, restored) };
    },
  };
}

function block(type: BlockType): StorageKind {
  return {
    id: type,
    label: type,
    group: 'Blocks of ggml',
    multiple: blockTypeInfo(type).elements,
    apply(core, values, shape) {
      const q = core.quantizeBlocks(values, type, { shape: [...shape] });
      return { restored: core.dequantize(q), bytes: q.data.length, error: core.compare(values, q) };
    },
  };
}

const kinds: readonly StorageKind[] = [
  integer(8, 'tensor'),
  integer(8, 'row'),
  integer(8, 128),
  integer(4, 'tensor'),
  integer(4, 'row'),
  integer(4, 128),
  integer(4, 128, 'mse'),
  integer(4, 32),
  integer(4, 32, 'mse'),
  integer(3, 32, 'mse'),
  integer(2, 32, 'mse'),
  codebook('nf4'),
  codebook('fp4'),
  float('float16', 2),
  float('bfloat16', 2),
  float('float8e4m3fn', 1),
  ...(
    [
      'Q8_0',
      'Q5_0',
      'Q4_0',
      'IQ4_NL',
      'Q6_K',
      'Q5_K',
      'Q4_K',
      'IQ4_XS',
      'Q3_K',
      'IQ3_S',
      'IQ3_XXS',
      'Q2_K',
      'IQ2_S',
    ] as const
  ).map(block),
];

export function kindOf(id: string): StorageKind {
  return kinds.find((kind) => kind.id === id) ?? (kinds[0] as StorageKind);
}

/** The kinds that fit rows of some length. */
export function kindsFor(width: number): readonly StorageKind[] {
  return kinds.filter(({ multiple }) => width % multiple === 0);
}

/** In place of a kind: the codes that the plan makes of the tensor. */
export const planKind = 'plan';

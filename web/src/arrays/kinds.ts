// The kinds of quantized tensors. To add one, write its file and add it to the table here.

import { stepSize } from '../core/door.js';
import { rangeError, typeError } from '../core/errors.js';
import { type Core, checkStatus, forEachTile } from '../core/memory.js';
import type { WasmArray } from '../core/wasm-array.js';
import { GivenBlocks } from './blocks.js';
import { checkOptionsOf } from './calls.js';
import { GivenCodebook, type PackedCodebookTensor, unpackCodebook } from './codebook.js';
import { checkMatrix } from './job.js';
import type { CodedVectors, GivenTensor, Weights } from './kind.js';
import { GivenLinear, type PackedTensor, unpackLinear } from './linear.js';
import { checkApart, Sink } from './sink.js';
import type { BlockTensor, CodeArray, CodebookTensor, LinearQuantizedTensor, QuantizedTensor } from './tensor.js';

/** The operations of a kind. */
interface TensorKind<Tensor, Packed> {
  /** Checks a tensor that the caller gave. `what` is its path. */
  readonly Given: { new (core: Core, q: Tensor, what: string): GivenTensor; readonly prototype: GivenTensor };
  /** The reverse of GivenTensor.pack. */
  unpack?(core: Core, bytes: unknown, q: Packed, out: unknown): CodeArray | WasmArray;
}

const kinds: {
  readonly linear: TensorKind<LinearQuantizedTensor, PackedTensor>;
  readonly codebook: TensorKind<CodebookTensor, PackedCodebookTensor>;
  readonly blocks: TensorKind<BlockTensor, never>;
} = {
  linear: { Given: GivenLinear, unpack: unpackLinear },
  codebook: { Given: GivenCodebook, unpack: unpackCodebook },
  blocks: { Given: GivenBlocks },
};

/** The kind in a value's `kind` field. Checks no other field. */
function kindOf(value: unknown): TensorKind<QuantizedTensor, unknown> | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { kind } = value as { kind?: unknown };
  if (typeof kind !== 'string' || !Object.hasOwn(kinds, kind)) return undefined;
  return kinds[kind as keyof typeof kinds] as TensorKind<QuantizedTensor, unknown>;
}

/** True for a value whose `kind` is that of a quantized tensor. */
export function isQuantized(value: unknown): value is QuantizedTensor {
  return kindOf(value) !== undefined;
}

/** Checks a quantized tensor that the caller gave; undefined for anything else. */
export function givenTensor(core: Core, q: unknown, what: string): GivenTensor | undefined {
  const kind = kindOf(q);
  return kind === undefined ? undefined : new kind.Given(core, q as QuantizedTensor, what);
}

/**
 * Checks a quantized tensor of a kind that has a method. @param kinds names of the kinds with the method
 * @param path the path of the tensor in errors
 * @throws TypeError or RangeError naming the field
 */
function given<Method extends keyof GivenTensor>(
  core: Core,
  q: unknown,
  method: Method,
  kinds: readonly string[],
  path = 'q',
): GivenTensor & Required<Pick<GivenTensor, Method>> {
  const kind = kindOf(q);
  if (kind === undefined || !(method in kind.Given.prototype)) {
    throw typeError(path, { kind: 'quantized', kinds }, q);
  }
  return new kind.Given(core, q as QuantizedTensor, path) as GivenTensor & Required<Pick<GivenTensor, Method>>;
}

const anyKind = ['linear', 'codebook', 'blocks'];

/** See Scalepoint.dequantize. */
export function dequantize(
  core: Core,
  q: QuantizedTensor,
  options: { out?: Float32Array | WasmArray | undefined },
  what = 'q',
): Float32Array | WasmArray {
  checkOptionsOf('dequantize', options);
  const { out } = options;
  const tensor = given(core, q, 'restore', anyKind, what);
  const x = new Sink(core, 'float32', tensor.length, out, 'out');
  checkApart(q.data, out, 'out', 'q.data');
  const tile = core.scratch.x;
  tensor.restore((restore) => {
    forEachTile(tensor.length, tensor.inPlace && x.address !== undefined, (start, count) => {
      restore(start, count, x.at(start, tile));
      x.put(start, count, tile);
    });
  });
  return x.result as Float32Array | WasmArray;
}

/** See Scalepoint.pack. */
export function pack(
  core: Core,
  q: LinearQuantizedTensor | CodebookTensor,
  options: { out?: Uint8Array | WasmArray | undefined } = {},
): Uint8Array | WasmArray {
  checkOptionsOf('pack', options);
  const { out } = options;
  const tensor = given(core, q, 'pack', ['linear', 'codebook']);
  checkApart(q.data, out, 'out', 'q.data');
  return tensor.pack(out);
}

/** See Scalepoint.unpack. */
export function unpack(
  core: Core,
  bytes: Uint8Array | WasmArray,
  q: PackedTensor | PackedCodebookTensor,
  options: { out?: CodeArray | WasmArray | undefined } = {},
): CodeArray | WasmArray {
  checkOptionsOf('unpack', options);
  const { out } = options;
  checkApart(bytes, out, 'out', 'bytes');
  const kind = kindOf(q);
  return kind?.unpack === undefined
    ? unpackLinear(core, bytes, q as PackedTensor, out)
    : kind.unpack(core, bytes, q, out);
}

/** The argument q of a layer, as weights: codes if a kernel computes with them, else floats. */
export function weightsOf(core: Core, q: QuantizedTensor): Weights {
  const tensor = given(core, q, 'restore', anyKind);
  const weights = tensor.asWeights?.();
  if (weights !== undefined) return weights;
  const [outputs, inputs] = checkMatrix(tensor.shape, 'q.shape');
  return {
    outputs,
    inputs,
    groupSize: inputs,
    bits: 32,
    zeroPoints: false,
    zeroPoint: 0,
    ownBytes: (rows) => rows * inputs * 4,
    fill: (layer, row, rows, own) => {
      const [start, count] = [row * inputs, rows * inputs];
      tensor.restore((restore) => {
        // Steps at multiples of stepSize begin with whole blocks of every type, as rows do.
        for (let at = 0; at < count; at += stepSize) restore(start + at, Math.min(stepSize, count - at), own + at * 4);
      });
      const bad = core.module.firstNonFinite(own, count);
      if (bad < count)
        throw rangeError(
          `q.data[${start + bad}]`,
          { kind: 'number', finite: true },
          core.view('float32', own + 4 * bad, 1)[0],
        );
      checkStatus(core.module.setLayerFloats(layer, row, own, count));
    },
  };
}

/** The argument `vectors` of an index, if the index can use its codes as they are. */
export function codedVectors(core: Core, q: QuantizedTensor): CodedVectors | undefined {
  const tensor = givenTensor(core, q, 'vectors') as GivenTensor;
  checkMatrix(tensor.shape, 'vectors.shape');
  return tensor.asVectors?.();
}

/** Magnitudes of constants, by which plans know that float16 holds them. */
import type { CastType } from '../../codecs/cast.js';
import { floatsIn } from '../../codecs/floats-in.js';
import type { ByteSource } from '../../files/bytes.js';
import { plainPlace } from '../file/data.js';
import { type OnnxModel, storedOf, type Weight } from '../file/model.js';
import type { OnnxNode } from '../file/proto.js';
import type { Value } from './graph.js';

/** Magnitudes of the elements of a tensor, as float32. */
export interface Magnitudes {
  /** The least and the largest finite element; 0 without any. */
  readonly low: number;
  readonly high: number;
  /** Largest magnitude of a finite element. */
  readonly most: number;
  /** The elements of short tensors. */
  readonly values: Float32Array | undefined;
}

/** Longest tensor whose elements are kept. */
const mostValues = 1 << 14;
/** Largest tensor that is read as a whole: larger ones are no statistics, factors or bounds. */
const mostBytes = 1 << 20;
/** Bytes between tensors that one read takes along, and bytes of a read. */
const [mostGap, mostRead] = [1 << 14, 1 << 22];

function magnitudesOf(bytes: Uint8Array, dtype: string = 'F32'): Magnitudes {
  const { buffer } = bytes.slice(0, bytes.length & ~7);
  let values: Float32Array;
  if (dtype === 'F64') values = Float32Array.from(new Float64Array(buffer));
  else if (dtype === 'F32') values = new Float32Array(bytes.slice(0, bytes.length & ~3).buffer);
  else values = floatsIn(bytes, dtype as CastType);
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) [low, high] = [0, 0];
  return { low, high, most: Math.max(-low, high), values: values.length > mostValues ? undefined : values };
}

/** Constants of a model. */
export class Constants {
  readonly #model: OnnxModel;
  readonly #weights: ReadonlyMap<Weight, Magnitudes>;
  readonly #inNodes = new Map<OnnxNode, Magnitudes | undefined>();

  constructor(model: OnnxModel, weights: ReadonlyMap<Weight, Magnitudes>) {
    this.#model = model;
    this.#weights = weights;
  }

  /** Magnitudes of a weight; undefined if they are unknown. */
  of(weight: Weight): Magnitudes | undefined {
    return this.#weights.get(weight);
  }

  /** Magnitudes of a constant; undefined for other values, and if they are unknown. */
  at({ weight, producer }: Pick<Value, 'weight' | 'producer'>): Magnitudes | undefined {
    if (weight !== undefined) return this.of(weight);
    if (producer === undefined || producer.domain !== '') return undefined;
    if (producer.opType !== 'Constant' && producer.opType !== 'ConstantOfShape') return undefined;
    if (!this.#inNodes.has(producer)) this.#inNodes.set(producer, this.#inNode(producer));
    return this.#inNodes.get(producer);
  }

  #inNode({ attributes }: OnnxNode): Magnitudes | undefined {
    const { skeleton } = this.#model;
    const float = attributes.get('value_float');
    if (float?.f !== undefined && !float.refers) return magnitudesOf(new Uint8Array(Float32Array.of(float.f).buffer));
    const value = attributes.get('value');
    if (value === undefined || value.refers || value.tensor?.element?.name !== 'F32') return undefined;
    const { data, bytes: size } = value.tensor;
    const place = plainPlace(data);
    const bytes = place === undefined ? undefined : skeleton.bytes(place, place + size);
    return bytes && magnitudesOf(bytes);
  }
}

/**
 * Reads the magnitudes of float32 and float64 weights.
 * @param readsLarge true to read weights of more than 1 MiB as well, unless their file is far away
 */
export async function readConstants(model: OnnxModel, readsLarge: boolean): Promise<Constants> {
  const { files, weights } = model;
  const found = new Map<Weight, Magnitudes>();
  const floats = weights.flatMap((weight) => {
    const source = storedOf(weight);
    const isRead = /^F(32|64)$/.test(weight.source.dtype) && source !== undefined && source.bytes > 0;
    return isRead ? [{ weight, source }] : [];
  });
  for (const { weight, source: stored } of readsLarge ? floats : []) {
    const { file = 0, byteOffset, bytes, dtype } = stored;
    const source = files[file] as ByteSource;
    if (bytes <= mostBytes || source.isFar) continue;
    // Read a large tensor piece by piece.
    let [low, high] = [Infinity, -Infinity];
    for (let at = 0; at < bytes; at += mostRead) {
      const piece = await source.read(byteOffset + at, byteOffset + Math.min(bytes, at + mostRead));
      const part = magnitudesOf(piece, dtype);
      [low, high] = [Math.min(low, part.low), Math.max(high, part.high)];
    }
    found.set(weight, { low, high, most: Math.max(-low, high), values: undefined });
  }
  const wanted = floats
    .filter(({ source }) => source.bytes <= mostBytes)
    .sort(({ source: a }, { source: b }) => (a.file ?? 0) - (b.file ?? 0) || a.byteOffset - b.byteOffset);
  for (let i = 0; i < wanted.length; ) {
    const { file = 0, byteOffset: begin, bytes } = (wanted[i] as (typeof wanted)[number]).source;
    // Read neighbors together, because a read of a URL is a request.
    let [end, after] = [begin + bytes, i + 1];
    for (; after < wanted.length; after++) {
      const next = (wanted[after] as (typeof wanted)[number]).source;
      const last = next.byteOffset + next.bytes;
      if ((next.file ?? 0) !== file || next.byteOffset > end + mostGap || last - begin > mostRead) break;
      end = Math.max(end, last);
    }
    const read = await (files[file] as ByteSource).read(begin, end);
    for (const { weight, source } of wanted.slice(i, after)) {
      const at = source.byteOffset - begin;
      found.set(weight, magnitudesOf(read.subarray(at, at + source.bytes), source.dtype));
    }
    i = after;
  }
  return new Constants(model, found);
}

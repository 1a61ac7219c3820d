import type { Layer, QuantizeOptions, Scalepoint } from 'scalepoint';
import { classes } from '../shared/digits.mjs';

/** A way to store the network's weights. */
export interface Storage {
  readonly bits: number;
  readonly granularity: 'tensor' | 'row' | 'group';
  readonly range: 'min-max' | 'mse';
  readonly codes: 'even' | 'nf4';
}

/** Widths from which to choose, the widest first. */
export const widths = [32, 8, 7, 6, 5, 4, 3, 2] as const;

/** The plain way: one scale for each tensor, wide enough for its largest number. */
export const plainStorage = (bits: number): Storage => ({
  bits,
  granularity: 'tensor',
  range: 'min-max',
  codes: 'even',
});

/** Numbers that share a scale in a group. */
const groupSize = 32;

export interface NetworkTensor {
  readonly shape: readonly number[];
  readonly data: Float32Array<ArrayBuffer>;
}
export type Tensors = Readonly<Record<string, NetworkTensor>>;

/** The tensors of a sample: float32, or float16 if there is a core to widen it. */
export function readSample(file: ArrayBuffer, core?: Scalepoint): Tensors {
  const length = Number(new DataView(file).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, length))) as Record<
    string,
    { dtype?: string; shape: number[]; data_offsets: [number, number] }
  >;
  const tensors: Record<string, NetworkTensor> = {};
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(header)) {
    if (dtype === undefined) continue;
    const [begin, end] = data_offsets.map((offset) => 8 + length + offset) as [number, number];
    const bytes = file.slice(begin, end);
    const isHalf = dtype === 'F16' && core !== undefined;
    const data = isHalf ? core.castToFloat32(new Uint16Array(bytes), 'float16') : new Float32Array(bytes);
    tensors[name] = { shape, data };
  }
  return tensors;
}

const tensorOf = (tensors: Tensors, name: string): NetworkTensor => {
  const tensor = tensors[name];
  if (tensor === undefined) throw new TypeError(`the sample has no tensor ${name}`);
  return tensor;
};

/** The network with its weights stored in one way. Scalepoint computes its layers: dense, layer norm, ReLU, dense, ReLU, dense. */
export class Network {
  /** Bytes of all tensors. */
  readonly bytes: number;
  readonly #layers: readonly Layer[];
  readonly #gain: Float32Array;
  readonly #shift: Float32Array;

  /** Quantizes the layers one by one. `pause` comes before each, so that a page stays quick. */
  static async create(
    core: Scalepoint,
    tensors: Tensors,
    storage: Storage,
    pause: () => Promise<unknown> = async () => {},
  ): Promise<Network> {
    const made = [];
    for (const name of ['fc1', 'fc2', 'fc3']) {
      await pause();
      const [weight, bias] = [tensorOf(tensors, `${name}.weight`), tensorOf(tensors, `${name}.bias`)];
      const stored = storedWeights(core, weight, storage);
      made.push({ layer: stored.layer(bias.data), bytes: stored.bytes });
    }
    return new Network(tensors, made);
  }

  private constructor(tensors: Tensors, made: readonly { layer: Layer; bytes: number }[]) {
    this.#layers = made.map(({ layer }) => layer);
    let bytes = made.reduce((sum, one) => sum + one.bytes, 0);
    this.#gain = tensorOf(tensors, 'norm.weight').data;
    this.#shift = tensorOf(tensors, 'norm.bias').data;
    for (const [name, { data }] of Object.entries(tensors)) if (!/^fc.\.weight$/.test(name)) bytes += data.byteLength;
    this.bytes = bytes;
  }

  /** The digit that it reads in each image. */
  read(images: Float32Array, count: number): Uint8Array {
    const [first, second, third] = this.#layers as [Layer, Layer, Layer];
    const scores = third.forward(relu(second.forward(this.#normalize(first.forward(images, { batch: count }), count))));
    return Uint8Array.from({ length: count }, (_, n) => {
      let best = 0;
      for (let c = 1; c < classes; c++) if (scores[n * classes + c]! > scores[n * classes + best]!) best = c;
      return best;
    });
  }

  #normalize(x: Float32Array<ArrayBuffer>, count: number): Float32Array<ArrayBuffer> {
    const size = x.length / count;
    for (let at = 0; at < x.length; at += size) {
      let mean = 0;
      for (let i = 0; i < size; i++) mean += x[at + i]!;
      mean /= size;
      let variance = 0;
      for (let i = 0; i < size; i++) variance += (x[at + i]! - mean) ** 2;
      const sharpness = 1 / Math.sqrt(variance / size + 1e-5);
      for (let i = 0; i < size; i++) x[at + i] = (x[at + i]! - mean) * sharpness * this.#gain[i]! + this.#shift[i]!;
    }
    return relu(x);
  }
}

function relu(x: Float32Array<ArrayBuffer>): Float32Array<ArrayBuffer> {
  for (let i = 0; i < x.length; i++) if (x[i]! < 0) x[i] = 0;
  return x;
}

/** Weights in one storage. */
interface StoredWeights {
  /** Bytes of codes and scales. */
  readonly bytes: number;
  /** The values that the codes stand for. */
  restored(): Float32Array<ArrayBuffer>;
  /** A layer that computes with them. */
  layer(bias?: Float32Array): Layer;
}

/** Stores a weight of shape [outputs, inputs] in one way. */
export function storedWeights(core: Scalepoint, { data, shape }: NetworkTensor, storage: Storage): StoredWeights {
  const { bits, granularity, range, codes } = storage;
  if (bits === 32) {
    const layer = (bias?: Float32Array) => core.matmulFloat(data, { shape, bias });
    return { bytes: data.byteLength, restored: () => data, layer };
  }
  if (codes === 'nf4' && bits === 4) {
    const q = core.quantizeCodebook(data, { codebook: 'nf4', blockSize: groupSize });
    const restored = () => core.dequantize(q);
    const layer = (bias?: Float32Array) => core.matmulFloat(restored(), { shape, bias });
    return { bytes: data.length / 2 + (4 * data.length) / groupSize, restored, layer };
  }
  const scopes: Readonly<Record<Storage['granularity'], NonNullable<QuantizeOptions['granularity']>>> = {
    tensor: { kind: 'per-tensor' },
    row: { kind: 'per-channel', axis: 0 },
    group: { kind: 'per-group', groupSize },
  };
  const dtype = `int${bits}` as NonNullable<QuantizeOptions['dtype']>;
  const q = core.quantize(data, { dtype, shape: [...shape], granularity: scopes[granularity], range });
  return {
    bytes: Math.ceil((data.length * bits) / 8) + 4 * q.scale.length,
    restored: () => core.dequantize(q),
    layer: (bias) => core.linear(q, { bias }),
  };
}

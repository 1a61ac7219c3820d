// One number for all that the core computes in a large set of calls: it is the same for both builds and in every engine, since the same
// number stands here for all of them.
import type { Granularity, Scalepoint } from 'scalepoint';
import { expect, it } from 'vitest';
import {
  bfloat16Value,
  describeBuilds,
  dtypes,
  largestFloat,
  Random,
  roundings,
  schemes,
  smallestFloat,
} from '../support/support.js';

/** FNV-1a over bytes, 32 bits. */
class Digest {
  value = 0x811c9dc5 | 0;

  add(array: ArrayBufferView | Iterable<number>): void {
    const view = ArrayBuffer.isView(array) ? array : Float64Array.from(array);
    const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
    let value = this.value;
    for (let i = 0; i < bytes.length; i++) value = Math.imul(value ^ bytes[i]!, 0x01000193);
    this.value = value;
  }

  toString(): string {
    return (this.value >>> 0).toString(16).padStart(8, '0');
  }
}

/** Arrays of 5 * 9 * 16 elements. */
function arrays(): Float32Array[] {
  const random = new Random(1);
  const n = 720;
  const ties = Float32Array.from({ length: n }, (_, i) => (i - 300.5) * (i % 3 ? 0.125 : 0.1));
  const mixed = random.bell(n);
  const special = [0, -0, smallestFloat, -smallestFloat, 1e30, -1e30, 2 ** -126, 1e-20, largestFloat, -largestFloat];
  for (const [i, v] of special.entries()) mixed[70 * i + 3] = v;
  const wild = new Float32Array(Uint32Array.from({ length: n }, () => random.bits()).buffer);
  for (let i = 0; i < n; i += 37) wild[i] = [Number.NaN, Infinity, -Infinity][i % 3]!;
  return [
    random.bell(n),
    random.uniform(n, 3, 4),
    ties,
    mixed,
    wild,
    new Float32Array(n),
    new Float32Array(n).fill(-7.3),
  ];
}

const granularities: Granularity[] = [
  { kind: 'per-tensor' },
  { kind: 'per-channel', axis: 0 },
  { kind: 'per-channel', axis: 1 },
  { kind: 'per-channel', axis: 2 },
  { kind: 'per-group', groupSize: 16 },
  { kind: 'per-group', groupSize: 5 },
  { kind: 'per-group', groupSize: 4, axis: 1 },
];

function digestOf(sp: Scalepoint): string {
  const digest = new Digest();
  const shape = [5, 9, 16];
  for (const x of arrays()) {
    for (const dtype of dtypes) {
      for (const scheme of schemes) {
        for (const granularity of granularities) {
          for (const rounding of roundings) {
            for (const plain of [true, false]) {
              const rest = plain
                ? {}
                : scheme === 'symmetric'
                  ? { symmetricRange: 'full' as const }
                  : { includeZero: false };
              const q = sp.quantize(x, { dtype, scheme, granularity, rounding, shape, nonFinite: 'saturate', ...rest });
              for (const part of [q.data as Uint8Array, q.scale, q.zeroPoint, sp.dequantize(q), sp.pack(q)])
                digest.add(part);
              // Not the decibels: a logarithm may differ between engines.
              const m = sp.compare(x, q);
              digest.add([m.mse, m.rmse, m.meanAbsoluteError, m.maxAbsoluteError, m.relativeL2, m.cosine, m.nonFinite]);
            }
          }
        }
      }
    }
    const h = sp.histogram(x, { bins: 100 });
    digest.add(h.counts);
    digest.add([h.min, h.max, h.below, h.above]);
  }

  // Longer than a tile.
  const x = new Random(2).bell(300_000);
  for (const granularity of [
    { kind: 'per-tensor' },
    { kind: 'per-channel', axis: 1 },
    { kind: 'per-group', groupSize: 32 },
  ] as const) {
    const q = sp.quantize(x, { dtype: 'uint4', scheme: 'asymmetric', shape: [300, 1000], granularity });
    for (const part of [q.data as Uint8Array, q.scale, q.zeroPoint, sp.dequantize(q), sp.pack(q)]) digest.add(part);
    const { mse, meanAbsoluteError, cosine } = sp.compare(x, q);
    digest.add([mse, meanAbsoluteError, cosine]);
  }

  // Given scales and zero points of all sizes, and 16-bit floats.
  const random = new Random(3);
  const bits = Uint16Array.from({ length: 65536 }, (_, i) => i);
  for (const dtype of dtypes) {
    for (const rounding of roundings) {
      for (const zeroPoint of [0, -1, 127, 128, -(2 ** 22), 2 ** 22, random.below(2 ** 23) - 2 ** 22]) {
        const scale = bfloat16Value(1 + random.below(0x7f7f));
        for (const from of ['float16', 'bfloat16'] as const) {
          const options = { dtype, rounding, from, nonFinite: 'saturate', range: { scale, zeroPoint } } as const;
          digest.add(sp.quantize(bits.subarray(random.below(60_000)), options).data as Uint8Array);
        }
      }
    }
  }
  return digest.toString();
}

describeBuilds('the core', (sp) => {
  it('gives the same bytes as anywhere else', () => {
    expect(digestOf(sp)).toBe('568d05ba');
  });
});

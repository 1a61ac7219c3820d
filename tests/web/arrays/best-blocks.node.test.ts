// search: 'best': lower errors in the same form.
import { blockTypes } from 'scalepoint';
import { expect, it } from 'vitest';
import { searchedTypes } from '../../../web/src/core/blocks.js';
import { describeLarge, expectRefusal, expectSame, float16Value, Random } from '../support/support.js';

/** Weights that the search gives columns of an importance: its multiple of the mean, and 0.2. */
function weightsOf(importance: Float32Array | undefined): Float32Array | undefined {
  const mean = total([...(importance ?? [])]) / (importance?.length ?? 1);
  return mean > 0 ? importance?.map((v) => v / mean + 0.2) : undefined;
}

/** The sums of squared errors of blocks, each by the weight of its column. */
function errorsOf(x: Float32Array, y: Float32Array, elements: number, importance: Float32Array | undefined): number[] {
  return Array.from({ length: x.length / elements }, (_, block) => {
    let sum = 0;
    for (let i = block * elements; i < (block + 1) * elements; i++) {
      sum += (importance?.[i % importance.length] ?? 1) * (x[i]! - y[i]!) ** 2;
    }
    return sum;
  });
}

const total = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);

/** The bytes that the first build gave. */
const known = new Map<string, Uint8Array>();

// tests/cpp/ggml_best_search_test.cpp has hard rows, each block of which gains or stays.
describeLarge("quantizeBlocks with search: 'best'", (sp) => {
  it.each(searchedTypes)('makes the errors of weights less, with the same bytes in every build: %s', (type) => {
    const columns = 1024;
    const random = new Random(7);
    const x = random.bell(8 * columns).map((v) => 0.02 * v);
    for (const weights of [undefined, random.bell(columns).map((v) => Math.exp(2 * v))]) {
      const options = { shape: [8, columns], ...(weights === undefined ? {} : { weights }) };
      const [before, after] = (['usual', 'best'] as const).map((search) => {
        const q = sp.quantizeBlocks(x, type, { ...options, search });
        const key = `${type}, ${search}, ${weights === undefined}`;
        expectSame(q.data, known.get(key) ?? q.data, key);
        known.set(key, q.data);
        const y = sp.dequantize(q);
        return total(errorsOf(x, y, columns, weightsOf(weights)));
      });
      expect(after!).toBeLessThan(0.99 * before!);
    }
  });

  it('comes close to the least that any scale of a block can reach', () => {
    if (!sp.simd) return; // the other build gives the same bytes
    const x = new Random(8).bell(32 * 8);
    for (const [type, levels] of [
      ['Q4_0', Array.from({ length: 16 }, (_, i) => i - 8)],
      ['IQ4_NL', [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]],
    ] as const) {
      const least = x.reduce((sum, _, i) => (i % 32 === 0 ? sum + leastError(x.subarray(i, i + 32), levels) : sum), 0);
      const y = sp.dequantize(sp.quantizeBlocks(x, type, { search: 'best' }));
      const found = total(errorsOf(x, y, 32, undefined));
      // Of 20 scales for either sign, each fitted to its levels, one comes close to the best. Measured: 0.3 % above it.
      expect(found).toBeGreaterThanOrEqual(least * (1 - 1e-9));
      expect(found).toBeLessThanOrEqual(1.01 * least);
    }
  });

  it('takes rows of any length, halves, and memory of its own', () => {
    const columns = (1 << 17) + 32 * 3;
    const x = new Random(4).bell(columns);
    const want = sp.quantizeBlocks(x, 'MXFP4', { search: 'best' });
    const [inside, out] = [sp.allocate('float32', columns), sp.allocate('uint8', want.data.length)];
    inside.view.set(x);
    sp.quantizeBlocks(inside, 'MXFP4', { search: 'best', out });
    expectSame(out.view.slice(), want.data);
    const halves = sp.castFloat(x.subarray(0, 64), 'float16') as Uint16Array;
    const fromHalves = sp.quantizeBlocks(halves, 'Q5_1', { from: 'float16', search: 'best' });
    const floats = Float32Array.from(halves, float16Value);
    expectSame(fromHalves.data, sp.quantizeBlocks(floats, 'Q5_1', { search: 'best' }).data);
    inside.dispose();
    out.dispose();
  });

  it('is refused for other types, and by other names', () => {
    const x = new Float32Array(256);
    for (const type of blockTypes.filter((one) => !searchedTypes.includes(one))) {
      expectRefusal(() => sp.quantizeBlocks(x, type, { search: 'best' }), RangeError, 'search');
    }
    expectRefusal(() => sp.quantizeBlocks(x, 'Q4_K', { search: 'better' as 'best' }), RangeError, 'search');
    const plain = sp.quantizeBlocks(x, 'Q4_K', { search: 'usual' });
    expectSame(plain.data, sp.quantizeBlocks(x, 'Q4_K').data);
  });
});

const halves = Array.from({ length: 0x7c00 }, (_, bits) => float16Value(bits));

/** The least error that a block can have with any scale in float16 of either sign. */
function leastError(x: Float32Array, levels: readonly number[]): number {
  const far = x.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
  let least = Number.POSITIVE_INFINITY;
  // A scale of which the farthest element is half a level, or twice all levels, restores nothing well.
  for (const half of halves.filter((v) => v > far / 256 && v < far / 4)) {
    for (const scale of [half, -half]) {
      let sum = 0;
      for (const v of x) {
        let nearest = Number.POSITIVE_INFINITY;
        for (const level of levels) nearest = Math.min(nearest, Math.abs(v - scale * level));
        sum += nearest ** 2;
        if (sum > least) break;
      }
      least = Math.min(least, sum);
    }
  }
  return least;
}

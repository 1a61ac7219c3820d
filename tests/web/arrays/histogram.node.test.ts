import type { FloatInput, HistogramOptions } from 'scalepoint';
import { afterEach, expect, it } from 'vitest';
import { describeBuilds, expectGood, expectRefusal, largestFloat, Random, smallestFloat } from '../support/support.js';

// tests/cpp/min_max_test.cpp counts any number of values in any number of bins.
describeBuilds('histogram', (sp) => {
  afterEach(() => expectGood(sp));

  it('counts a small example', () => {
    // Bins of width 1 from 0 to 4. An edge belongs to the bin that begins there, the last one to the bin that ends there.
    const x = [0, 0.5, 1, 1.999, 2, 3, 3.5, 4];
    expect(sp.histogram(x, { bins: 4 })).toEqual({
      min: 0,
      max: 4,
      counts: new Uint32Array([2, 2, 1, 3]),
      below: 0,
      above: 0,
    });
  });

  it('has 256 bins over the range of the values by default', () => {
    const x = new Random(80).bell(1000);
    const h = sp.histogram(x);
    expect(h.counts.length).toBe(256);
    expect([h.min, h.max]).toEqual([Math.min(...x), Math.max(...x)]);
    expect(h.counts.reduce((a, b) => a + b, 0)).toBe(1000);
    expect([h.below, h.above]).toEqual([0, 0]);
  });

  it('counts values outside of the range apart, infinities with them, and NaN nowhere', () => {
    const x = [-Infinity, -5, -1, 0, Number.NaN, 1, 1.0001, 7, Infinity, Number.NaN];
    expect(sp.histogram(x, { bins: 2, min: -1, max: 1 })).toEqual({
      min: -1,
      max: 1,
      counts: new Uint32Array([1, 2]),
      below: 2,
      above: 3,
    });
    // The range is the one of the finite values.
    expect(sp.histogram(x, { bins: 2 })).toEqual({
      min: -5,
      max: 7,
      counts: new Uint32Array([3, 3]),
      below: 1,
      above: 1,
    });
  });

  it('puts a constant into the first bin', () => {
    for (const c of [0, 1, -7.5, smallestFloat, largestFloat]) {
      const h = sp.histogram(new Float32Array(20).fill(c), { bins: 5 });
      expect(h).toEqual({ min: c, max: c, counts: new Uint32Array([20, 0, 0, 0, 0]), below: 0, above: 0 });
    }
    const h = sp.histogram([1, 2, 3, 2], { bins: 3, min: 2, max: 2 });
    expect(h).toEqual({ min: 2, max: 2, counts: new Uint32Array([2, 0, 0]), below: 1, above: 1 });
  });

  it('gives zeros for nothing, and for nothing finite', () => {
    const zeros = new Uint32Array(4);
    expect(sp.histogram([], { bins: 4 })).toEqual({ min: 0, max: 0, counts: zeros, below: 0, above: 0 });
    expect(sp.histogram([], { bins: 4, min: -1, max: 2 })).toEqual({
      min: -1,
      max: 2,
      counts: zeros,
      below: 0,
      above: 0,
    });
    expect(sp.histogram([Number.NaN], { bins: 4 })).toEqual({ min: 0, max: 0, counts: zeros, below: 0, above: 0 });
    const infinite = [Infinity, -Infinity, Infinity];
    expect(sp.histogram(infinite, { bins: 4 })).toEqual({ min: 0, max: 0, counts: zeros, below: 1, above: 2 });
  });

  it('rounds a given range to float32', () => {
    const h = sp.histogram([0.1], { min: 0.1, max: 0.3 });
    expect([h.min, h.max]).toEqual([Math.fround(0.1), Math.fround(0.3)]);
    expect(h.below).toBe(0);
  });

  it('takes -0 for 0', () => {
    const h = sp.histogram([-0, 0, 1], { bins: 1, min: 0 });
    expect([h.below, h.counts[0]]).toEqual([0, 3]);
    const fresh = sp.histogram([-0, -0]);
    expect([Object.is(fresh.min, 0), Object.is(fresh.max, 0)]).toEqual([true, true]);
  });

  it('leaves its input as it was, and gives an array of its own', () => {
    const x = new Random(82).bell(100);
    const copy = x.slice();
    const { counts } = sp.histogram(x);
    expect(x).toEqual(copy);
    expect(counts.buffer.byteLength).toBe(1024);
  });

  it('refuses wrong options, naming them', () => {
    const x: FloatInput = [1, 2, 3];
    const histogram = (options: unknown) => () => sp.histogram(x, options as HistogramOptions);
    expectRefusal(histogram(null), TypeError, 'options');
    expectRefusal(histogram(10), TypeError, 'options');
    expectRefusal(histogram({ bin: 10 }), TypeError, 'bin');
    expectRefusal(histogram({ bins: '10' }), TypeError, 'bins');
    expectRefusal(histogram({ bins: null }), TypeError, 'bins');
    expectRefusal(histogram({ bins: 10n }), TypeError, 'bins');
    expectRefusal(histogram({ bins: 0 }), RangeError, 'bins');
    expectRefusal(histogram({ bins: -1 }), RangeError, 'bins');
    expectRefusal(histogram({ bins: 1.5 }), RangeError, 'bins');
    expectRefusal(histogram({ bins: Number.NaN }), RangeError, 'bins');
    expectRefusal(histogram({ bins: 2 ** 20 + 1 }), RangeError, 'bins');
    expectRefusal(histogram({ bins: 2 ** 32 }), RangeError, 'bins');
    expectRefusal(histogram({ min: '0' }), TypeError, 'min');
    expectRefusal(histogram({ max: null }), TypeError, 'max');
    expectRefusal(histogram({ min: Number.NaN }), RangeError, 'min');
    expectRefusal(histogram({ max: Infinity }), RangeError, 'max');
    expectRefusal(histogram({ min: -1e39 }), RangeError, 'min');
    expectRefusal(histogram({ min: 2, max: 1 }), RangeError, 'min');
    expectRefusal(histogram({ min: 5 }), RangeError, 'min');
    expectRefusal(histogram({ from: 'float8' }), RangeError, 'from');
    expectRefusal(histogram({ from: 'float16' }), TypeError, 'x');
  });
});

import type { QuantizeOptions, Scalepoint } from 'scalepoint';
import type { Series } from '../shared/lines.js';
import type { DataSet } from './data.js';
import { type Evaluation, evaluate, quantizeOptions, type Slice } from './evaluate.js';
import { partsOf } from './parts.js';
import { granularityOf, percentile, type RangeMethod, rangeLabels, rangeMethods, type Settings } from './settings.js';
import type { ClippingView } from './view.js';

/** Most numbers that a curve is computed from. A sample of more numbers gives a curve of the same shape. */
const mostNumbers = 65_536;
/** Number of scales that the clipping curve tries. */
const steps = 48;
const learnedBits = [2, 3, 4, 5, 6] as const;

/** At most `mostNumbers` evenly spaced values. */
function thinned(values: Float32Array): Float32Array {
  const every = Math.ceil(values.length / mostNumbers);
  return every === 1 ? values : values.filter((_, i) => i % every === 0);
}

/** The `range` option of `quantize` for a method. */
function rangeOption(method: RangeMethod): Exclude<QuantizeOptions['range'], undefined> {
  return method === 'percentile' ? { percentile } : method;
}

/**
 * SQNR against the scale, for the part that the pictures show. The scales are k / 48 of the min-max scale for k = 1 to 48; points at
 * -20 dB and below are left out.
 */
export function clippingCurve(core: Scalepoint, { settings }: Evaluation, slice: Slice): ClippingView {
  const values = thinned(slice.values);
  const { shape, granularity, range, ...options } = quantizeOptions({ ...settings, cover: 100 }, [values.length]);
  const { rounding, ...forParameters } = options;
  const quantized = (given: QuantizeOptions['range']) =>
    core.quantize(values, { ...options, ...(given && { range: given }) });
  const whole = core.chooseQuantizationParameters(values, forParameters);
  const points = Array.from({ length: steps }, (_, i) => {
    const share = (i + 1) / steps;
    const q = quantized({ scale: whole.scale[0]! * share, zeroPoint: whole.zeroPoint[0]! });
    return { x: 100 * share, y: core.compare(values, q).sqnrDb };
  }).filter(({ y }) => y > -20);
  const marks = rangeMethods.map((method) => {
    const q = quantized(rangeOption(method));
    const share = q.scale[0]! / whole.scale[0]!;
    return { method, x: 100 * share, y: core.compare(values, q).sqnrDb, label: rangeLabels[method] };
  });
  return { points, marks, length: slice.values.length };
}

/** SQNR against bits for linear codes (with min-max and with the range of least error), learned codebooks, NF4 and FP4. */
export function codeCurves(core: Scalepoint, data: DataSet, settings: Settings): readonly Series[] {
  const bitsOf = [2, 3, 4, 5, 6, 7, 8] as const;
  const plain = { ...settings, codes: 'integers' as const, cover: 100 };
  const linear = (range: RangeMethod) =>
    bitsOf.map((bits) => ({
      x: bits,
      y: evaluate(core, data, { ...plain, bits, range }, mostNumbers).comparison.sqnrDb,
    }));
  // quantizeCodebook takes finite numbers only.
  const values = evaluate(core, data, plain, mostNumbers).values.filter(Number.isFinite);
  if (values.length === 0) return [];
  const parts = partsOf(granularityOf(settings, data.shape.length), data.shape);
  const blockSize =
    parts.kind === 'per-group' ? parts.span : parts.kind === 'per-channel' ? parts.inner : values.length;
  const codes = (codebook: 'nf4' | 'fp4' | { learn: number }) => {
    const q = core.quantizeCodebook(values, { codebook, blockSize: Math.max(1, Math.min(blockSize, values.length)) });
    return core.compare(values, q).sqnrDb;
  };
  return [
    { name: `${settings.signed ? 'int' : 'uint'}, min-max`, style: 0, points: linear('min-max') },
    { name: 'best range (mse)', style: 1, points: linear('mse') },
    {
      name: 'learned codes',
      style: 2,
      points: learnedBits.map((bits) => ({ x: bits, y: codes({ learn: 2 ** bits }) })),
    },
    { name: 'NF4', style: 3, points: [{ x: 4, y: codes('nf4') }], apart: true },
    { name: 'FP4', style: 4, points: [{ x: 4, y: codes('fp4') }], apart: true },
  ];
}

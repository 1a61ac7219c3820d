// The bundled sample model: the file, and its accuracy after quantization.
import { readFileSync } from 'node:fs';
import { type DType, load } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import { countRight, drawTestDigits, samplePath, type Tensors } from '../../../scripts/site/digits.mjs';

interface Entry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

/** Parses a safetensors file without the code under test. */
function parse(bytes: Uint8Array<ArrayBuffer>) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const start = 8 + Number(view.getBigUint64(0, true));
  const { __metadata__: metadata, ...entries } = JSON.parse(
    new TextDecoder('utf-8', { fatal: true }).decode(bytes.subarray(8, start)),
  ) as {
    __metadata__: Record<string, string>;
  } & Record<string, Entry>;
  const tensors: Tensors = {};
  for (const [
    name,
    {
      shape,
      data_offsets: [begin, end],
    },
  ] of Object.entries(entries as Record<string, Entry>)) {
    tensors[name] = { shape, data: new Float32Array(bytes.slice(start + begin, start + end).buffer) };
  }
  return { start, metadata, entries: entries as Record<string, Entry>, tensors };
}

const bytes = new Uint8Array(readFileSync(samplePath));
const { start, metadata, entries, tensors } = parse(bytes);
const digits = drawTestDigits();

describe('the sample model', () => {
  it('is a small and valid safetensors file', () => {
    expect(bytes.length).toBeLessThanOrEqual(300_000);
    expect(bytes[8]).toBe('{'.charCodeAt(0));
    expect(start % 8).toBe(0);
    let end = 0;
    for (const { dtype, shape, data_offsets } of Object.values(entries).sort(
      (a, b) => a.data_offsets[0] - b.data_offsets[0],
    )) {
      expect(dtype).toBe('F32');
      expect(data_offsets).toEqual([end, end + 4 * shape.reduce((product, size) => product * size, 1)]);
      end = data_offsets[1];
    }
    expect(start + end).toBe(bytes.length);
    for (const { data } of Object.values(tensors)) expect(data.every(Number.isFinite)).toBe(true);
  });

  it('has a description, a license and its origin in the metadata', () => {
    expect(metadata).toMatchObject({ license: 'MIT', made_by: 'scripts/site/digits.mjs' });
    expect(metadata.description).toContain('digits');
  });

  it('has the accuracy that its metadata says, above 95 % on digits that it was not trained on', () => {
    const right = countRight(tensors, digits);
    expect(metadata.test_accuracy).toBe(`${right} of ${digits.count} digits`);
    expect(right / digits.count).toBeGreaterThan(0.95);
  });
});

describe('the sample model, quantized', async () => {
  const sp = await load();

  /** The model with weights quantized with one scale for each row and dequantized. Biases and the norm are unchanged. */
  function quantized(dtype: DType): Tensors {
    return Object.fromEntries(
      Object.entries(tensors).map(([name, { shape, data }]) => {
        if (shape.length < 2) return [name, { shape, data }];
        const q = sp.quantize(data, { dtype, shape, granularity: { kind: 'per-channel', axis: 0 } });
        return [name, { shape, data: sp.dequantize(q) }];
      }),
    );
  }
  const lost = (dtype: DType) => countRight(tensors, digits) - countRight(quantized(dtype), digits);

  it('moves no int8 weight by more than half a step, up to float32 rounding', () => {
    for (const { shape, data } of Object.values(tensors)) {
      const [rows = 1, columns = data.length] = shape.length < 2 ? [1, data.length] : shape;
      const q = sp.quantize(data, { shape: [rows, columns], granularity: { kind: 'per-channel', axis: 0 } });
      const back = sp.dequantize(q);
      // The quotient and the product are at most 127.5 steps, and rounding each to float32 adds at most 127.5 * 2^-24 steps.
      const half = 0.5 + 2 * 127.5 * 2 ** -24;
      const worst = data.reduce(
        (most, x, i) => Math.max(most, Math.abs(x - back[i]!) / q.scale[Math.floor(i / columns)]!),
        0,
      );
      expect(worst).toBeLessThanOrEqual(half);
    }
  });

  // The arithmetic gives the same bits on every machine, so these counts cannot vary.
  it('loses no digit in int8', () => {
    expect(lost('int8')).toBe(0);
  });

  it('loses at most one of a thousand digits in int4', () => {
    expect(lost('int4')).toBeLessThanOrEqual(1);
  });

  it('loses many digits in int2, which shows that the count is sensitive', () => {
    expect(lost('int2')).toBeGreaterThan(100);
  });
});

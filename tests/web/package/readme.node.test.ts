import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { load } from 'scalepoint';
import * as model from 'scalepoint/model';
import { describe, expect, it } from 'vitest';

const readme = readFileSync(new URL('../../../README.md', import.meta.url), 'utf8');
const sample = fileURLToPath(new URL('../../../web/demo/public/samples/digits.safetensors', import.meta.url));
const blocks = [...readme.matchAll(/```ts\n(.*?)```/gs)].map(([, code = '']) => code);

/** Runs an example of the README with `load`, `sp`, `file` and the functions for models in scope. Returns the named variables. */
async function run(code: string, names: string[]): Promise<Record<string, unknown>> {
  const AsyncFunction = (async () => {}).constructor as FunctionConstructor;
  const body = code.replace(/^import .*$/m, '');
  const sp = /const sp =/.test(body) ? '' : 'const sp = await load();\n';
  const given = { load, file: sample, ...model };
  // In a block of its own, an example may call a variable like a function that it does not use.
  const program = new AsyncFunction(...Object.keys(given), `{ ${sp}${body}\nreturn { ${names.join(', ')} }; }`);
  return await program(...Object.values(given));
}

describe('the examples of the README', () => {
  it('are four, and each is tested below', () => {
    expect(blocks).toHaveLength(4);
  });

  it('quantize, dequantize, measure and pack an array as their comments say', async () => {
    const { q, restored, weights, sqnrDb, bytes } = (await run(blocks[0]!, [
      'q',
      'restored',
      'weights',
      'sqnrDb',
      'bytes',
    ])) as {
      q: { data: Int8Array; scale: Float32Array };
      restored: Float32Array;
      weights: Float32Array;
      sqnrDb: number;
      bytes: Uint8Array;
    };
    expect(q.data).toBeInstanceOf(Int8Array);
    expect(q.data).toHaveLength(32);
    expect(Math.min(...q.data)).toBeGreaterThanOrEqual(-8);
    expect(Math.max(...q.data)).toBeLessThanOrEqual(7);
    expect(q.scale).toHaveLength(4);
    for (const [i, x] of weights.entries()) {
      // Half a step, plus the rounding of the quotient and of the product. Each is off by at most 2^-24 of a value below 1, in the unit of x.
      expect(Math.abs(x - restored[i]!)).toBeLessThanOrEqual(q.scale[Math.floor(i / 8)]! / 2 + 2 * 2 ** -24);
    }
    expect(bytes).toHaveLength(16);
    expect(blocks[0]).toContain(`// ${sqnrDb.toFixed(1)} dB`);
  });

  it('inspect, plan, quantize, compare and verify a model', async () => {
    const names = ['format', 'tensors', 'plan', 'report', 'config', 'small', 'total', 'problems'];
    const { format, tensors, plan, report, config, small, total, problems } = (await run(blocks[1]!, names)) as {
      format: string;
      tensors: unknown[];
      plan: model.ModelPlan;
      report: model.ModelReport;
      config: Record<string, unknown>;
      small: Blob;
      total: model.ErrorMeasures;
      problems: unknown[];
    };
    expect(problems).toEqual([]);
    expect(format).toBe('safetensors');
    expect(tensors).toHaveLength(8);
    expect(small.size).toBe(plan.totals.bytesAfter);
    expect(report.totals.bytesAfter).toBe(small.size);
    expect(config.quantization_config).toBeDefined();
    expect(total.maxAbsoluteError).toBe(Math.max(...report.tensors.map(({ error }) => error?.maxAbsoluteError ?? 0)));
  });

  it('run a layer and a vector search', async () => {
    const { y, indices, weights } = (await run(blocks[2]!, ['y', 'indices', 'weights'])) as {
      y: Float32Array;
      indices: Uint32Array;
      weights: Float32Array;
    };
    expect(y).toHaveLength(48);
    for (let o = 0; o < 16; o++) {
      const row = weights.subarray(o * 64, (o + 1) * 64);
      const exact = row.reduce((sum, w) => sum + 0.5 * w, 0);
      // Inputs of 0.5 quantize without error. Each weight is off by at most half a step of int4, which is 1 / 14 of the largest weight.
      expect(Math.abs(y[o]! - exact)).toBeLessThanOrEqual((64 * 0.5) / 14 + 2 ** -20);
      expect([y[16 + o], y[32 + o]]).toEqual([y[o], y[o]]);
    }
    expect(indices[0]).toBe(0);
  });

  it('work on arrays in wasm memory', async () => {
    const { x } = (await run(blocks[3]!, ['x'])) as { x: { view: unknown } };
    // The last line of the example disposes of x.
    expect(() => x.view).toThrow(/dispose/);
  });
});

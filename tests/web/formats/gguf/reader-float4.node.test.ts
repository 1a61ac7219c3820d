// MXFP4 and NVFP4 in GGUF with awkward weights, restored as ggml does. tests/web/support/readers/gguf.ts names the sources. Results also run in
// llama.cpp where its libraries are installed: tests/web/conversions/nvfp4.node.test.ts.
import { describe, expect, it } from 'vitest';
import { type QuantizeModelOptions, quantizeModel, readFloats } from '../../../../web/src/model.js';
import { awkward, groups } from '../../support/readers/awkward.js';
import { mxfp4Rule, readGguf, restoredBlocks } from '../../support/readers/gguf.js';
import { floatsOf, must } from '../../support/readers/safetensors.js';
import { expectEqual, squaredError } from '../../support/readers/same.js';
import { ggufFile } from '../../support/tiny-llama.js';

const { zeros, bell, ties } = groups;
const shapes = {
  attn_q: [5, 64],
  attn_k: [1, 64],
  attn_v: [33, 128],
  ffn_up: [3, 192],
  ffn_gate: [2, 64],
  ffn_down: [4, 96],
} as const;
const kinds: Readonly<Record<string, typeof groups>> = {
  attn_k: { bell } as never,
  ffn_gate: { zeros } as never,
  ffn_up: { bell, ties } as never,
};

const weights = Object.fromEntries(
  Object.entries(shapes).map(([name, shape], seed) => [
    `blk.0.${name}.weight`,
    awkward('F32', shape, { seed, kinds: kinds[name] ?? groups }),
  ]),
);

const file = ggufFile({
  pairs: [
    ['general.architecture', 'string', 'llama'],
    ['llama.block_count', 'u32', 1],
  ],
  tensors: Object.entries(weights).map(([name, { shape, values }]) => ({
    ...{ name, dtype: 'F32', ne: [...shape].reverse(), data: new Uint8Array(values.slice().buffer) },
  })),
} as never);

const nameOf = (name: string) => `blk.0.${name}.weight`;

/** Restored weights in a type, by name, and the types of all. */
async function made(to: string, search: string, type: number) {
  const bytes = await (await quantizeModel(file, { to, search, workers: 0 } as QuantizeModelOptions)).bytes();
  const tensors = readGguf(bytes);
  const left = new Set(tensors.keys());
  const restored = new Map<string, Float32Array>();
  for (const name of Object.keys(weights)) {
    left.delete(name);
    const tensor = tensors.get(name)!;
    if (tensor.type !== type) continue;
    let whole = 1;
    if (to === 'NVFP4') {
      const scale = tensors.get(name.replace('.weight', '.scale'))!;
      left.delete(name.replace('.weight', '.scale'));
      expect([scale.type, ...scale.sizes], name).toEqual([0, 1]);
      [whole] = floatsOf({ dtype: 'F32', shape: [1], bytes: scale.bytes }) as unknown as [number];
    }
    restored.set(name, restoredBlocks(tensor, whole));
    expectEqual((await readFloats(bytes, name, { workers: 0 })).data, restored.get(name)!, `restored ${name}`);
  }
  expect([...left]).toEqual([]);
  return { restored, types: Object.fromEntries([...tensors].map(([name, tensor]) => [name, tensor.type])) };
}

const errorsOf = (name: string, restored: Float32Array, group: number) =>
  squaredError(weights[name]!.values, restored, group);

describe('float4 in GGUF', () => {
  it('has the errors of ggml in MXFP4, and no larger ones after a search', async () => {
    const [usual, best] = [await made('MXFP4', 'usual', 39), await made('MXFP4', 'best', 39)];
    // One row counts as a vector.
    expect([...usual.restored.keys()]).toEqual(Object.keys(weights).filter((name) => name !== nameOf('attn_k')));
    for (const [name, restored] of usual.restored) {
      const { values } = weights[name]!;
      const theirs = Array.from({ length: values.length / 32 }, (_, g) =>
        mxfp4Rule(values.subarray(g * 32, (g + 1) * 32)),
      );
      expectEqual(restored, theirs.flat(), `${name} beside ggml's rule`);
      const before = errorsOf(name, restored, 32);
      for (const [g, error] of errorsOf(name, best.restored.get(name)!, 32).entries())
        must(error <= before[g]!, `${name}, block ${g}: error ${error} above ${before[g]}`);
    }
  });

  it('has a scale for each matrix in NVFP4, and no larger error after a search', async () => {
    const [usual, best] = [await made('NVFP4', 'usual', 40), await made('NVFP4', 'best', 40)];
    expect([...usual.restored.keys()]).toEqual(['attn_q', 'attn_v', 'ffn_up', 'ffn_gate'].map(nameOf));
    expect(usual.types[nameOf('ffn_down')]).toBe(8);
    for (const [name, restored] of usual.restored) {
      const [before, after] = [restored, best.restored.get(name)!].map((one) => errorsOf(name, one, one.length)[0]!);
      must(after! <= before!, `${name}: error ${after} above ${before}`);
    }
  });
});

// The number of requests to the hub, and the bytes that come.
import { describe, expect, it } from 'vitest';
import { type ModelPlan, planModel, quantizeModel } from '../../../web/src/model.js';
import { useHub } from './support.js';

const place = useHub();

describe('few requests', () => {
  /** A header and as many bytes as wanted behind it, made on the fly. */
  function made(tensors: readonly [name: string, shape: readonly [number, number]][]) {
    let at = 0;
    const entries = tensors.map(([name, [rows, columns]]) => {
      const begin = at;
      at += rows * columns * 2;
      return [name, { dtype: 'BF16', shape: [rows, columns], data_offsets: [begin, at] }];
    });
    const text = JSON.stringify(Object.fromEntries(entries));
    const header = new TextEncoder().encode(text.padEnd(Math.ceil(text.length / 8) * 8));
    const head = new Uint8Array(8 + header.length);
    new DataView(head.buffer).setUint32(0, header.length, true);
    head.set(header, 8);
    const size = head.length + at;
    const read = (offset: number, length: number) => {
      const bytes = new Uint8Array(Math.min(length, size - offset));
      if (offset < head.length) bytes.set(head.subarray(offset, offset + bytes.length));
      return bytes;
    };
    return { size, read, sha256: '0'.repeat(64) };
  }
  const layers = (count: number, width: number, inner: number) =>
    // Safetensors of Python are sorted by name: layer 10 comes before layer 2.
    Array.from({ length: count }, (_, i) => `model.layers.${i}`)
      .sort()
      .flatMap((layer): [string, [number, number]][] => [
        [`${layer}.input_layernorm.weight`, [1, width]],
        [`${layer}.mlp.down_proj.weight`, [width, inner]],
        [`${layer}.mlp.gate_proj.weight`, [inner, width]],
        [`${layer}.mlp.up_proj.weight`, [inner, width]],
        [`${layer}.self_attn.q_proj.weight`, [width, width]],
      ]);

  it('545 MB take at most 60, and come once', async () => {
    // 24 layers of 22.7 MB.
    const file = made(layers(24, 1024, 3364));
    expect(file.size).toBeGreaterThan(545e6);
    const hub = await place.start({
      repositories: { 'acme/half': { files: { 'model.safetensors': file, 'config.json': '{}' } } },
    });
    await quantizeModel('hf:acme/half', { to: 'int8', workers: 0, output: place.path('half.safetensors') });
    expect(hub.requests.length).toBeLessThanOrEqual(60);
    const sent = hub.requests.reduce((sum, one) => sum + one.sent, 0);
    expect(sent).toBeLessThan(file.size * 1.01);
  });

  it('a plan of 8 billion weights reads less than 2 MB', async () => {
    // As in Llama 3.1 8B: 32 layers in four files.
    const all = layers(32, 4096, 14336);
    const shards = [0, 1, 2, 3].map((i) => all.slice((all.length / 4) * i, (all.length / 4) * (i + 1)));
    const names = shards.map((_, i) => `model-0000${i + 1}-of-00004.safetensors`);
    const map = Object.fromEntries(shards.flatMap((some, i) => some.map(([name]) => [name, names[i]])));
    const files = {
      'config.json': '{}',
      'model.safetensors.index.json': JSON.stringify({ weight_map: map }),
      ...Object.fromEntries(shards.map((some, i) => [names[i], made(some)])),
    };
    const hub = await place.start({ repositories: { 'acme/eight': { files } } });
    const plan: ModelPlan = await planModel('hf:acme/eight', { to: 'int8' });
    expect(plan.totals.bytesBefore).toBeGreaterThan(11e9);
    const sent = hub.requests.reduce((sum, one) => sum + one.sent, 0);
    expect(sent).toBeLessThan(2e6);
    expect(hub.requests.length).toBeLessThanOrEqual(14);
  });
});

// Files with many names: the time is proportional to their number.
import { loadTensors, planModel, saveTensors, verifyModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { readAdapter } from '../../../web/src/formats/adapters/adapter.js';
import { LayerNames } from '../../../web/src/formats/adapters/names.js';
import { openSource } from '../../../web/src/formats/files/open.js';
import { ModuleLists } from '../../../web/src/formats/safetensors/layouts/compressed-tensors.js';
import { openSafetensors } from '../../../web/src/formats/safetensors/shards.js';
import * as onnx from '../formats/onnx/encoder.js';
import { expectProportional } from '../support/growth.js';
import { safetensors } from '../support/models.js';

const list = <T>(n: number, make: (i: number) => T): T[] => Array.from({ length: n }, (_, i) => make(i));
const one = { dtype: 'F32', shape: [1, 1], data: new Float32Array(1) };

describe('the time is proportional to the number of', () => {
  it('tensors that loadTensors reads', async () => {
    const files = new Map<number, Uint8Array<ArrayBuffer>>();
    for (const n of [2500, 10_000]) {
      files.set(n, await saveTensors(Object.fromEntries(list(n, (i) => [`t${i}`, Float32Array.of(i)]))));
    }
    await expectProportional((n) => () => loadTensors(files.get(n) as Uint8Array<ArrayBuffer>), 2500);
  });

  it('weights whose names have one end, and of spellings of an end', async () => {
    await expectProportional((n) => {
      const names = list(n, (i) => `blocks.${i}.to_q.weight`);
      return () => expect(new LayerNames(names).find('lora_unet_blocks_7_to_q')).toEqual([names[7]]);
    }, 10_000);
    // Each spelling has dots in other places, so that it is none of the weights.
    const spelled = (i: number) => `x.a${list(16, (bit) => `${(i >> bit) & 1 ? '.' : '_'}b`).join('')}`;
    await expectProportional((n) => {
      const layers = new LayerNames(list(n, (i) => `p${i}.x_a${'_b'.repeat(16)}.weight`));
      return () => list(n, (i) => expect(layers.find(spelled(i + 1))).toEqual([]));
    }, 1000);
  });

  it('models that the metadata of an adapter describe', async () => {
    await expectProportional((n) => {
      const tensors = list(n, (i) => [`m${i}.l.lora_A.weight`, `m${i}.l.lora_B.weight`]).flat();
      const alphas = JSON.stringify(Object.fromEntries(list(n, (i) => [`m${i}.lora_alpha`, i])));
      const file = safetensors(Object.fromEntries(tensors.map((name) => [name, one])), {
        lora_adapter_metadata: alphas,
      });
      return async () => {
        const source = await openSource(file);
        const opened = await openSafetensors([{ input: file, source }], openSource);
        const { layers } = await readAdapter(opened, 'a', 1, async () => undefined);
        expect(layers.map(({ alpha }) => alpha)).toEqual(list(n, (i) => i));
      };
    }, 1000);
  });

  it('modules that a configuration names', async () => {
    await expectProportional((n) => {
      const names = list(n, (i) => `layers.${i}.q_proj`);
      return () => {
        const lists = new ModuleLists([names.slice(n / 2), ['re:.*7\\.q_proj$'], names.slice(0, n / 2)]);
        expect(names.filter((name) => lists.find(name) === 1)).toHaveLength(n / 20);
      };
    }, 10_000);
  });

  it('graphs inside of a graph, and inputs of a graph', async () => {
    const branch = (i: number) => ({
      graph: onnx.graph({
        nodes: [{ op: 'MatMul', in: ['x', `w${i}`], out: [`t${i}`] }],
        initializers: [onnx.floatTensor(`w${i}`, [1, 1])],
        inputs: [],
        outputs: [[`t${i}`, [1, 1]]],
      }),
    });
    await expectProportional((n) => {
      const file = onnx.model({
        nodes: list(n, (i) => ({ op: 'If', in: ['b'], out: [`y${i}`], attributes: { then_branch: branch(i) } })),
        initializers: [],
        inputs: list(n, (i): [string, number[]] => [`i${i}`, [1]]),
        outputs: [['y0', [1, 1]]],
      });
      return () => planModel(file, { to: 'q8' });
    }, 1000);
  });
});

it('a configuration has at most 1000 expressions for modules, and an adapter 5000 alphas', async () => {
  const targets = list(1001, (i) => `re:a${i}`);
  expect(() => new ModuleLists([targets])).toThrow(/more than 1000 expressions/);
  const coded = { 'a.weight': one };
  const config = { quantization_config: { quant_method: 'compressed-tensors', ignore: targets, config_groups: {} } };
  await expect(
    verifyModel([safetensors(coded), new File([JSON.stringify(config)], 'config.json')]),
  ).resolves.toBeDefined();
  const file = safetensors({ 'a.lora_A.weight': one, 'a.lora_B.weight': one });
  const opened = await openSafetensors([{ input: file, source: await openSource(file) }], openSource);
  const alphas = { lora_alpha: 1, alpha_pattern: Object.fromEntries(list(5001, (i) => [`l${i}`, 1])) };
  const beside = async () => new TextEncoder().encode(JSON.stringify(alphas));
  await expect(readAdapter(opened, 'a', 1, beside)).rejects.toThrow(/alpha_pattern has 5001 entries, of 5000 allowed/);
});

// Models with experts: statistics against a forward pass in float64, and the same results with any number of workers.
import { describe, expect, it } from 'vitest';
import { convertHuggingface } from '../../../web/src/architectures/huggingface/convert.js';
import { calibrateModel, evaluateModel, inspectModel, quantizeModel, readFloats } from '../../../web/src/model.js';
import { type Decoder, decoderLogits } from '../support/forward.js';
import { fileOf, folderOf } from '../support/recipes.js';
import { decoderConfig, decoderWeights, plainTokenizer, tiny } from '../support/tiny-huggingface.js';

const experts = {
  count: 5,
  router: 'mlp.gate',
  names: (e: number) => ['gate', 'up', 'down'].map((n) => `mlp.experts.${e}.${n}_proj`),
};
const weights = decoderWeights({ headNorms: true, experts });
const decoder: Decoder = {
  layers: tiny.layers,
  heads: tiny.heads,
  keyHeads: tiny.keyHeads,
  head: 16,
  theta: 10000,
  epsilon: 1e-5,
  headName: 'lm_head.weight',
  experts: {
    router: experts.router,
    expert: (e) => experts.names(e) as unknown as readonly [string, string, string],
  },
  usedExperts: 2,
};

async function file(): Promise<Blob> {
  const config = {
    head_dim: 16,
    num_experts: 5,
    num_experts_per_tok: 2,
    moe_intermediate_size: 96,
    norm_topk_prob: true,
  };
  const files = {
    'config.json': decoderConfig('Qwen3MoeForCausalLM', config),
    'tokenizer.json': plainTokenizer(),
  };
  return new Blob([fileOf(await convertHuggingface(folderOf(weights, files)), weights) as Uint8Array<ArrayBuffer>]);
}

const tokens = [1, 17, 200, 33, 4, 99, 250, 8, 17, 121, 3, 77];

describe('a model with experts', () => {
  it('counts the tokens that reach each expert', async () => {
    const model = await file();
    const statistics = await calibrateModel(model, tokens, { chunkSize: tokens.length });
    const bytes = await statistics.bytes();
    // By Hugging Face's names: rows that reach each matrix, and the sum of squares of each column.
    const reached = new Map<string, { rows: number; squares: Float64Array }>();
    decoderLogits(
      weights,
      {
        ...decoder,
        reached: (name, x) => {
          const sums = reached.get(name) ?? { rows: 0, squares: new Float64Array(x.length) };
          sums.rows++;
          x.forEach((v, i) => {
            sums.squares[i]! += v * v;
          });
          reached.set(name, sums);
        },
      },
      tokens,
    );
    for (let layer = 0; layer < tiny.layers; layer++) {
      for (const [ours, theirs] of [
        ['gate', 'gate'],
        ['up', 'gate'],
        ['down', 'down'],
      ]) {
        const name = `blk.${layer}.ffn_${ours}_exps.weight`;
        const { data: sums, shape } = await readFloats(bytes, `${name}.in_sum2`);
        const { data: counts } = await readFloats(bytes, `${name}.counts`);
        expect(shape[0]).toBe(experts.count);
        for (let e = 0; e < experts.count; e++) {
          const found = reached.get(`model.layers.${layer}.mlp.experts.${e}.${theirs}_proj`);
          expect(counts[e], `${name} ${e}`).toBe(found?.rows ?? 0);
          for (const [i, expected] of (found?.squares ?? []).entries()) {
            // Inputs are sums of at most 96 products in float32, behind at most three layers: a few units of 2^-20.
            expect(Math.abs((sums[e * (shape[1] as number) + i] as number) - expected)).toBeLessThan(
              1e-4 * expected + 1e-7,
            );
          }
        }
      }
    }
    expect(statistics.weights).toContain('blk.0.attn_q.weight');
    // llama.cpp's quantization takes them.
    const made = await quantizeModel(model, { to: 'Q8_0', importance: new Blob([bytes]), workers: 0 });
    expect(made.report.tensors.length).toBeGreaterThan(0);
  });

  it('has moments of the weights that all tokens pass', async () => {
    const statistics = await calibrateModel(await file(), tokens, { chunkSize: 6, moments: true });
    const { tensors } = await inspectModel(await statistics.moments!.bytes());
    const all = tensors.map(({ name }) => name);
    const names = all.filter((name) => !/\.(diagonal|divergence)$/.test(name));
    // Weights of experts have a divergence alone.
    const layer = ['attn_k', 'attn_output', 'attn_q', 'attn_v', 'ffn_down_exps', 'ffn_gate_exps', 'ffn_up_exps'];
    expect(all.filter((name) => /^blk\.0\..*divergence$/.test(name)).sort()).toEqual(
      layer.map((name) => `blk.0.${name}.weight.divergence`),
    );
    expect(names.sort()).toEqual(
      [
        ...Array.from({ length: tiny.layers }, (_, i) =>
          ['attn_output', 'attn_q'].map((name) => `blk.${i}.${name}.weight`),
        ),
        'output.weight',
      ]
        .flat()
        .flatMap((name) => [name, `${name}.heldBack`]),
    );
  });

  it('gives the same with any number of workers', async () => {
    const model = await file();
    const [first, ...others] = await Promise.all(
      [0, 1, 3].map(async (workers) => ({
        statistics: await (await calibrateModel(model, tokens, { chunkSize: 4, workers })).bytes(),
        evaluation: await evaluateModel(model, { text: tokens, chunkSize: 4, workers }),
      })),
    );
    for (const other of others) expect(other).toEqual(first);
  });
});

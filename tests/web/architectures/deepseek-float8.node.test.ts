// DeepSeek V3 in float8 with a scale for each block of rows and columns: the result beside that of the same values in float32.
import { inspectModel, planModel, quantizeModel } from 'scalepoint/model';
import { expect, it } from 'vitest';
import { estimateModel } from '../../../web/src/model.js';
import { safetensors, type TestTensor } from '../support/models.js';
import { weightsOfTable } from '../support/tensor-table.js';
import { decoderConfig, plainTokenizer } from '../support/tiny-huggingface.js';
import { xorshift } from '../support/xorshift.js';

const [heads, nope, value, rank] = [4, 12, 20, 32];

const table = {
  prefix: 'model.layers.',
  outside: `
    model.embed_tokens.weight  x  264x64
    model.norm.weight          x  64
    lm_head.weight             x  264x64`,
  layer: `
    input_layernorm.weight               x  64
    post_attention_layernorm.weight      x  64
    self_attn.q_a_proj.weight            x  24x64
    self_attn.q_a_layernorm.weight       x  24
    self_attn.q_b_proj.weight            x  80x24
    self_attn.kv_a_proj_with_mqa.weight  x  40x64
    self_attn.kv_a_layernorm.weight      x  32
    self_attn.kv_b_proj.weight           x  128x32
    self_attn.o_proj.weight              x  64x80`,
  some: [
    {
      layers: [0],
      lines: `
        mlp.gate_proj.weight  x  96x64
        mlp.up_proj.weight    x  96x64
        mlp.down_proj.weight  x  64x96`,
    },
    {
      layers: [1, 2],
      lines: `
        mlp.gate.weight                      x  6x64
        mlp.gate.e_score_correction_bias     x  6
        mlp.experts.#.gate_proj.weight       x  48x64  stack=6
        mlp.experts.#.up_proj.weight         x  48x64  stack=6
        mlp.experts.#.down_proj.weight       x  64x48  stack=6
        mlp.shared_experts.gate_proj.weight  x  96x64
        mlp.shared_experts.up_proj.weight    x  96x64
        mlp.shared_experts.down_proj.weight  x  64x96`,
    },
  ],
};

/** Layer 2 is one that predicts further tokens, which the result leaves out. */
const config = {
  num_hidden_layers: 2,
  num_key_value_heads: heads,
  q_lora_rank: 24,
  kv_lora_rank: rank,
  qk_nope_head_dim: nope,
  qk_rope_head_dim: 8,
  v_head_dim: value,
  n_shared_experts: 2,
  n_routed_experts: 6,
  num_experts_per_tok: 2,
  moe_intermediate_size: 48,
  first_k_dense_replace: 1,
  routed_scaling_factor: 1.5,
  n_group: 3,
  topk_group: 2,
  scoring_func: 'sigmoid',
  topk_method: 'noaux_tc',
  norm_topk_prob: true,
  tie_word_embeddings: false,
};

type Tensors = Record<string, TestTensor>;

function folder(tensors: Tensors, more = {}): File[] {
  const files = {
    'config.json': decoderConfig('DeepseekV3ForCausalLM', { ...config, ...more }),
    'tokenizer.json': plainTokenizer(),
  };
  return [
    new File([safetensors(tensors)], 'model.safetensors'),
    ...Object.entries(files).map(([name, content]) => new File([JSON.stringify(content)], name)),
  ];
}

/** The value of a byte of E4M3. */
function float8(byte: number): number {
  const [exponent, fraction] = [(byte >> 3) & 15, byte & 7];
  const magnitude = exponent === 0 ? fraction * 2 ** -9 : (8 + fraction) * 2 ** (exponent - 10);
  return byte & 128 ? -magnitude : magnitude;
}

/** The weights in float8 with scales for blocks, and the floats that they stand for. */
function both([blockRows, blockColumns]: readonly [number, number]): { coded: Tensors; plain: Tensors } {
  const [coded, plain]: [Tensors, Tensors] = [{}, {}];
  const next = xorshift(4);
  for (const [name, { shape, values }] of weightsOfTable(table, 3)) {
    if (!/_proj(_with_mqa)?\.weight$/.test(name)) {
      coded[name] = { dtype: 'F32', shape, data: values };
      plain[name] = coded[name]!;
      continue;
    }
    const [rows, columns] = shape as [number, number];
    const across = Math.ceil(columns / blockColumns);
    const codes = Uint8Array.from(values, () => (next() % 96) | (next() % 2 === 0 ? 128 : 0));
    const scales = Float32Array.from(
      { length: Math.ceil(rows / blockRows) * across },
      () => (1 + (next() % 999)) / 65536,
    );
    coded[name] = { dtype: 'F8_E4M3', shape, data: codes };
    coded[`${name}_scale_inv`] = { dtype: 'F32', shape: [scales.length / across, across], data: scales };
    plain[name] = {
      dtype: 'F32',
      shape,
      data: Float32Array.from(codes, (code, i) => {
        const block =
          Math.floor(Math.floor(i / columns) / blockRows) * across + Math.floor((i % columns) / blockColumns);
        return float8(code) * scales[block]!;
      }),
    };
  }
  return { coded, plain };
}

const fp8 = (block: readonly number[]) => ({ quantization_config: { quant_method: 'fp8', weight_block_size: block } });

async function partsOf(files: File[], options: { to: 'F32' | 'Q8_0'; workers: number }) {
  const bytes = await (await quantizeModel(files, { ...options, requantize: true })).bytes();
  const { tensors } = await inspectModel(bytes);
  return new Map(
    tensors.map(({ name, byteOffset, bytes: size }) => [name, bytes.slice(byteOffset, byteOffset! + size)]),
  );
}

it('becomes what its values become, with keys and values of latent attention apart', async () => {
  const block = [4, 8] as const;
  const { coded, plain } = both(block);
  for (const [to, workers] of [
    ['F32', 0],
    ['Q8_0', 1],
  ] as const) {
    const [got, want] = [
      await partsOf(folder(coded, fp8(block)), { to, workers }),
      await partsOf(folder(plain), { to, workers }),
    ];
    expect([...got.keys()]).toEqual([...want.keys()]);
    expect(got.has('blk.1.attn_k_b.weight') && got.has('blk.0.attn_v_b.weight')).toBe(true);
    for (const [name, bytes] of got) expect(Buffer.compare(bytes, want.get(name)!), `${name} in ${to}`).toBe(0);
  }
  const { tensors } = await estimateModel(folder(coded, fp8(block)), { to: 'Q4_0', requantize: true, sample: 64 });
  expect(tensors.some(({ name }) => name === 'blk.1.attn_k_b.weight')).toBe(true);
});

it('is refused where the heads cut a block, with what does not fit', async () => {
  for (const block of [
    [8, 8],
    [4, 12],
  ] as const) {
    const wanted = planModel(folder(both(block).coded, fp8(block)), { to: 'Q8_0', requantize: true });
    await expect(wanted).rejects.toMatchObject({
      code: 'UNSUPPORTED_DTYPE',
      message: expect.stringMatching(/kv_b_proj.*elements of quantized weights cannot change places/),
    });
  }
});

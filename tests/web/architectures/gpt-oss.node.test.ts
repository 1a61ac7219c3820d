// gpt-oss with experts in MXFP4: the blocks of the result beside those that llama.cpp's converter repacks, and the file in llama.cpp.
import { inspectModel, planModel, quantizeModel } from 'scalepoint/model';
import { expect, it } from 'vitest';
import { estimateModel } from '../../../web/src/model.js';
import { gptOssLayer, outside, prefix } from '../support/decoder-tables.js';
import { NativeModel } from '../support/llama-run.js';
import { safetensors } from '../support/models.js';
import { needNative } from '../support/native.js';
import { weightsOfTable } from '../support/tensor-table.js';
import { decoderConfig, plainTokenizer } from '../support/tiny-huggingface.js';
import { xorshift } from '../support/xorshift.js';

needNative();

const [experts, hidden, inner, layers] = [5, 64, 96, 2];

const plain = weightsOfTable({ prefix, outside, layer: gptOssLayer }, layers);

/** Random blocks of [experts, rows, columns]. Each has a code of the largest binade and no -0, so that ggml finds the same scale. */
function blocksOf(rows: number, columns: number, seed: number) {
  const next = xorshift(seed);
  const count = (experts * rows * columns) / 32;
  const codes = Uint8Array.from({ length: 32 * count }, (_, i) => {
    const code = i % 32 === 5 ? 6 + (next() % 2) : next() % 16;
    return code === 8 ? 0 : code;
  });
  const scales = Uint8Array.from({ length: count }, () => 118 + (next() % 6));
  const blocks = Uint8Array.from({ length: 16 * count }, (_, i) => codes[2 * i]! | (codes[2 * i + 1]! << 4));
  return { codes, scales, blocks, shape: [experts, rows, columns / 32] as const };
}

/**
 * Rows of these as the converter repacks them: the scale, then elements j and j + 16 of a block in byte j.
 * Reference: github.com/ggml-org/llama.cpp, conversion/gpt_oss.py at 2984e6e, repack_mxfp4.
 */
function repacked({ codes, scales, shape: [, rows, perRow] }: ReturnType<typeof blocksOf>, first = 0, step = 1) {
  const bytes: number[] = [];
  for (let e = 0; e < experts; e++)
    for (let row = first; row < rows; row += step)
      for (let b = 0; b < perRow; b++) {
        const block = (e * rows + row) * perRow + b;
        bytes.push(scales[block]!);
        for (let j = 0; j < 16; j++) bytes.push(codes[32 * block + j]! | (codes[32 * block + j + 16]! << 4));
      }
  return Uint8Array.from(bytes);
}

const coded = Array.from({ length: layers }, (_, i) => ({
  gateUp: blocksOf(2 * inner, hidden, 10 + i),
  down: blocksOf(hidden, inner, 20 + i),
}));

function folder(config = {}): File[] {
  const tensors = Object.fromEntries(
    [...plain].map(([name, { shape, values }]) => [name, { dtype: 'F32', shape, data: values }]),
  );
  for (const [i, { gateUp, down }] of coded.entries())
    for (const [name, { blocks, scales, shape }] of Object.entries({ gate_up_proj: gateUp, down_proj: down })) {
      const whole = `model.layers.${i}.mlp.experts.${name}`;
      tensors[`${whole}_blocks`] = { dtype: 'U8', shape: [...shape, 16], data: blocks as never };
      tensors[`${whole}_scales`] = { dtype: 'U8', shape, data: scales as never };
    }
  const files = {
    'config.json': decoderConfig('GptOssForCausalLM', {
      num_hidden_layers: layers,
      head_dim: 16,
      num_local_experts: experts,
      num_experts_per_tok: 2,
      sliding_window: 4,
      quantization_config: { quant_method: 'mxfp4', modules_to_not_convert: ['model.layers.*.self_attn'] },
      ...config,
    }),
    'tokenizer.json': plainTokenizer(),
  };
  return [
    new File([safetensors(tensors)], 'model.safetensors'),
    ...Object.entries(files).map(([name, value]) => new File([JSON.stringify(value)], name)),
  ];
}

it('its experts stay as they are, in the layout of ggml', async () => {
  for (const workers of [0, 1]) {
    const result = await quantizeModel(folder(), { to: 'MXFP4_MOE', requantize: true, workers });
    const bytes = await result.bytes();
    const { tensors } = await inspectModel(bytes);
    for (const [i, { gateUp, down }] of coded.entries())
      for (const [name, want] of [
        ['ffn_gate_exps', repacked(gateUp, 0, 2)],
        ['ffn_up_exps', repacked(gateUp, 1, 2)],
        ['ffn_down_exps', repacked(down)],
      ] as const) {
        const found = tensors.find((tensor) => tensor.name === `blk.${i}.${name}.weight`)!;
        expect(found.dtype).toBe('MXFP4');
        const got = bytes.subarray(found.byteOffset, found.byteOffset! + found.bytes);
        expect(Buffer.compare(got, want), `${name} with ${workers} workers`).toBe(0);
      }
    for (const { name, error, kept } of result.report.tensors)
      if (/_exps\.weight/.test(name) && kept === undefined) expect(error?.maxAbsoluteError, name).toBe(0);
    using native = new NativeModel(bytes);
    const logits = native.logits([1, 17, 200, 33]);
    expect(logits.flatMap((row) => [...row]).every(Number.isFinite)).toBe(true);
  }
});

it('it becomes other types, with a note, and is sampled', async () => {
  const options = { to: 'Q4_K_M', requantize: true, workers: 0 } as const;
  const { notes } = await planModel(folder(), options);
  expect(notes.map(({ kind }) => kind)).toContain('sourceQuantized');
  const { tensors } = await estimateModel(folder(), { ...options, sample: 64 });
  for (const { name, error } of tensors.filter((one) => one.name.endsWith('_exps.weight')))
    expect(error?.sqnrDb, name).toBeGreaterThan(10);
  await expect(planModel(folder(), { to: 'Q4_K_M' })).rejects.toMatchObject({ code: 'UNSUPPORTED_DTYPE' });
  await expect(planModel(folder({ num_local_experts: 4 }), options)).rejects.toMatchObject({ code: 'BAD_FILE' });
});

// NVFP4 in GGUF: blocks beside ggml's, results in llama.cpp beside those of the restored weights, and checkpoints that are in NVFP4 already.
import { inspectModel, planModel, quantizeModel, readFloats } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { scaledArchitectures } from '../../../web/src/formats/gguf/nvfp4.js';
import { decoderTokens } from '../support/decoder-cases.js';
import { furthest, largest, outside, permuted, prefix } from '../support/decoder-tables.js';
import { ggmlDequantize, ggmlQuantize } from '../support/ggml.js';
import { NativeModel } from '../support/llama-run.js';
import { bytesOf, safetensors, type TestTensor } from '../support/models.js';
import { needNative } from '../support/native.js';
import { type HandTable, weightsOfTable } from '../support/tensor-table.js';
import { decoderConfig, plainTokenizer } from '../support/tiny-huggingface.js';
import { ggufFile } from '../support/tiny-llama.js';
import { xorshift } from '../support/xorshift.js';

needNative();

const nvfp4 = { name: 'NVFP4', id: 40, elements: 64, bytes: 36 } as never;

const llama: HandTable = {
  prefix,
  outside,
  layer: `
    input_layernorm.weight           attn_norm.weight  64
    post_attention_layernorm.weight  ffn_norm.weight   64
    ${permuted}
    mlp.gate_proj.weight  ffn_gate.weight  128x64
    mlp.up_proj.weight    ffn_up.weight    128x64
    mlp.down_proj.weight  ffn_down.weight  64x128`,
};
const mixture: HandTable = {
  ...llama,
  layer: `
    input_layernorm.weight             attn_norm.weight      64
    post_attention_layernorm.weight    ffn_norm.weight       64
    self_attn.q_proj.weight            attn_q.weight         64x64
    self_attn.k_proj.weight            attn_k.weight         32x64
    self_attn.v_proj.weight            attn_v.weight         32x64
    self_attn.o_proj.weight            attn_output.weight    64x64
    self_attn.q_norm.weight            attn_q_norm.weight    16
    self_attn.k_norm.weight            attn_k_norm.weight    16
    mlp.gate.weight                    ffn_gate_inp.weight   4x64
    mlp.experts.#.gate_proj.weight     ffn_gate_exps.weight  64x64  stack=4
    mlp.experts.#.up_proj.weight       ffn_up_exps.weight    64x64  stack=4
    mlp.experts.#.down_proj.weight     ffn_down_exps.weight  64x64  stack=4`,
};
const mixtureConfig = {
  head_dim: 16,
  num_experts: 4,
  num_experts_per_tok: 2,
  moe_intermediate_size: 64,
  norm_topk_prob: true,
};

type Tensors = Record<string, TestTensor>;

const floats = (table: HandTable, layers = 2): Tensors =>
  Object.fromEntries(
    [...weightsOfTable(table, layers)].map(([name, { shape, values }]) => [
      name,
      { dtype: 'F32', shape, data: values },
    ]),
  );

function folder(architecture: string, tensors: Tensors, config = {}): File[] {
  const files = {
    'config.json': decoderConfig(architecture, { num_hidden_layers: 2, intermediate_size: 128, ...config }),
    'tokenizer.json': plainTokenizer(),
  };
  return [
    new File([safetensors(tensors)], 'model.safetensors'),
    ...Object.entries(files).map(([name, value]) => new File([JSON.stringify(value)], name)),
  ];
}

/** The bytes of each tensor of a GGUF file. */
async function tensorsOf(file: Uint8Array<ArrayBuffer>) {
  const { tensors } = await inspectModel(file);
  return new Map(
    tensors.map(({ name, dtype, shape, byteOffset, bytes }) => [
      name,
      { dtype, shape, bytes: file.slice(byteOffset, byteOffset! + bytes) },
    ]),
  );
}

const floatsOf = (bytes: Uint8Array<ArrayBuffer>) => new Float32Array(bytes.buffer);

/** A file with the weights of another restored: blocks by ggml, times their scales. */
async function restoredFile(file: Uint8Array<ArrayBuffer>, plain: Uint8Array<ArrayBuffer>) {
  const [coded, whole] = [await tensorsOf(file), await tensorsOf(plain)];
  const changed = plain.slice();
  const { tensors } = await inspectModel(plain);
  for (const { name, byteOffset } of tensors) {
    const one = coded.get(name)!;
    if (one.dtype !== 'NVFP4') continue;
    const values = ggmlDequantize(nvfp4, one.bytes);
    const scales = floatsOf(coded.get(name.replace('.weight', '.scale'))!.bytes);
    const each = values.length / scales.length;
    changed.set(bytesOf(values.map((v, i) => v * scales[Math.floor(i / each)]!)), byteOffset);
  }
  expect(whole.size).toBeLessThan(coded.size);
  return changed;
}

describe('blocks', () => {
  it('equal those that ggml makes of weights divided by their scale', async () => {
    // With the largest magnitude 2688 · 2^-16 the scale is 2^-16, so that dividing is exact. Scales of blocks from 248 to 447 are left out,
    // because ggml's encoder makes 448 of all of them.
    const next = xorshift(3);
    const values = Float32Array.from({ length: 8 * 256 }, () => ((next() / 2 ** 32) * 2 - 1) * 0.0215);
    values[70] = -2688 * 2 ** -16;
    const file = ggufFile({
      pairs: [['general.architecture', 'string', 'llama']],
      tensors: [{ name: 'blk.0.attn_q.weight', dtype: 'F32', ne: [256, 8], data: bytesOf(values) }],
    }) as Uint8Array<ArrayBuffer>;
    for (const workers of [0, 1]) {
      const result = await quantizeModel(file, { to: 'NVFP4', workers });
      const made = await tensorsOf(await result.bytes());
      expect([...made.keys()]).toEqual(['blk.0.attn_q.weight', 'blk.0.attn_q.scale']);
      expect([...floatsOf(made.get('blk.0.attn_q.scale')!.bytes)]).toEqual([2 ** -16]);
      const want = ggmlQuantize(
        nvfp4,
        values.map((v) => v * 65536),
      );
      expect(Buffer.compare(made.get('blk.0.attn_q.weight')!.bytes, want)).toBe(0);
    }
  });

  it('have a stated error, which a search lowers, below that of ggml without a scale', async () => {
    const next = xorshift(8);
    const normal = () => Math.sqrt(-2 * Math.log((next() + 1) / 2 ** 32)) * Math.cos((2 * Math.PI * next()) / 2 ** 32);
    const values = Float32Array.from({ length: 64 * 1024 }, () => 0.02 * normal());
    const file = ggufFile({
      pairs: [['general.architecture', 'string', 'llama']],
      tensors: [{ name: 'blk.0.ffn_up.weight', dtype: 'F32', ne: [1024, 64], data: bytesOf(values) }],
    }) as Uint8Array<ArrayBuffer>;
    const errorOf = async (search: 'usual' | 'best') => {
      const { report } = await quantizeModel(file, { to: 'NVFP4', search, workers: 0 });
      return report.tensors[0]!.error!.sqnrDb;
    };
    const [usual, best] = [await errorOf('usual'), await errorOf('best')];
    const naive = ggmlDequantize(nvfp4, ggmlQuantize(nvfp4, values));
    const signal = values.reduce((sum, v) => sum + v * v, 0);
    const noise = values.reduce((sum, v, i) => sum + (v - naive[i]!) ** 2, 0);
    const plain = 10 * Math.log10(signal / noise);
    // Measured: 20.5 dB, 21.8 dB and 19.7 dB.
    expect(usual).toBeGreaterThan(20.3);
    expect(best - usual).toBeGreaterThan(0.9);
    expect(usual - plain).toBeGreaterThan(0.6);
  });
});

describe('models', () => {
  /** The same weights with doubled scales and halved blocks. */
  async function otherScales(file: Uint8Array<ArrayBuffer>) {
    const changed = file.slice();
    const { tensors } = await inspectModel(file);
    const coded = new Set(tensors.flatMap(({ name, dtype }) => (dtype === 'NVFP4' ? [name] : [])));
    for (const { name, byteOffset = 0, bytes } of tensors) {
      if (coded.has(name))
        for (let at = byteOffset; at < byteOffset + bytes; at += 36)
          for (let s = at; s < at + 4; s++) {
            // One less in the exponent; smaller scales than these would be rounded.
            expect(changed[s]).toBeGreaterThanOrEqual(16);
            changed[s] = changed[s]! - 8;
          }
      else if (coded.has(name.replace('.scale', '.weight')))
        changed.set(bytesOf(floatsOf(file.slice(byteOffset, byteOffset + bytes)).map((v) => 2 * v)), byteOffset);
    }
    return changed;
  }

  it.each([
    ['Llama', folder('LlamaForCausalLM', floats(llama))],
    ['Qwen3 with experts', folder('Qwen3MoeForCausalLM', floats(mixture), mixtureConfig)],
  ])('%s computes with the scales', async (_name, files) => {
    const coded = await (await quantizeModel(files, { to: 'NVFP4', workers: 0 })).bytes();
    using native = new NativeModel(coded);
    using other = new NativeModel(await otherScales(coded));
    expect(native.logits(decoderTokens)).toEqual(other.logits(decoderTokens));
  });

  it('computes with the values that are measured', async () => {
    const files = folder('LlamaForCausalLM', floats(llama));
    const coded = await (await quantizeModel(files, { to: 'NVFP4', workers: 0 })).bytes();
    const plain = await (await quantizeModel(files, { to: 'F32', workers: 0 })).bytes();
    using native = new NativeModel(coded);
    using reference = new NativeModel(await restoredFile(coded, plain));
    const [got, want] = [native.logits(decoderTokens), reference.logits(decoderTokens)];
    // The inputs of products with these blocks are rounded to 8 bits, and so are the embedding and the output.
    expect(furthest(got, want) / largest(want)).toBeLessThan(0.05);
  });

  it('has a scale for each expert, and other weights in 8 bits', async () => {
    const file = await (
      await quantizeModel(folder('Qwen3MoeForCausalLM', floats(mixture), mixtureConfig), { to: 'NVFP4' })
    ).bytes();
    const made = await tensorsOf(file);
    const down = made.get('blk.0.ffn_down_exps.weight')!;
    const scales = floatsOf(made.get('blk.0.ffn_down_exps.scale')!.bytes);
    expect([down.dtype, down.shape, scales.length]).toEqual(['NVFP4', [4, 64, 64], 4]);
    const source = weightsOfTable(mixture, 2);
    for (let e = 0; e < 4; e++) {
      const { values } = source.get(`model.layers.0.mlp.experts.${e}.down_proj.weight`)!;
      expect(scales[e]).toBe(Math.fround(values.reduce((most, v) => Math.max(most, Math.abs(v)), 0) / 2688));
    }
    expect(made.get('token_embd.weight')!.dtype).toBe('Q8_0');
    expect(made.get('output.weight')!.dtype).toBe('Q8_0');
    const { metadata } = await inspectModel(file);
    expect(metadata['general.file_type']).toBe(39);
    // Readers get the weight as a whole.
    const { data } = await readFloats(file, 'blk.0.ffn_down_exps.weight', { workers: 0 });
    const blocks = ggmlDequantize(nvfp4, down.bytes);
    expect(data[4096]).toBe(Math.fround(blocks[4096]! * scales[1]!));
  });

  it('leaves weights whose name of a scale is taken, and rows that blocks do not divide', async () => {
    const zeros = (name: string, ...ne: number[]) => {
      const data = new Uint8Array(4 * ne.reduce((product, n) => product * n, 1));
      return { name, dtype: 'F32' as const, ne, data };
    };
    // Gemma 4 has factors of its experts under this name.
    const file = ggufFile({
      pairs: [['general.architecture', 'string', 'gemma4']],
      tensors: [
        zeros('blk.0.ffn_down.weight', 96, 2),
        zeros('blk.0.ffn_down_exps.weight', 64, 2, 3),
        zeros('blk.0.ffn_down_exps.scale', 3),
        zeros('blk.0.ffn_up.weight', 64, 2),
      ],
    }) as Uint8Array<ArrayBuffer>;
    const made = await tensorsOf(await (await quantizeModel(file, { to: 'NVFP4', workers: 0 })).bytes());
    expect([...made].map(([name, { dtype }]) => `${name} ${dtype}`)).toEqual([
      'blk.0.ffn_down.weight Q8_0',
      'blk.0.ffn_down_exps.scale F32',
      'blk.0.ffn_down_exps.weight Q8_0',
      'blk.0.ffn_up.weight NVFP4',
      'blk.0.ffn_up.scale F32',
    ]);
    // Weights of zeros have a scale of 1.
    expect([...floatsOf(made.get('blk.0.ffn_up.scale')!.bytes)]).toEqual([1]);
  });

  it('is refused for architectures that ignore scales, by name, with another type', async () => {
    const file = (architecture: string) =>
      ggufFile({
        pairs: [['general.architecture', 'string', architecture]],
        tensors: [{ name: 'blk.0.ffn_up.weight', dtype: 'F32', ne: [64, 2], data: new Uint8Array(512) }],
      }) as Uint8Array<ArrayBuffer>;
    // The last four apply the scales to attention alone, as was measured with v0.5.0.
    for (const architecture of ['gptneox', 'smollm3', 'gemma2', 'gemma3', 'nomic-bert'])
      await expect(planModel(file(architecture), { to: 'NVFP4' })).rejects.toMatchObject({
        code: 'UNSUPPORTED_DTYPE',
        message: expect.stringMatching(new RegExp(`"${architecture}".*llama.*MXFP4`, 's')),
      });
    for (const architecture of scaledArchitectures) await planModel(file(architecture), { to: 'NVFP4' });
  });
});

describe('checkpoints in NVFP4', () => {
  /** A weight in the layout of a tool, with its blocks in GGUF. */
  function coded(
    name: string,
    [rows, columns]: readonly [number, number],
    tool: 'ModelOpt' | 'compressed-tensors',
    seed: number,
  ) {
    const next = xorshift(seed);
    const codes = Uint8Array.from({ length: rows * columns }, () => next() % 16);
    const scales = Uint8Array.from({ length: (rows * columns) / 16 }, () => 40 + (next() % 60));
    const packed = Uint8Array.from({ length: codes.length / 2 }, (_, i) => codes[2 * i]! | (codes[2 * i + 1]! << 4));
    const global = Math.fround(0.0003 + (next() % 100) * 1e-6);
    const stored = tool === 'ModelOpt' ? global : Math.fround(1 / global);
    const ends = tool === 'ModelOpt' ? ['', '_scale', '_scale_2'] : ['_packed', '_scale', '_global_scale'];
    const tensors: Tensors = {
      [`${name}${ends[0]}`]: { dtype: 'U8', shape: [rows, columns / 2], data: packed },
      [`${name}${ends[1]}`]: { dtype: 'F8_E4M3', shape: [rows, columns / 16], data: scales },
      [`${name}${ends[2]}`]: { dtype: 'F32', shape: tool === 'ModelOpt' ? [] : [1], data: Float32Array.of(stored) },
    };
    // Rows of ggml's blocks, as llama.cpp's converter repacks them (conversion/base.py at 00bd27a): four scales, then elements j and j + 8.
    const row = (r: number) => {
      const bytes: number[] = [];
      for (let c = 0; c < columns; c += 64) {
        for (let s = 0; s < 4; s++) bytes.push(scales[(r * columns + c) / 16 + s]!);
        for (let s = 0; s < 4; s++)
          for (let j = 0; j < 8; j++) {
            const code = (k: number) =>
              codes[r * columns + c + 16 * s + k]! % 8 === 0 ? 0 : codes[r * columns + c + 16 * s + k]!;
            bytes.push(code(j) | (code(j + 8) << 4));
          }
      }
      return bytes;
    };
    return { tensors, row, rows, scale: tool === 'ModelOpt' ? stored : Math.fround(1 / stored) };
  }

  it.each(['ModelOpt', 'compressed-tensors'] as const)('of %s keep their codes and scales', async (tool) => {
    const plain = floats(mixture);
    const codedWeights = new Map<string, ReturnType<typeof coded>>();
    for (const [i, [name, { shape }]] of Object.entries(plain).entries()) {
      if (!/(_proj)\.weight$/.test(name)) continue;
      const one = coded(name, shape as [number, number], tool, i + 1);
      codedWeights.set(name, one);
      delete plain[name];
      Object.assign(plain, one.tensors, {
        [name.replace('.weight', '.input_scale')]: { dtype: 'F32', shape: [], data: Float32Array.of(1) },
      });
    }
    const method =
      tool === 'ModelOpt'
        ? { quant_method: 'modelopt' }
        : { quant_method: 'compressed-tensors', format: 'nvfp4-pack-quantized' };
    const files = folder('Qwen3MoeForCausalLM', plain, { ...mixtureConfig, quantization_config: method });
    for (const workers of [0, 1]) {
      const result = await quantizeModel(files, { to: 'NVFP4', requantize: true, workers });
      const made = await tensorsOf(await result.bytes());
      const layer = (to: string, from: string, experts = 0) => {
        const names = experts === 0 ? [from] : Array.from({ length: experts }, (_, e) => from.replace('#', String(e)));
        const parts = names.map((name) => codedWeights.get(`model.layers.1.${name}.weight`)!);
        const want = parts.flatMap(({ row, rows }) => Array.from({ length: rows }, (_, r) => row(r))).flat();
        expect(Buffer.compare(made.get(`blk.1.${to}.weight`)!.bytes, Uint8Array.from(want)), to).toBe(0);
        expect([...floatsOf(made.get(`blk.1.${to}.scale`)!.bytes)], to).toEqual(parts.map(({ scale }) => scale));
      };
      layer('attn_k', 'self_attn.k_proj');
      layer('attn_output', 'self_attn.o_proj');
      layer('ffn_down_exps', 'mlp.experts.#.down_proj', 4);
      // The reciprocal of compressed-tensors' scale is rounded.
      for (const { name, error, kept } of result.report.tensors)
        if (/_proj|_exps|attn_[kvqo]/.test(name) && kept === undefined && error !== undefined)
          expect(error.sqnrDb, name).toBeGreaterThan(tool === 'ModelOpt' ? 1000 : 120);
    }
  });

  it('of Llama keep them in rows that change places', async () => {
    const plain = floats(llama);
    const name = 'model.layers.0.self_attn.q_proj.weight';
    const queries = coded(name, [64, 64], 'ModelOpt', 1);
    delete plain[name];
    const files = folder(
      'LlamaForCausalLM',
      { ...plain, ...queries.tensors },
      { quantization_config: { quant_method: 'modelopt' } },
    );
    const result = await quantizeModel(files, { to: 'NVFP4', requantize: true, workers: 0 });
    const made = await tensorsOf(await result.bytes());
    // Row h·16 + half·8 + i of the source is row h·16 + 2i + half.
    const rows = Array.from({ length: 64 }, (_, r) => (r & ~15) + (r % 2) * 8 + ((r % 16) >> 1));
    const want = Uint8Array.from(rows.flatMap((r) => queries.row(r)));
    expect(Buffer.compare(made.get('blk.0.attn_q.weight')!.bytes, want)).toBe(0);
    expect([...floatsOf(made.get('blk.0.attn_q.scale')!.bytes)]).toEqual([queries.scale]);
  });
});

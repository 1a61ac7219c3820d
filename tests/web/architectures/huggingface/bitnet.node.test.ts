// BitNet: its keys and tensors beside a table that was written by hand from llama.cpp's converter (conversion/bitnet.py of Tippach/Franken-Llama
// at 1774451), its logits in llama.cpp beside a forward pass in float64 by Hugging Face's definitions (transformers,
// models/bitnet/modular_bitnet.py at 08c5327, and its BitLinear without the rounding of inputs), and its three values in results.
import { estimateModel, inspectModel, quantizeModel, readFloats } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { convertHuggingface } from '../../../../web/src/architectures/huggingface/convert.js';
import { type DecoderCase, type FolderJson, testDecoders, testRefusals } from '../../support/decoder-cases.js';
import { common, norms, prefix, tiedOutside } from '../../support/decoder-tables.js';
import {
  type Decoder,
  mixed,
  multiply,
  type Reader,
  rotaryFrequencies,
  rotate,
  silu,
  slices,
  type Vector,
} from '../../support/forward.js';
import { bytesOf, safetensors, type TestTensor } from '../../support/models.js';
import { folderOf, ternary } from '../../support/recipes.js';
import { weightsOfTable } from '../../support/tensor-table.js';
import { decoderConfig, plainTokenizer } from '../../support/tiny-huggingface.js';

const rounded = new WeakMap<Float32Array, Float32Array>();

/** A product with the rounded weight. */
function product(read: Reader, name: string, x: Vector): Vector {
  const { shape, values } = read.get(`${name}.weight`);
  const own = rounded.get(values) ?? ternary(values);
  rounded.set(values, own);
  const [rows, columns] = shape as [number, number];
  return Float64Array.from({ length: rows }, (_, r) => x.reduce((sum, v, c) => sum + v * own[r * columns + c]!, 0));
}

const attend =
  (norm: string): NonNullable<Decoder['attend']> =>
  (read, p, _layer, x) => {
    const own = `${p}self_attn.`;
    const frequencies = rotaryFrequencies(10000, 16);
    const heads = (name: string) => x.map((one) => slices(product(read, `${own}${name}_proj`, one), 16));
    const turned = (all: Vector[][]) => all.map((own, t) => own.map((head) => rotate(head, t, frequencies, 1)));
    const [q, k, v] = [turned(heads('q')), turned(heads('k')), heads('v')];
    const all = mixed(q, k, v, (score, t, s) => (s > t ? -Infinity : score / 4));
    return all.map((one) => product(read, `${own}o_proj`, read.rms(own + norm, one, 1e-5, 0)));
  };

const grow =
  (norm: string): NonNullable<Decoder['grow']> =>
  (read, p, x) => {
    const inner = multiply(silu(product(read, `${p}mlp.gate_proj`, x)), product(read, `${p}mlp.up_proj`, x));
    return product(read, `${p}mlp.down_proj`, read.rms(`${p}mlp.${norm}`, inner, 1e-5, 0));
  };

const bitnet = (name: string, hugging: string, attention: string, feedForward: string): DecoderCase => ({
  name,
  hugging,
  architecture: 'bitnet',
  config: { hidden_act: 'silu', tie_word_embeddings: true },
  keys: common(['rope.scaling.type', 'linear'], ['rope.scaling.factor', 1]),
  table: {
    prefix,
    outside: tiedOutside,
    layer: `${norms}
      self_attn.q_proj.weight        attn_q.weight         64x64  ternary
      self_attn.k_proj.weight        attn_k.weight         32x64  ternary
      self_attn.v_proj.weight        attn_v.weight         32x64  ternary
      self_attn.o_proj.weight        attn_output.weight    64x64  ternary
      mlp.gate_proj.weight           ffn_gate.weight       96x64  ternary
      mlp.up_proj.weight             ffn_up.weight         96x64  ternary
      mlp.down_proj.weight           ffn_down.weight       64x96  ternary
      self_attn.${attention}.weight  attn_sub_norm.weight  64
      mlp.${feedForward}.weight      ffn_sub_norm.weight   96`,
  },
  model: { attend: attend(attention), grow: grow(feedForward) },
});

const cases = [
  bitnet('BitNet', 'BitnetForCausalLM', 'inner_attn_ln', 'ffn_layernorm'),
  bitnet('BitNet by the names of transformers', 'BitNetForCausalLM', 'attn_sub_norm', 'ffn_sub_norm'),
];

testDecoders(cases);

testRefusals(cases, [
  ['BitNet', { hidden_act: 'relu2' }, /hidden_act is "relu2"/],
  ['BitNet', { tie_word_embeddings: false }, /tie_word_embeddings is false/],
  ['BitNet', { quantization_config: { quant_method: 'bitnet' } }, /convert the model that they were made from/],
]);

describe('results', () => {
  // Products are larger than a tile, so that their means come from two.
  const [hidden, rows] = [256, 4352];
  const wide = {
    ...cases[0]!.table,
    outside: cases[0]!.table.outside.replaceAll('64', String(hidden)).replace(`2${hidden}x`, '264x'),
    layer: cases[0]!.table.layer.replaceAll('96', String(rows)).replaceAll('64', String(hidden)),
  };
  const config: FolderJson = {
    ...cases[0]!.config,
    num_hidden_layers: 1,
    hidden_size: hidden,
    intermediate_size: rows,
    num_key_value_heads: 2,
    num_attention_heads: 16,
  };
  const weights = weightsOfTable({ ...wide, layer: wide.layer.replaceAll('32x', '32x') }, 1);
  const texts = { 'config.json': decoderConfig('BitnetForCausalLM', config), 'tokenizer.json': plainTokenizer() };
  const stored: Record<string, TestTensor> = Object.fromEntries(
    [...weights].map(([name, { shape, values }]) => [name, { dtype: 'F32', shape, data: values }]),
  );
  const folder = [
    new File([safetensors(stored)], 'model.safetensors'),
    ...Object.entries(texts).map(([name, value]) => new File([JSON.stringify(value)], name)),
  ];
  const down = 'model.layers.0.mlp.down_proj.weight';
  const expected = ternary(weights.get(down)!.values);

  it('hold three values of each weight, by the mean of all of it', async () => {
    const { notes } = await convertHuggingface(folderOf(weights, texts));
    expect(notes).toMatchObject([{ kind: 'computedOtherwise', architecture: 'bitnet' }]);
    const file = await (await quantizeModel(folder, { to: 'F32', workers: 1 })).bytes();
    const { tensors } = await inspectModel(file);
    const { byteOffset = 0, bytes } = tensors.find(({ name }) => name === 'blk.0.ffn_down.weight')!;
    expect(Buffer.compare(file.subarray(byteOffset, byteOffset + bytes), bytesOf(expected))).toBe(0);
  });

  it('in TQ2_0 lose the bits of the scale beyond float16 alone', async () => {
    const result = await quantizeModel(folder, { to: 'TQ2_0', workers: 0 });
    const { data } = await readFloats(await result.bytes(), 'blk.0.ffn_down.weight', { workers: 0 });
    const size = expected.find((v) => v > 0)!;
    let most = 0;
    data.forEach((v, i) => {
      most = Math.max(most, Math.abs(v - expected[i]!) / size);
    });
    // Half a unit of float16, relative.
    expect(most).toBeLessThanOrEqual(2 ** -11);
    const estimate = await estimateModel(folder, { to: 'TQ2_0', workers: 0, sample: 4096 });
    const errorIn = (list: typeof estimate.tensors) =>
      list.find(({ name }) => name.includes('ffn_down'))!.error!.sqnrDb;
    expect(errorIn(estimate.tensors)).toBeGreaterThan(60);
    expect(errorIn(result.report.tensors)).toBeGreaterThan(60);
  });
});

// Adapters as files for llama.cpp: its logits with the file beside those of the model with the adapter merged, and what is refused.
import { inspectModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { planModel, quantizeModel } from '../../../web/src/model.js';
import { NativeModel } from '../support/llama-run.js';
import { float32, pair, spellings } from '../support/lora.js';
import { chosen, rejectionOf, safetensors, type TestTensor } from '../support/models.js';
import { needNative } from '../support/native.js';
import { decoderConfig, decoderWeights, plainTokenizer, tiny } from '../support/tiny-huggingface.js';

needNative();

const { hidden, feedForward, layers, vocabulary } = tiny;

/** A folder of a small model. */
function folder(architecture: string): File[] {
  const all = [
    ...decoderWeights(architecture === 'Qwen2ForCausalLM' ? { biases: ['q_proj', 'k_proj', 'v_proj'] } : {}),
  ];
  const tensors = Object.fromEntries(
    all.map(([name, { shape, values }]) => [name, float32(shape, Float32Array.from(values))]),
  );
  return [
    chosen('model.safetensors', safetensors(tensors)),
    chosen('config.json', decoderConfig(architecture)),
    chosen('tokenizer.json', plainTokenizer()),
  ];
}

/** The tensors of an adapter of PEFT for these layers, with their sizes. */
function matrices(list: readonly (readonly [module: string, rows: number, columns: number])[], rank: number) {
  const tensors: Record<string, TestTensor> = {};
  for (const [i, [module, rows, columns]] of list.entries()) {
    const one = pair(rows, columns, rank, 100 + 2 * i);
    // Small, so that logits stay near those of the model.
    const small = { ...one, up: one.up.map((v) => v / 8), down: one.down.map((v) => v / 8) };
    Object.assign(tensors, spellings.peft(module, small, columns, 0));
  }
  return tensors;
}

const keyRows = hidden / 2;
const inLayer = [
  ['self_attn.q_proj', hidden, hidden],
  ['self_attn.k_proj', keyRows, hidden],
  ['self_attn.v_proj', keyRows, hidden],
  ['self_attn.o_proj', hidden, hidden],
  ['mlp.gate_proj', feedForward, hidden],
  ['mlp.down_proj', hidden, feedForward],
] as const;
const ofModel = Array.from({ length: layers }, (_, i) =>
  inLayer.map(([name, rows, columns]) => [`model.layers.${i}.${name}`, rows, columns] as const),
).flat();

/** An adapter, with its configuration. */
const adapter = (tensors: Record<string, TestTensor>, config: object) => [
  chosen('adapter_model.safetensors', safetensors(tensors)),
  chosen('adapter_config.json', { peft_type: 'LORA', ...config }),
];

const tokens = [3, 7, 40, 9, 21, 5];

describe('an adapter as a file of its own', () => {
  it.each([
    ['LlamaForCausalLM', { r: 4, lora_alpha: 6 }, 1],
    ['Qwen2ForCausalLM', { r: 4, lora_alpha: 6, use_rslora: true, alpha_pattern: { q_proj: 10 } }, 0.5],
  ] as const)('gives the logits of the merged model: %s', async (architecture, config, strength) => {
    const model = folder(architecture);
    const lora = [{ file: adapter(matrices(ofModel, 4), config), strength }];
    const file = await (await quantizeModel(model, { to: 'lora-gguf', lora, workers: 0 })).bytes();
    const plain = await (await quantizeModel(model, { to: 'F32', workers: 0 })).bytes();
    const merged = await (await quantizeModel(model, { to: 'F32', lora, workers: 0 })).bytes();
    using base = new NativeModel(plain);
    using other = new NativeModel(merged);
    const [without, wanted] = [base.logits(tokens), other.logits(tokens)];
    const got = base.logits(tokens, undefined, file);
    let [largest, change, most] = [0, 0, 0];
    for (const [i, row] of wanted.entries())
      for (const [k, value] of row.entries()) {
        largest = Math.max(largest, Math.abs(value));
        most = Math.max(most, Math.abs(value - got[i]![k]!));
        change = Math.max(change, Math.abs(value - without[i]![k]!));
      }
    // Both sum products of float32, in another order: a dozen products in turn, each with errors of some 2^-24 of its magnitude times the root
    // of its terms, which the layers carry on.
    expect(most).toBeLessThan(largest * 2 ** -24 * 12 * Math.sqrt(feedForward));
    expect(change).toBeGreaterThan(1000 * most);
  });

  it("has the keys and names of llama.cpp's converter", async () => {
    const lora = [{ file: adapter(matrices(ofModel, 4), { r: 4, lora_alpha: 6 }) }];
    const result = await quantizeModel(folder('LlamaForCausalLM'), { to: 'lora-gguf', lora, workers: 0 });
    const { metadata, tensors } = await inspectModel(await result.bytes());
    expect(metadata).toMatchObject({
      'general.architecture': 'llama',
      'general.type': 'adapter',
      'adapter.type': 'lora',
      'adapter.lora.alpha': 6,
    });
    expect(tensors.length).toBe(2 * ofModel.length);
    const shapes = Object.fromEntries(tensors.map(({ name, shape, dtype }) => [name, [dtype, ...shape]]));
    expect(shapes['blk.0.ffn_down.weight.lora_a']).toEqual(['F32', 4, feedForward]);
    expect(shapes['blk.0.ffn_down.weight.lora_b']).toEqual(['F32', hidden, 4]);
    expect(result.report.notes.map(({ kind }) => kind)).not.toContain('adaptersMerged');
  });

  it('changes the embedding', async () => {
    const model = folder('LlamaForCausalLM');
    const embedding = matrices([['model.embed_tokens', vocabulary, hidden]], 4);
    const lora = [{ file: adapter(embedding, { r: 4, lora_alpha: 6 }) }];
    const file = await (await quantizeModel(model, { to: 'lora-gguf', lora, workers: 0 })).bytes();
    const { tensors } = await inspectModel(file);
    expect(tensors.map(({ name, shape }) => [name, ...shape])).toEqual([
      ['token_embd.weight.lora_a', vocabulary, 4],
      ['token_embd.weight.lora_b', hidden, 4],
    ]);
    using base = new NativeModel(await (await quantizeModel(model, { to: 'F32', workers: 0 })).bytes());
    using other = new NativeModel(await (await quantizeModel(model, { to: 'F32', lora, workers: 0 })).bytes());
    const [got, wanted] = [base.logits(tokens, undefined, file), other.logits(tokens)];
    for (const [i, row] of wanted.entries())
      for (const [k, value] of row.entries()) expect(Math.abs(value - got[i]![k]!)).toBeLessThan(1e-4);
  });

  it('is refused without an adapter, and for several', async () => {
    const model = folder('LlamaForCausalLM');
    expect(await rejectionOf(planModel(model, { to: 'lora-gguf' }))).toMatchObject({
      name: 'RangeError',
      option: 'lora',
    });
    const one = { file: adapter(matrices(ofModel, 4), { r: 4, lora_alpha: 6 }) };
    const error = await rejectionOf(planModel(model, { to: 'lora-gguf', lora: [one, one] }));
    expect(error).toMatchObject({ code: 'UNSUPPORTED_DTYPE', message: expect.stringContaining('several adapters') });
    const lengths = Object.fromEntries(
      ofModel.map(([name, rows]) => [
        `base_model.model.${name}.lora_magnitude_vector`,
        float32([rows], new Float32Array(rows)),
      ]),
    );
    const dora = adapter({ ...matrices(ofModel, 4), ...lengths }, { r: 4, lora_alpha: 6, use_dora: true });
    expect(await rejectionOf(planModel(model, { to: 'lora-gguf', lora: [{ file: dora }] }))).toMatchObject({
      code: 'UNSUPPORTED_DTYPE',
      message: expect.stringContaining('its adapter is DoRA'),
    });
    const whole = {
      ...matrices(ofModel, 4),
      'base_model.model.model.norm.weight': float32([hidden], new Float32Array(hidden)),
    };
    const saved = [{ file: adapter(whole, { r: 4, lora_alpha: 6 }) }];
    const holds = await rejectionOf(planModel(model, { to: 'lora-gguf', lora: saved }));
    expect(holds).toMatchObject({ message: expect.stringContaining('holds matrices of LoRA alone') });
    const file = await (await quantizeModel(model, { to: 'F32', workers: 0 })).bytes();
    expect(await rejectionOf(planModel(file, { to: 'lora-gguf' }))).toMatchObject({ name: 'RangeError', option: 'to' });
  });
});

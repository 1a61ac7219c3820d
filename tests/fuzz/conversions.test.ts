import { describe, expect, it } from 'vitest';
import { inspectModel, quantizeModel, ScalepointError } from '../../web/src/model.js';
import { safetensors, weights } from '../web/support/models.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../web/support/tiny-huggingface.js';
import { filesOf, random, seedOf } from './rounds.js';

// Folders and checkpoints get random damage, and are converted. What comes out is a GGUF file that is read again, or a ScalepointError or
// an error about the option `to`. Seeds are fixed; see rounds.ts.

const mutations = filesOf(300);

const text = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));
const model = decoderWeights({ biases: ['q_proj'], layers: 1 });
const folder = {
  'config.json': text(decoderConfig('LlamaForCausalLM', { num_hidden_layers: 1, attention_bias: true })),
  'tokenizer.json': text(plainTokenizer()),
  'tokenizer_config.json': text({ bos_token: '<s>', eos_token: '</s>', add_bos_token: true }),
  'model.safetensors': safetensors(
    Object.fromEntries([...model].map(([name, { shape, values }]) => [name, { dtype: 'F32', shape, data: values }])),
  ),
};
const flux = {
  'flux.safetensors': safetensors({
    'model.diffusion_model.double_blocks.0.img_attn.proj.weight': weights('BF16', [2, 256], 1),
    'model.diffusion_model.double_blocks.0.img_attn.qkv.weight': weights('F16', [2, 256], 2),
    'model.diffusion_model.img_in.weight': weights('F32', [1, 2, 3, 2, 2], 3),
    'model.diffusion_model.img_in.bias': weights('BF16', [4], 4),
  }),
};

const diffusers = {
  'diffusion_pytorch_model.safetensors': safetensors({
    'transformer_blocks.0.attn.to_out.0.weight': weights('BF16', [2, 256], 1),
    'transformer_blocks.0.attn.to_q.weight': weights('BF16', [2, 256], 2),
    'transformer_blocks.0.attn.to_k.weight': weights('BF16', [2, 256], 3),
    'transformer_blocks.0.attn.to_v.weight': weights('BF16', [2, 256], 4),
    'single_transformer_blocks.0.attn.norm_k.weight': weights('F32', [4], 5),
    'norm_out.linear.weight': weights('F16', [4, 256], 6),
  }),
};
const models = [flux, diffusers, folder, folder];

/** Bytes that mean something in JSON. */
const marks = [...new TextEncoder().encode('{}[]",:0-9e.\\tfnu')];

describe('damaged models that become GGUF', () => {
  it('are converted or refused', async () => {
    for (let round = 0; round < mutations; round++) {
      const below = random(seedOf(1000 + round));
      const files = Object.entries(models[round % models.length]!).map(([name, bytes]) => ({
        name,
        bytes: bytes.slice(),
      }));
      const { name, bytes } = files[below(files.length)]!;
      // In a model the header is damaged more often than the weights, most of which cannot be wrong.
      const end = name.endsWith('.safetensors') && below(10) > 0 ? Math.min(bytes.length, 1500) : bytes.length;
      for (let i = below(3); i >= 0; i--) {
        bytes[below(end)] = below(2) > 0 ? below(256) : marks[below(marks.length)]!;
      }
      const cut = below(10) === 0 ? below(bytes.length) : bytes.length;
      const list = files.map((file) => new File([file.bytes === bytes ? bytes.slice(0, cut) : file.bytes], file.name));
      const what = `round ${round}, ${name}`;
      try {
        const result = await quantizeModel(list, { to: 'Q8_0', workers: 0 });
        const { format, tensors } = await inspectModel(await result.bytes());
        expect({ format, some: tensors.length > 0 }, what).toEqual({ format: 'gguf', some: true });
      } catch (error) {
        const isTold =
          error instanceof ScalepointError || ['to', 'file'].includes((error as { option?: string }).option ?? '');
        expect(isTold ? '' : `${what}: ${(error as Error).stack}`).toBe('');
      }
    }
  });
});

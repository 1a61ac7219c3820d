/**
 * Apertus, whose feed-forward part has no gate, and an activation with numbers of its own in each layer (xIELU).
 * Reference: github.com/ggml-org/llama.cpp, conversion/apertus.py at 2bbcf7f. Tests compare with llama.cpp v0.5.0.
 */
import { badFolderFile } from '../huggingface/errors.js';
import { decoderDefaults, type ModelClass, siluSettings } from '../huggingface/reading.js';
import { llamaKeys } from './llama.js';
import { attention, feedForward, headNorms } from './rows.js';

/** Numbers of the activation. Those that training does not change have values in its class. */
const parts = [
  ['alpha_n', undefined],
  ['alpha_p', undefined],
  ['beta', 0.5],
  ['eps', -1e-6],
] as const;

export const apertus: ModelClass = {
  architecture: 'apertus',
  classes: {
    ApertusForCausalLM: decoderDefaults([4096, 14336, 32], [32], 65536, { rms_norm_eps: 1e-5, rope_theta: 12e6 }),
  },
  only: { ...siluSettings, hidden_act: ['xielu'], attention_bias: [false], mlp_bias: [false], qk_norm: [true] },
  scaling: ['linear', 'yarn', 'llama3'],
  table: {
    layer: [
      { from: 'attention_layernorm', to: 'attn_norm', shape: ['hidden'] },
      { from: 'feedforward_layernorm', to: 'ffn_norm', shape: ['hidden'] },
      ...attention,
      ...headNorms,
      ...feedForward.slice(1),
    ],
    // The numbers of the activation become keys.
    rename: (name) => (name.includes('.act_fn.') ? undefined : name),
  },
  details(draft) {
    const numbers = parts.map(([part, usual]) => {
      const values = Array.from({ length: draft.sizes.layers }, (_, layer) => {
        const name = `model.layers.${layer}.mlp.act_fn.${part}`;
        return draft.scalars?.get(name) ?? usual ?? badFolderFile('safetensors', `the tensor ${name} is missing`, name);
      });
      return [`xielu.${part}`, values] as const;
    });
    return { keys: { ...llamaKeys(draft), ...Object.fromEntries(numbers) } };
  },
};

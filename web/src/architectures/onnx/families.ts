/** The architectures whose graphs are known, by the names of their classes. */
import type { DecoderGraph } from './decoder.js';
import type { EncoderGraph } from './encoder.js';
import { encoderFamilies } from './encoders.js';

const kind = 'decoder';
const scaling = ['linear', 'llama3', 'yarn'] as const;
const oddLayers = (layer: number) => layer % 2 === 1;

const gemma2 = {
  kind,
  modelType: 'gemma2',
  norms: 'around',
  isGemma: true,
  scaling: ['linear'],
  isGlobal: oddLayers,
  only: { use_bidirectional_attention: [false] },
} as const;

const decoders: Readonly<Record<string, DecoderGraph>> = {
  LlamaForCausalLM: { kind, modelType: 'llama', scaling },
  MistralForCausalLM: { kind, modelType: 'mistral', scaling },
  SmolLM3ForCausalLM: { kind, modelType: 'smollm3', scaling, skipsRotary: true, switchesWindow: true },
  Qwen2ForCausalLM: { kind, modelType: 'qwen2', scaling, switchesWindow: true },
  Qwen3ForCausalLM: { kind, modelType: 'qwen3', scaling, headNorms: 'each', switchesWindow: true },
  GemmaForCausalLM: { kind, modelType: 'gemma', isGemma: true, scaling: [] },
  Gemma2ForCausalLM: gemma2,
  Gemma3ForCausalLM: {
    ...gemma2,
    modelType: 'gemma3_text',
    headNorms: 'each',
    isGlobal: (layer: number) => (layer + 1) % 6 === 0,
  },
  Phi3ForCausalLM: { kind, modelType: 'phi3', isFused: true, scaling: ['longrope'] },
  GraniteForCausalLM: { kind, modelType: 'granite', scaling, hasFactors: true },
  Olmo2ForCausalLM: { kind, modelType: 'olmo2', scaling, norms: 'behind', headNorms: 'all' },
};

/** Classes of encoders: without a head, and with each one that the family has. */
const encoders = Object.entries(encoderFamilies).flatMap(([beginning, facts]) =>
  ['Model', ...Object.keys(facts.heads)].map((end) => [beginning + end, facts] as const),
);

export const onnxFamilies: ReadonlyMap<string, DecoderGraph | EncoderGraph> = new Map<
  string,
  DecoderGraph | EncoderGraph
>([...Object.entries(decoders), ...encoders]);

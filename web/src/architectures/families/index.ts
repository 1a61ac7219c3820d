/** The families of models. To add one, add its file here. */
import { type Note, noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import type { KnownModels } from '../../formats/known-models.js';
import { type Config, readRope } from '../huggingface/config.js';
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import { type Json, member } from '../huggingface/json.js';
import { type Model, type ModelClass, type Read, readClass } from '../huggingface/reading.js';
import type { GraphFacts } from '../onnx/families.js';
import type { WebllmFamily } from '../webllm/families.js';
import { apertus } from './apertus.js';
import { arcee } from './arcee.js';
import { bailingMoe2 } from './bailing.js';
import { bertFamily } from './bert.js';
import { bitnet } from './bitnet.js';
import { cohereFamily } from './cohere.js';
import { deepseekFamily } from './deepseek.js';
import { ernieFamily } from './ernie.js';
import { exaoneFamily } from './exaone.js';
import { gemmaFamily } from './gemma.js';
import { glmFamily } from './glm.js';
import { gptFamily } from './gpt.js';
import { graniteFamily } from './granite.js';
import { hunyuanFamily } from './hunyuan.js';
import { internlmFamily } from './internlm.js';
import { jamba } from './jamba.js';
import { kimiLinear } from './kimi.js';
import { lfmFamily } from './lfm2.js';
import { llamaFamily } from './llama.js';
import { mambaFamily } from './mamba.js';
import { minicpm } from './minicpm.js';
import { minimaxM2 } from './minimax.js';
import { mistralFamily } from './mistral.js';
import { modernBertFamily } from './modern-bert.js';
import { nemotronFamily } from './nemotron.js';
import { olmoFamily } from './olmo.js';
import { phiFamily } from './phi.js';
import { plamo2 } from './plamo.js';
import { qwenFamily } from './qwen.js';
import { rwkv7 } from './rwkv.js';
import { seedOss } from './seed-oss.js';
import { step35 } from './step.js';
import { t5Family } from './t5.js';

export const families: readonly ModelClass[] = [
  ...llamaFamily,
  ...qwenFamily,
  ...gemmaFamily,
  ...phiFamily,
  ...graniteFamily,
  ...olmoFamily,
  ...glmFamily,
  ...cohereFamily,
  ...deepseekFamily,
  ...gptFamily,
  ...mambaFamily,
  apertus,
  arcee,
  bitnet,
  ...ernieFamily,
  ...exaoneFamily,
  ...hunyuanFamily,
  ...lfmFamily,
  bailingMoe2,
  ...internlmFamily,
  jamba,
  kimiLinear,
  minicpm,
  minimaxM2,
  ...mistralFamily,
  ...nemotronFamily,
  plamo2,
  rwkv7,
  seedOss,
  step35,
  ...bertFamily,
  ...modernBertFamily,
  ...t5Family,
];

/** Classes by the name that config.json has under `architectures`, with their defaults. */
const known = new Map(
  families.flatMap((one) => Object.entries(one.classes).map(([name, defaults]) => [name, { one, defaults }] as const)),
);

/** The names that config.json may have under `architectures`. */
export const architectureNames: readonly string[] = [...known.keys()];

/** Values of keys that a config.json of a class may lack. */
export function defaultsOf(className: unknown): Json {
  return known.get(className as string)?.defaults ?? {};
}

/** The first class of an architecture of llama.cpp; empty if it is not known. */
export function architectureFacts(architecture: string): Partial<ModelClass> {
  return families.find((one) => one.architecture === architecture) ?? {};
}

/** Classes for which WebLLM has libraries, by their names in config.json. */
export const webllmFamilies: ReadonlyMap<string, WebllmFamily> = new Map(
  families.flatMap((one) => Object.entries(one.webllm ?? {})),
);

/** Classes whose graphs are known, by their names in config.json: encoders without a head, and with each one that they have. */
export const onnxGraphs: ReadonlyMap<string, GraphFacts> = new Map(
  families
    .flatMap(({ onnx = {} }) => Object.entries(onnx))
    .flatMap(([name, graph]) => {
      const ends = graph.kind === 'decoder' ? [''] : ['Model', ...Object.keys(graph.heads)];
      return ends.map((end) => [name + end, graph] as const);
    }),
);

/** Classes of transformers in place of others, of which llama.cpp takes a part, and types that do not follow from names. */
const outwardClasses: Readonly<Record<string, readonly [className: string, modelType: string]>> = {
  Mistral3ForConditionalGeneration: ['MistralForCausalLM', 'mistral'],
  PhiMoEForCausalLM: ['PhimoeForCausalLM', 'phimoe'],
  BailingMoeV2ForCausalLM: ['BailingMoeV2ForCausalLM', 'bailing_moe'],
  GPT2LMHeadModel: ['GPT2LMHeadModel', 'gpt2'],
  GraniteMoeSharedForCausalLM: ['GraniteMoeSharedForCausalLM', 'granitemoeshared'],
  HunYuanDenseV1ForCausalLM: ['HunYuanDenseV1ForCausalLM', 'hunyuan_v1_dense'],
  MiniMaxM2ForCausalLM: ['MiniMaxM2ForCausalLM', 'minimax_m2'],
  // The language models of models that see.
  Gemma3nForCausalLM: ['Gemma3nForCausalLM', 'gemma3n_text'],
  Gemma4ForCausalLM: ['Gemma4ForCausalLM', 'gemma4_text'],
  Llama4ForCausalLM: ['Llama4ForCausalLM', 'llama4_text'],
  Qwen3_5ForCausalLM: ['Qwen3_5ForCausalLM', 'qwen3_5_text'],
  Qwen3_5MoeForCausalLM: ['Qwen3_5MoeForCausalLM', 'qwen3_5_moe_text'],
};

/**
 * The class and the `model_type` of a folder with the language model of a class alone: those that stand above or in a description, or the
 * name of the class without its head in the spelling of transformers. Undefined for classes that are a part of another model.
 */
export function outwardClass(
  { mlx = {}, onnx = {} }: ModelClass,
  className: string,
): readonly [className: string, modelType: string] | undefined {
  const known = outwardClasses[className];
  if (known !== undefined) return known;
  if (/ForConditionalGeneration$|ForSequenceClassification$|AssistantForCausalLM$|^ChatGLM/.test(className))
    return undefined;
  const graph = onnx[className];
  if (graph?.kind === 'decoder') return [className, graph.modelType];
  const stem = className.replace(/(ForCausalLM|Model)$/, '');
  const plain = (name: string) => name.toLowerCase().replaceAll('_', '');
  const stated = Object.keys(mlx).find((type) => plain(type) === plain(stem));
  return [className, stated ?? stem.replace(/(?<=[a-z0-9])(?=[A-Z][a-z])/g, '_').toLowerCase()];
}

/** Models that mlx-lm loads, by the `model_type` of config.json. */
export const knownModels: KnownModels = Object.assign({}, ...families.map(({ mlx }) => mlx));

/** The reason for an architecture that is missing, with advice. */
function reasonFor(name: string): string {
  if (name.startsWith('MPNet'))
    return 'llama.cpp has no graph for MPNet; export it to ONNX, and quantize that file here';
  const what = name.startsWith('KimiK3') ? 'residuals of attention' : 'the names and the order of its tensors';
  return `${what} are not known here; a GGUF file of llama.cpp's convert_hf_to_gguf.py can be quantized here`;
}

/** Reads a model of a known class. */
export function readModelFacts(config: Config, folder: Omit<Read, 'config' | 'rope' | 'notes'>): Model {
  const list = config.get('architectures');
  const name: unknown = Array.isArray(list) ? list[0] : undefined;
  if (typeof name !== 'string') return badConfig('architectures is missing, or names none');
  const found = known.get(name);
  if (found === undefined) {
    // Most names have the same end, which the text says once.
    const end = 'ForCausalLM';
    const stems = architectureNames.flatMap((one) => (one.endsWith(end) ? [one.slice(0, -end.length)] : []));
    const others = architectureNames.filter((one) => !one.endsWith(end));
    return unsupportedConfig(
      `the architecture ${show(name)} is not supported: ${reasonFor(name)}; supported are ${others.join(', ')}, and with ${end} at the end ${stems.join(', ')}`,
    );
  }
  const rope = readRope(config);
  const notes: Note[] = [];
  if (rope.type === 'yarn' && member(rope.settings, 'truncate') === false) {
    const text =
      `${rope.where}.truncate is false in config.json; llama.cpp always rounds the limits between which YaRN scales frequencies to whole pairs, ` +
      'so that logits differ from those of transformers (by 0.3 % of the largest in gpt-oss)';
    notes.push(noteOf('computedOtherwise', { architecture: name }, text));
  }
  return readClass(found.one, { config, rope, notes, ...folder });
}

/**
 * Makes mlc-chat-config.json.
 * Reference: github.com/mlc-ai/mlc-llm at 01ced331, python/mlc_llm/interface/gen_config.py, protocol/mlc_chat_config.py and model/, and
 * cpp/tokenizers/tokenizers.cc (DetectTokenizerInfo).
 */
import { isCount } from '../../formats/files/json.js';
import { arrayMember, isObject, type Json, member, objectMember } from '../huggingface/json.js';
import type { ModelNumbers, PrebuiltLibrary, WebllmFamily } from './families.js';
import { conversation } from './templates.js';

/** Files of a tokenizer that are copied, in the order of the list. */
export const tokenizerFiles: readonly string[] = [
  'tokenizer.model',
  'tokenizer.json',
  'vocab.json',
  'merges.txt',
  'added_tokens.json',
  'tokenizer_config.json',
];

/** Tokens that a library takes at a time. */
const prefillChunk = 1024;
const batch = 128;

/** Values of keys that no file states. */
const systemDefaults: Readonly<Record<string, unknown>> = {
  temperature: 1,
  presence_penalty: 0,
  frequency_penalty: 0,
  repetition_penalty: 1,
  top_p: 1,
  pad_token_id: 0,
  bos_token_id: 1,
  eos_token_id: 2,
};

/** Numbers and configuration files of a folder, parsed, and the names of its tokenizer files. */
export interface ModelTexts {
  readonly numbers: ModelNumbers;
  readonly config: Json;
  readonly generation: Json | undefined;
  /** tokenizer.json, if it is there. */
  readonly tokenizer: Json | undefined;
  /** Names of the files of the tokenizer. */
  readonly files: readonly string[];
}

/** A member of an object, or of those in a sequence of it, that satisfies a condition. */
function hasStep(steps: Json | undefined, list: string, is: (step: Json) => boolean): boolean {
  if (steps === undefined) return false;
  if (member(steps, 'type') !== 'Sequence') return is(steps);
  return arrayMember(steps, list).some((step) => isObject(step) && is(step));
}

/** The steps by which tokens become text. */
function tokenizerInfo(tokenizer: Json | undefined): Json {
  const decoder = objectMember(tokenizer, 'decoder');
  const isType = (type: string) => (step: Json) => member(step, 'type') === type;
  const isByteLevel = hasStep(decoder, 'decoders', isType('ByteLevel'));
  const isPrepend = (step: Json) => isType('Prepend')(step) && member(step, 'prepend') === '▁';
  const isStrip = (step: Json) => isType('Strip')(step) && step.content === ' ' && step.start === 1 && step.stop === 0;
  return {
    token_postproc_method: isByteLevel ? 'byte_level' : 'byte_fallback',
    prepend_space_in_encode: hasStep(objectMember(tokenizer, 'normalizer'), 'normalizers', isPrepend),
    strip_space_in_decode: hasStep(decoder, 'decoders', isStrip),
  };
}

/** The contents of mlc-chat-config.json. @param quantization its name in MLC-LLM */
export function chatConfig(
  family: WebllmFamily,
  { context, template }: Pick<PrebuiltLibrary, 'context' | 'template'>,
  quantization: string,
  { numbers, config, generation, tokenizer, files }: ModelTexts,
): Json {
  const stated = (name: string) => member(generation, name) ?? member(config, name) ?? systemDefaults[name];
  // Find the ids of added tokens, and the number of all.
  const tokens = new Map<string, number>();
  for (const token of arrayMember(tokenizer, 'added_tokens').filter(isObject)) {
    const { id, content } = token;
    if (typeof content === 'string' && isCount(id)) tokens.set(content, id);
  }
  const listed = member(objectMember(tokenizer, 'model'), 'vocab');
  const isListed = typeof listed === 'object' && listed !== null;
  const vocabulary = isListed
    ? [...tokens.values()].reduce((size, id) => Math.max(size, id + 1), Object.keys(listed).length)
    : numbers.vocab_size;
  const endIds = stated('eos_token_id');
  const ends = (Array.isArray(endIds) ? endIds : [endIds]).filter((id) => isCount(id));
  const chunk = Math.min(prefillChunk, context);
  const { rope_theta, tie_word_embeddings: _tied, rope_scaling: _scaling, ...sizes } = numbers;
  const window = { context_window_size: context, prefill_chunk_size: chunk };
  return {
    version: '0.1.0',
    model_type: family.modelType,
    quantization,
    model_config: family.settings({
      sizes,
      based: { ...sizes, position_embedding_base: rope_theta },
      numbers,
      scaling: objectMember(config, 'rope_scaling') ?? null,
      work: { ...window, tensor_parallel_shards: 1, max_batch_size: batch },
      stated: (...names) => Object.fromEntries(names.map((name) => [name, member(config, name) ?? null])),
    }),
    vocab_size: numbers.vocab_size,
    context_window_size: context,
    sliding_window_size: -1,
    prefill_chunk_size: chunk,
    attention_sink_size: family.sink ?? -1,
    tensor_parallel_shards: 1,
    pipeline_parallel_stages: 1,
    active_vocab_size: vocabulary,
    ...Object.fromEntries(
      ['temperature', 'presence_penalty', 'frequency_penalty', 'repetition_penalty', 'top_p'].map((name) => [
        name,
        stated(name),
      ]),
    ),
    tokenizer_files: files,
    tokenizer_info: tokenizerInfo(tokenizer),
    conv_template: conversation(template, (token) => tokens.get(token), ends),
    pad_token_id: stated('pad_token_id'),
    bos_token_id: stated('bos_token_id'),
    eos_token_id: stated('eos_token_id'),
  };
}

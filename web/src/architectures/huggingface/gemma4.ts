/**
 * Gemma 4: the keys that it reads, and the settings that llama.cpp supports.
 * Reference: github.com/ggml-org/llama.cpp, conversion/gemma.py at 061b8c5, src/models/gemma4.cpp 06e514f. Tests compare with v0.5.0.
 */
import { show } from '../../core/show.js';
import { positive } from './config.js';
import { badFolderFile, unsupported } from './errors.js';
import { member } from './json.js';
import {
  checkGemma,
  decoder,
  expertCounts,
  expertSizes,
  type Model,
  type Read,
  tiedIn,
  windowLayers,
} from './reading.js';
import { madeTensor } from './rope.js';
import * as tables from './tables-gemma4.js';

const file = 'config.json';

/** Frequency factor so large that the rotation rounds to 0 in float32. */
const still = 1e30;

/** Divisors of the frequencies of full attention: the first pairs of a head turn, and the others stay. */
function frequencyDivisors({ rope }: Read, head: number) {
  if (rope.type !== 'proportional')
    unsupported(file, `${rope.where}.full_attention.rope_type is ${show(rope.type)}; it has to be proportional`);
  const share = positive(file, `${rope.where}.partial_rotary_factor`, member(rope.settings, 'partial_rotary_factor'));
  if (share === undefined || share > 1)
    return badFolderFile(file, `${rope.where}.full_attention.partial_rotary_factor is ${show(share)}`);
  const turned = Math.floor((head * share) / 2);
  return Array.from({ length: head / 2 }, (_, i) => (i < turned ? 1 : still));
}

/** The sizes of attention in layers with a window and in those without. */
function attentions({ config }: Read, heads: number, keyHeads: number, head: number) {
  const globalHead = config.whole('global_head_dim', 512);
  if (globalHead % 2 !== 0) badFolderFile(file, `global_head_dim is ${globalHead}; the rotary embedding takes pairs`);
  const keysAreValues = config.maybeFlag('attention_k_eq_v') ?? false;
  const globalKeyHeads = config.maybeWhole('num_global_key_value_heads');
  // llama.cpp's converter writes the number of heads alone, whatever the flag says.
  if (!keysAreValues && globalKeyHeads !== undefined && globalKeyHeads !== keyHeads)
    unsupported(
      file,
      `num_global_key_value_heads is ${globalKeyHeads} without attention_k_eq_v; the converter writes it for models with it only`,
    );
  const local: tables.Attention = { heads, keyHeads, head, keysAreValues: false };
  const full: tables.Attention = { heads, keyHeads: globalKeyHeads ?? keyHeads, head: globalHead, keysAreValues };
  return { local, full, globalKeyHeads };
}

function gemma4(read: Read): Model {
  const { config, notes } = read;
  checkGemma(read);
  const { hyper, sizes } = decoder(read);
  const { layers, heads, keyHeads, head } = sizes;
  const isLocal = windowLayers(read, layers, (i) => (i + 1) % 6 !== 0 && i < layers - 1);
  const { local, full, globalKeyHeads } = attentions(read, heads, keyHeads, head);
  // Layers at the end take the keys and values of earlier ones.
  const shared = config.maybeWhole('num_kv_shared_layers', 0) ?? 0;
  if (shared >= layers) badFolderFile(file, `num_kv_shared_layers ${shared} leaves none of ${layers} layers`);
  const firstShared = layers - shared;
  const isWide = config.maybeFlag('use_double_wide_mlp') ?? false;
  const widthOf = (layer: number) => (isWide && layer >= firstShared ? 2 : 1) * sizes.feedForward;
  const perLayer = config.maybeWhole('hidden_size_per_layer_input', 0) ?? 0;
  // Read the experts.
  const hasExperts = config.maybeFlag('enable_moe_block') ?? config.stated('num_experts') !== undefined;
  const [experts, usedExperts] = hasExperts ? expertCounts(config, 'num_experts', 'top_k_experts') : [0, 0];
  const expertKey =
    config.stated('expert_intermediate_size') === undefined ? 'moe_intermediate_size' : 'expert_intermediate_size';
  const expertFeedForward = hasExperts ? config.whole(expertKey) : 0;
  const finalCap = config.maybePositive('final_logit_softcapping');
  const divisors = frequencyDivisors(read, full.head);
  const { keyHeads: _keyHeads, feedForward: _feedForward, head: _head, ...others } = hyper;
  const { localTheta } = read.rope;
  return {
    architecture: 'gemma4',
    hyper: {
      ...others,
      ...(isWide
        ? { layerFeedForward: Array.from({ length: layers }, (_, i) => widthOf(i)) }
        : { feedForward: sizes.feedForward }),
      ...(globalKeyHeads === undefined
        ? { keyHeads }
        : { layerKeyHeads: isLocal.map((one) => (one ? keyHeads : globalKeyHeads)) }),
      ...(localTheta === undefined ? {} : { localTheta }),
      ...(hasExperts ? { experts, usedExperts, expertFeedForward } : {}),
      head: full.head,
      ...(finalCap === undefined ? {} : { finalCap }),
      window: config.whole('sliding_window'),
      sharedLayers: shared,
      perLayer,
      windowLayers: isLocal,
      windowHead: head,
      ropeDimensions: full.head,
      windowRopeDimensions: head,
    },
    sizes: { ...sizes, ...expertSizes(experts, expertFeedForward) },
    table: tables.gemma4({
      layers,
      isLocal: (layer) => isLocal[layer] === true,
      local,
      full,
      firstShared,
      feedForwardOf: widthOf,
      perLayer,
      perLayerVocabulary: perLayer === 0 ? 0 : config.whole('vocab_size_per_layer_input', sizes.vocabulary),
      hasExperts,
    }),
    made: () => [madeTensor('rope_freqs.weight', divisors)],
    tied: tiedIn(config),
    longEmbedding: true,
    notes,
  };
}

/** Readers by the name that config.json has under `architectures`. */
export const gemma4Readers: Readonly<Record<string, (read: Read) => Model>> = {
  Gemma4ForCausalLM: gemma4,
  Gemma4ForConditionalGeneration: gemma4,
};

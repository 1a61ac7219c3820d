/**
 * Mixtures of experts beside Mixtral and Qwen: the keys that each reads, and the settings that llama.cpp supports for each.
 * Reference: github.com/ggml-org/llama.cpp, conversion/ granite.py at 010f22d, olmo.py, glm.py, ernie.py 051139f. Tests compare with
 * llama.cpp v0.5.0.
 */
import { show } from '../../core/show.js';
import { granite } from './dense.js';
import { badFolderFile, unsupported } from './errors.js';
import {
  biased,
  checkDecoder,
  decoder,
  expertCounts,
  expertSizes,
  type Model,
  type Read,
  rotatedOf,
  tiedIn,
} from './reading.js';
import { ropeKeys } from './rope.js';
import * as tables from './tables-experts.js';

const file = 'config.json';

function olmoe(read: Read): Model {
  const { config, rope, notes } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  config.only('attention_bias', false);
  config.only('norm_topk_prob', false);
  if (config.get('clip_qkv') !== undefined)
    unsupported(file, `clip_qkv is ${show(config.get('clip_qkv'))}; llama.cpp computes OLMoE without it`);
  const { hyper, sizes } = decoder(read, { plainHeads: true });
  const [experts, usedExperts] = expertCounts(config, 'num_experts');
  if (sizes.keyHeads !== sizes.heads)
    unsupported(file, `num_key_value_heads is ${sizes.keyHeads}; llama.cpp computes OLMoE with ${sizes.heads} only`);
  if (hyper.rmsEpsilon !== 1e-5)
    unsupported(file, `rms_norm_eps is ${hyper.rmsEpsilon}; the converter writes 0.00001 for OLMoE`);
  return {
    architecture: 'olmoe',
    hyper: { ...hyper, ...ropeKeys(rope, ['linear', 'yarn']), experts, usedExperts },
    sizes: { ...sizes, ...expertSizes(experts, sizes.feedForward) },
    table: tables.olmoe,
    made: () => [],
    tied: tiedIn(config),
    notes,
  };
}

/** Granite with experts, and perhaps some that all tokens pass. */
function graniteMoe(read: Read): Model {
  const { config } = read;
  const model = granite(read);
  const sharedFeedForward = config.maybeWhole('shared_intermediate_size', 0) ?? 0;
  const [experts, usedExperts] = expertCounts(config, 'num_local_experts');
  return {
    ...model,
    architecture: 'granitemoe',
    hyper: {
      ...model.hyper,
      experts,
      usedExperts,
      ...(sharedFeedForward === 0 ? {} : { sharedFeedForward }),
    },
    sizes: { ...model.sizes, ...expertSizes(experts, model.sizes.feedForward, sharedFeedForward) },
    table: biased(config, tables.graniteMoe(sharedFeedForward > 0)),
  };
}

function glm4moe(read: Read): Model {
  const { config, rope, notes } = read;
  config.only('hidden_act', 'silu');
  config.only('n_group', 1);
  config.only('topk_group', 1);
  const { hyper, sizes } = decoder(read);
  const [experts, usedExperts] = expertCounts(config, 'n_routed_experts');
  const nextLayers = config.maybeWhole('num_nextn_predict_layers', 0);
  const dense = config.maybeWhole('first_k_dense_replace', 0) ?? 0;
  const sharedExperts = config.whole('n_shared_experts');
  const expertFeedForward = config.whole('moe_intermediate_size');
  const layers = sizes.layers + (nextLayers ?? 0);
  return {
    architecture: 'glm4moe',
    hyper: {
      ...hyper,
      ...ropeKeys(rope, ['linear', 'yarn']),
      layers,
      experts,
      usedExperts,
      expertGroups: config.whole('n_group', 1),
      usedGroups: config.whole('topk_group', 1),
      ropeDimensions: rotatedOf(read, sizes.head, 1, 0.5),
      expertFeedForward,
      sharedExperts,
      denseLayers: dense,
      gating: 2,
      expertScale: config.positive('routed_scaling_factor', 1),
      normalizesExperts: config.maybeFlag('norm_topk_prob') ?? true,
      ...(nextLayers === undefined ? {} : { nextLayers }),
    },
    sizes: { ...sizes, layers, ...expertSizes(experts, expertFeedForward, sharedExperts * expertFeedForward) },
    table: biased(config, tables.glm4moe(sizes.layers, dense, config.maybeFlag('use_qk_norm') ?? false)),
    made: () => [],
    tied: tiedIn(config),
    notes,
  };
}

function ernieMoe(read: Read): Model {
  const { config, rope, notes } = read;
  checkDecoder(read);
  config.only('hidden_act', 'silu');
  config.only('use_bias', false);
  config.only('moe_layer_interval', 1);
  const { hyper, sizes } = decoder(read);
  const [experts, used] = [config.whole('moe_num_experts'), config.whole('moe_k')];
  if (used > experts) badFolderFile(file, `moe_k ${used} is more than moe_num_experts ${experts}`);
  const expertFeedForward = config.whole('moe_intermediate_size');
  const sharedExperts = config.maybeWhole('moe_num_shared_experts', 0) ?? 0;
  const denseLayers = config.maybeWhole('moe_layer_start_index', 0) ?? 0;
  // The converter takes the shared experts for this long, whatever their number.
  const sharedFeedForward = Math.floor(sizes.feedForward / sizes.keyHeads);
  if (sharedExperts > 0 && sharedFeedForward !== sharedExperts * expertFeedForward)
    unsupported(
      file,
      `${sharedExperts} shared experts have ${sharedExperts * expertFeedForward} rows; llama.cpp's converter writes ` +
        `intermediate_size / num_key_value_heads, which is ${sharedFeedForward}`,
    );
  const end = config.maybeWhole('moe_layer_end_index', -1);
  if (end !== undefined && end !== -1 && end !== sizes.layers - 1)
    unsupported(file, `moe_layer_end_index is ${end}; llama.cpp computes experts up to the last layer`);
  return {
    architecture: 'ernie4_5-moe',
    hyper: {
      ...hyper,
      ...ropeKeys(rope, ['linear', 'yarn']),
      lateExperts: experts,
      lateUsedExperts: used,
      expertStep: 1,
      denseLayers,
      expertFeedForward,
      sharedExperts,
      ...(sharedExperts > 0 ? { sharedFeedForward } : {}),
    },
    sizes: { ...sizes, ...expertSizes(experts, expertFeedForward, sharedFeedForward) },
    table: tables.ernieMoe(denseLayers, sharedExperts > 0),
    made: () => [],
    tied: tiedIn(config),
    notes,
  };
}

/** Readers by the name that config.json has under `architectures`. */
export const expertReaders: Readonly<Record<string, (read: Read) => Model>> = {
  OlmoeForCausalLM: olmoe,
  GraniteMoeForCausalLM: graniteMoe,
  GraniteMoeSharedForCausalLM: graniteMoe,
  Glm4MoeForCausalLM: glm4moe,
  Ernie4_5_MoeForCausalLM: ernieMoe,
};

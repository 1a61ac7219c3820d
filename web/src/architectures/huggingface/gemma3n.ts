/**
 * Gemma 3n: the keys that it reads, and the settings that llama.cpp supports.
 * Reference: github.com/Tippach/Franken-Llama 1774451, conversion/gemma.py and src/models/gemma3n.cpp. Tests compare with llama.cpp v0.5.0.
 */
import { show } from '../../core/show.js';
import { badFolderFile, unsupported } from './errors.js';
import { checkGemma, checkLayers, decoder, type Model, type Read, tiedIn } from './reading.js';
import { ropeKeys } from './rope.js';
import * as tables from './tables-gemma3n.js';

const file = 'config.json';

/** Numbers that llama.cpp computes Gemma 3n with, whatever the file says. */
const fixed = { ownLayers: 20, perLayer: 256, laurel: 64, inputs: 4, sparseLayers: 10, finalCap: 30 } as const;

/** The share of a sparse layer's gates that become 0, and the number of standard deviations above the mean that this is, as a float32. */
const [sparsity, deviations] = [0.95, Math.fround(1.6448533535)];

/** Fails unless the first layers, and no others, have the sparsity that llama.cpp computes. */
function checkSparsity({ config }: Read, layers: number): void {
  const pattern = config.get('activation_sparsity_pattern');
  if (pattern === undefined) return;
  const expected = (i: number) => (i < fixed.sparseLayers ? sparsity : 0);
  if (!Array.isArray(pattern) || pattern.length !== layers)
    badFolderFile(file, `activation_sparsity_pattern has to be an array of ${layers} numbers, got ${show(pattern)}`);
  const other = (pattern as unknown[]).findIndex((share, i) => share !== expected(i));
  if (other >= 0)
    unsupported(
      file,
      `activation_sparsity_pattern[${other}] is ${show((pattern as unknown[])[other])}; llama.cpp computes ${expected(other)} there`,
    );
}

/** Rows of the feed-forward part, which all layers share. */
function feedForwardOf({ config }: Read, layers: number): number {
  const stated = config.get('intermediate_size');
  if (!Array.isArray(stated)) return config.whole('intermediate_size');
  const [first] = stated as unknown[];
  if (stated.length !== layers || typeof first !== 'number' || !Number.isInteger(first) || first < 1)
    return badFolderFile(file, `intermediate_size has to be ${layers} whole numbers, got ${show(stated)}`);
  const other = stated.findIndex((rows) => rows !== first);
  if (other >= 0)
    unsupported(
      file,
      `intermediate_size[${other}] is ${show(stated[other])}; llama.cpp computes all layers with ${first}`,
    );
  return first;
}

function gemma3n(read: Read): Model {
  const { config, rope, notes, embeddingRows } = read;
  checkGemma(read);
  const layers = config.whole('num_hidden_layers');
  const { hyper, sizes } = decoder(read, { feedForward: feedForwardOf(read, layers) });
  checkLayers(read, layers, (i) => (i + 1) % 5 !== 0);
  checkSparsity(read, layers);
  config.only('altup_num_inputs', fixed.inputs);
  config.only('altup_active_idx', 0);
  config.only('altup_correct_scale', true);
  config.only('laurel_rank', fixed.laurel);
  config.only('hidden_size_per_layer_input', fixed.perLayer);
  config.only('final_logit_softcapping', fixed.finalCap);
  const sharedLayers = config.whole('num_kv_shared_layers', undefined, 0);
  if (layers - sharedLayers !== fixed.ownLayers)
    unsupported(
      file,
      `num_kv_shared_layers is ${sharedLayers} of ${layers} layers; llama.cpp computes keys in the first ${fixed.ownLayers} layers only`,
    );
  const perLayerVocabulary = config.whole('vocab_size_per_layer_input', sizes.vocabulary);
  if (perLayerVocabulary > sizes.vocabulary)
    badFolderFile(file, `vocab_size_per_layer_input ${perLayerVocabulary} is more than vocab_size ${sizes.vocabulary}`);
  const { feedForward, ...others } = hyper;
  const { localTheta } = rope;
  return {
    architecture: 'gemma3n',
    hyper: {
      ...others,
      ...ropeKeys(rope, []),
      ...(localTheta === undefined ? {} : { localTheta }),
      layerFeedForward: Array.from({ length: layers }, () => feedForward as number),
      finalCap: fixed.finalCap,
      window: config.whole('sliding_window'),
      activeInput: 0,
      altupInputs: fixed.inputs,
      perLayer: fixed.perLayer,
      sharedLayers,
      sparsity: Array.from({ length: layers }, (_, i) => (i < fixed.sparseLayers ? deviations : -Infinity)),
      windowLayers: Array.from({ length: layers }, (_, i) => (i + 1) % 5 !== 0),
    },
    sizes,
    table: tables.gemma3n({
      layers,
      inputs: fixed.inputs,
      laurel: fixed.laurel,
      perLayer: fixed.perLayer,
      perLayerVocabulary,
      embeddingRows: Math.min(embeddingRows ?? sizes.vocabulary, sizes.vocabulary),
    }),
    made: () => [],
    tied: tiedIn(config),
    notes,
  };
}

/** Readers by the name that config.json has under `architectures`. */
export const gemma3nReaders: Readonly<Record<string, (read: Read) => Model>> = {
  Gemma3nForCausalLM: gemma3n,
  Gemma3nForConditionalGeneration: gemma3n,
};

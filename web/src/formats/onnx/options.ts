/** Options of ONNX results. */
import { rangeError, typeError } from '../../core/errors.js';
import { mention, ofType, oneOf, onlyWith, without } from '../../core/option-problem.js';
import { amended, choice, type OptionsOf, option, toggle, type Words } from '../../core/schema.js';
import {
  checkRules,
  checkStatistics,
  feedbackEntries,
  importanceEntry,
  type NonFiniteOptions,
  nonFiniteEntry,
  optionTable,
  type PlanChoices,
  type RangeOptions,
  type RequantizeOptions,
  rangeEntry,
  requantizeEntry,
  type StatisticsOptions,
  statisticsFile,
} from '../options.js';
import type { FoldedNorm } from '../run.js';
import { configOption } from '../safetensors/options.js';
import { hasStatisticsFile } from '../statistics.js';
import { transformersSidecar } from './config.js';
import {
  choicesByTarget,
  folderFacts,
  folderTargets,
  type OnnxFolderTarget,
  type OnnxTarget,
  onnxTargets,
  optionsOf,
  targets,
} from './targets.js';

/** Largest exponent of a factor of a folded channel: those of trained models differ by less. */
export const mostExponent = 24;

/** Operators in graphs of decoders. */
export type OnnxProfile = 'plain' | 'fused';

const blockSizes: readonly number[] = [16, 32, 64, 128, 256];

/** Options of an ONNX result, in the order of the help. */
const entries = {
  ...rangeEntry,
  /** ONNX, q8, int8 and uint8: one scale for each weight, as quantize_dynamic does by default. @defaultValue a scale for each channel */
  perTensor: toggle({
    name: 'per-tensor',
    about: 'q8, int8, uint8: one scale for each weight, not for each channel',
  }),
  /**
   * ONNX, q8, int8 and uint8: bits of signed weights that are multiplied as integers. true: 7, as `reduce_range` of onnxruntime's tools and most
   * encoders on the Hugging Face Hub have; on x86 processors without VNNI, onnxruntime saturates sums of products with 8 bits. false: 8. q8
   * has unsigned weights in products, which do not saturate, unless this is true. Weights of LSTM are always signed.
   * @defaultValue true; for products of q8 false
   */
  reduceRange: toggle(
    { name: 'reduce-range', about: 'q8: signed weights of 7 bits, as older files on the hub have' },
    { name: 'full-range', means: false, about: 'int8, and LSTM of q8 and uint8: signed weights of 8 bits' },
  ),
  /** ONNX, blocks: elements that share a scale: 16, 32, 64, 128 or 256. @defaultValue 32; bnb4: 64 */
  blockSize: amended(
    choice(blockSizes, {
      name: 'block-size',
      value: 'N',
      about: 'elements of a block, 16 to 256 (32 by default; bnb4: 64)',
    }),
    {
      read({ 'block-size': text }: Words) {
        if (blockSizes.map(String).includes(String(text))) return Number(text);
        throw rangeError('--block-size', oneOf(blockSizes), text);
      },
    },
  ),
  /**
   * ONNX, int8-weights and uint8-weights: nodes that restore floats. 'linear': DequantizeLinear, which onnxruntime computes at every run,
   * in the memory of the codes. 'cast': Cast and Mul, which it computes once, when it loads the model. The model then has the speed and
   * memory of float32, and only the file is small.
   * @defaultValue 'linear'
   */
  dequantize: choice(['linear', 'cast'], {
    name: 'dequantize',
    value: 'HOW',
    about: 'int8-weights, uint8-weights: at every run (linear), or once (cast)',
  }),
  /**
   * ONNX, int8-static, fp16, q4f16 and q2f16: ranges of activations, which `calibrateModel` collects with `ranges`: the result of it, or the
   * file. Nodes whose activations float16 cannot hold then stay in float32.
   */
  ranges: statisticsFile(
    { name: 'ranges', about: 'int8-static, fp16, q4f16, q2f16: the ranges of `calibrate --ranges`' },
    (value) => hasStatisticsFile('ranges', value),
    'result of calibrateModel with ranges',
  ),
  /**
   * ONNX, fp16, q4f16 and q2f16: type of the caches of a language model, which are inputs and outputs. 'float16': half of their memory,
   * and no casts around attention. transformers.js 4 reads the type from the model; 3 needs `kv_cache_dtype` in config.json, which `result.config`
   * has.
   * @defaultValue 'float32'
   */
  kvCache: choice(['float32', 'float16'], {
    name: 'kv-cache',
    value: 'TYPE',
    about: 'fp16, q4f16, q2f16: type of the caches of language models (default float32)',
  }),
  /**
   * ONNX, q8, int8, uint8 and int8-static: true moves the scale of large channels from norms into the weights behind them, where the outputs
   * of the model get closer to the original. Activations have one scale for all channels, so that a few large ones cost the others their
   * precision. It needs `run.samples`: every other sample gives the factors, and the others judge two results, without and with them. The
   * factors are powers of two, so that floats compute the same. Norms are folded whose output products with weights of their own alone read.
   * `report.folding` has them; its `norms` in place of true make the same result without running it.
   * @defaultValue false
   */
  foldOutliers: amended(
    option<boolean | readonly FoldedNorm[]>(
      (value, name) => {
        const isFold = ({ value, exponents, range }: Partial<FoldedNorm>) =>
          typeof value === 'string' &&
          Array.isArray(exponents) &&
          exponents.every((one) => Number.isInteger(one) && Math.abs(one) <= mostExponent) &&
          Array.isArray(range) &&
          range.length === 2 &&
          range.every(Number.isFinite);
        const isList = Array.isArray(value) && value.every((one) => isFold(one ?? {}));
        if (typeof value !== 'boolean' && !isList)
          throw typeError(name, ofType('boolean', 'list of folded norms'), value);
      },
      { name: 'fold-outliers', about: 'q8, int8, uint8, int8-static: move large channels from norms into weights' },
    ),
    { off: false, excludedBy: [{ option: 'importance' }, { option: 'moments' }] },
  ),
  ...nonFiniteEntry,
  /**
   * ONNX: true puts weights into a second file, named after the output with `_data` appended. transformers.js then needs
   * `use_external_data_format` in config.json. The output must be a path.
   * @defaultValue false, unless the model would have 2 GiB or more
   */
  externalData: toggle({ name: 'external-data', about: 'weights in a second file, OUTPUT_data' }),
  /**
   * ONNX, blocks: true adds zero points, which take 2% more. 'float': zero points of any value, in products of 2 and 4 bits, which take 20%
   * more.
   * @defaultValue false
   */
  zeroPoints: choice<boolean | 'float'>(
    [true, false, 'float'],
    [
      { name: 'zero-points', about: 'zero points for blocks of integers' },
      { name: 'float-zero-points', means: 'float', about: 'q4, q4f16, q2, q2f16: zero points of any value' },
    ],
  ),
  ...importanceEntry,
  ...feedbackEntries,
  ...requantizeEntry,
  /**
   * transformers.js: operators of a decoder. 'plain': those of ONNX, which every version loads and which compute alike on every backend. 'fused':
   * onnxruntime's operators for rotary embeddings and attention, and logits of the last token alone, for transformers.js 4 in WebAssembly, on
   * WebGPU, and in Node on the CPU. Attention with a cap, as in Gemma 2, is plain alone.
   * @defaultValue 'plain'
   */
  profile: choice<OnnxProfile>(
    ['plain', 'fused'],
    {
      name: 'profile',
      value: 'NAME',
      about: "fused: decoders with onnxruntime's attention, for transformers.js 4 (default plain)",
    },
    'plain',
  ),
  /**
   * transformers.js: further targets, whose models go into the same folder: `{ to: 'onnx:q4', also: ['onnx:q8'] }`. Each takes the options that
   * it knows. The first target is the one that transformers.js loads without a `dtype`.
   * @defaultValue none
   */
  also: amended(
    option<readonly OnnxFolderTarget[]>((value, name) => {
      if (!Array.isArray(value)) throw typeError(name, ofType('list of targets'), value);
      const names = folderTargets.map((target) => target.name);
      for (const [i, one] of value.entries()) {
        if (!names.includes(one)) throw rangeError(`${name}[${i}]`, oneOf(names), one);
        if (value.indexOf(one) < i) throw rangeError(`${name}[${i}]`, { kind: 'distinct' }, one);
      }
    }),
    { excludedBy: [{ option: 'targetSize' }, { option: 'targetBitsPerWeight' }] },
  ),
};

/** Options about files beside an ONNX result. */
const sidecarEntries = {
  /**
   * ONNX, `kvCache: 'float16'`: the parsed config.json of the model, if it does not lie beside the file or above its folder `onnx`. `result.config`
   * is a copy with the type of the caches for transformers.js 3.
   */
  config: configOption(transformersSidecar),
};

/** Options of an ONNX result. */
export interface OnnxOptions
  extends StatisticsOptions,
    RangeOptions,
    NonFiniteOptions,
    RequantizeOptions,
    OptionsOf<typeof entries> {}

/** Contents of files beside an ONNX result. */
export interface OnnxSidecars extends OptionsOf<typeof sidecarEntries> {}

export type OnnxChoices = PlanChoices<OnnxOptions & OnnxSidecars, OnnxTarget>;

/** Options that some targets lack. */
const targetOptions = (Object.keys(entries) as (keyof typeof entries)[]).filter((name) =>
  [...targets, ...folderTargets].some(({ options }) => options.includes(name)),
);

export const options = optionTable<OnnxOptions & OnnxSidecars>('ONNX', { ...entries, ...sidecarEntries }, (choices) => {
  const { to, also = [] } = choices;
  const same = also.indexOf(to as string as OnnxFolderTarget);
  if (same >= 0) throw rangeError(`also[${same}]`, { kind: 'distinct' }, to);
  if (also.length > 0 && folderFacts(to) === undefined) throw rangeError('also', without('to', to), also);
  for (const one of choicesByTarget(choices as OnnxChoices)) checkTarget(one);
});

/** Checks the choices for one target. */
function checkTarget(choices: OnnxChoices): void {
  const { to, range, zeroPoints, rules, ranges } = choices;
  const folder = folderFacts(to);
  const target = targets.find(({ name }) => name === (folder === undefined ? to : folder.target));
  const taken = optionsOf(to);
  const other = targetOptions.find((name) => choices[name] !== undefined && taken?.includes(name) === false);
  if (other !== undefined) throw rangeError(other, without('to', to), choices[other]);
  // A folder has the config.json of the model.
  if (folder !== undefined && choices.config !== undefined) throw rangeError('config', without('to', to));
  // Check options against each other.
  checkStatistics(choices);
  if (zeroPoints === 'float' && target?.zeroPoints?.includes('float') !== true) {
    const others = targets.filter((one) => one.zeroPoints?.includes('float')).map(({ name }) => name);
    throw rangeError('zeroPoints', onlyWith('to', ...others), to);
  }
  if (target?.ranges === 'min-max and mse' && range !== undefined && range !== 'min-max' && range !== 'mse') {
    throw rangeError('range', oneOf(['min-max', 'mse']), range, { kind: 'with', options: [mention('to', to)] });
  }
  if (target?.kind === 'static' && ranges === undefined) {
    throw rangeError('ranges', { kind: 'required' }, undefined, { kind: 'with', options: [mention('to', to)] });
  }
  // Check the rules.
  checkRules(rules, ({ to: wanted, granularity }, path) => {
    const isStatic = targets.find(({ name }) => name === wanted)?.kind === 'static';
    if (isStatic && target?.kind !== 'static') throw rangeError(`${path}.to`, onlyWith('to', 'int8-static'), to);
    if (wanted !== undefined && !onnxTargets.includes(wanted as OnnxTarget)) {
      throw rangeError(`${path}.to`, oneOf(onnxTargets), wanted);
    }
    if (granularity !== undefined)
      throw rangeError(`${path}.granularity`, { kind: 'onlyFor', files: 'safetensors' }, granularity);
  });
  // A folder in float32 has no other types.
  const hasRules = rules !== undefined && rules.length > 0;
  if (hasRules && folder !== undefined && target === undefined) throw rangeError('rules', without('to', to));
}

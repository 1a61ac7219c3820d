/** Options of ONNX results. */
import { rangeError, typeError } from '../../core/errors.js';
import { mention, ofType, oneOf, onlyWith, without } from '../../core/option-problem.js';
import type { OptionFile } from '../files/bytes.js';
import { isFileInput, isHandle } from '../files/open.js';
import {
  checkRules,
  choiceOption,
  type NonFiniteOptions,
  nonFinite,
  optionTable,
  type PlanChoices,
  type RangeOptions,
  searchedRange,
  toggle,
} from '../options.js';
import { configOption } from '../safetensors/options.js';
import { hasRanges, type StatisticsOfModel } from '../statistics.js';
import { checkStatistics, type StatisticsOptions, statisticsEntries } from '../statistics-options.js';
import { transformersSidecar } from './config.js';
import { type OnnxTarget, onnxTargets, targets } from './targets.js';

/** Options of an ONNX result. */
export interface OnnxOptions extends StatisticsOptions, RangeOptions, NonFiniteOptions {
  /** ONNX, q8, int8 and uint8: one scale for each weight, as quantize_dynamic does by default. @defaultValue a scale for each channel */
  readonly perTensor?: boolean | undefined;
  /**
   * ONNX, q8, int8 and uint8: bits of signed weights that are multiplied as integers. true: 7, as `reduce_range` of onnxruntime's tools and most
   * encoders on the Hugging Face Hub have; on x86 processors without VNNI, onnxruntime saturates sums of products with 8 bits. false: 8. q8
   * has unsigned weights in products, which do not saturate, unless this is true. Weights of LSTM are always signed.
   * @defaultValue true; for products of q8 false
   */
  readonly reduceRange?: boolean | undefined;
  /** ONNX, blocks: elements that share a scale: 16, 32, 64, 128 or 256. @defaultValue 32; bnb4: 64 */
  readonly blockSize?: number | undefined;
  /**
   * ONNX, blocks: true adds zero points, which take 2% more. 'float': zero points of any value, in products of 2 and 4 bits, which take 20%
   * more.
   * @defaultValue false
   */
  readonly zeroPoints?: boolean | 'float' | undefined;
  /**
   * ONNX, int8-weights and uint8-weights: nodes that restore floats. 'linear': DequantizeLinear, which onnxruntime computes at every run,
   * in the memory of the codes. 'cast': Cast and Mul, which it computes once, when it loads the model. The model then has the speed and
   * memory of float32, and only the file is small.
   * @defaultValue 'linear'
   */
  readonly dequantize?: 'linear' | 'cast' | undefined;
  /**
   * ONNX, int8-static, fp16, q4f16 and q2f16: ranges of activations, which `calibrateModel` collects with `ranges`: the result of it, or the
   * file. Nodes whose activations float16 cannot hold then stay in float32.
   */
  readonly ranges?: OptionFile | StatisticsOfModel | undefined;
  /**
   * ONNX, fp16, q4f16 and q2f16: type of the caches of a language model, which are inputs and outputs. 'float16': half of their memory,
   * and no casts around attention. transformers.js 4 reads the type from the model; 3 needs `kv_cache_dtype` in config.json, which `result.config`
   * has.
   * @defaultValue 'float32'
   */
  readonly kvCache?: 'float32' | 'float16' | undefined;
  /**
   * ONNX: true puts weights into a second file, named after the output with `_data` appended. transformers.js then needs
   * `use_external_data_format` in config.json. The output must be a path.
   * @defaultValue false, unless the model would have 2 GiB or more
   */
  readonly externalData?: boolean | undefined;
}

/** Contents of files beside an ONNX result. */
export interface OnnxSidecars {
  /**
   * ONNX, `kvCache: 'float16'`: the parsed config.json of the model, if it does not lie beside the file or above its folder `onnx`. `result.config`
   * is a copy with the type of the caches for transformers.js 3.
   */
  readonly config?: Readonly<Record<string, unknown>> | undefined;
}

const blockSizes: readonly unknown[] = [16, 32, 64, 128, 256];

export type OnnxChoices = PlanChoices<OnnxOptions & OnnxSidecars, OnnxTarget>;

export const options = optionTable<OnnxOptions & OnnxSidecars>({
  title: 'ONNX',
  entries: {
    range: searchedRange,
    perTensor: toggle({
      name: 'per-tensor',
      about: 'q8, int8, uint8: one scale for each weight, not for each channel',
    }),
    reduceRange: {
      flags: [
        { name: 'reduce-range', about: 'q8: signed weights of 7 bits, as many files on the hub have' },
        { name: 'full-range', about: 'int8, and LSTM of q8 and uint8: signed weights of 8 bits' },
      ],
      check(value, name) {
        if (typeof value !== 'boolean') throw typeError(name, ofType('boolean'), value);
      },
      read: (words) => words['full-range'] !== true,
    },
    blockSize: {
      flags: [{ name: 'block-size', value: 'N', about: 'elements of a block, 16 to 256 (32 by default; bnb4: 64)' }],
      check(value, name) {
        if (!blockSizes.includes(value)) throw rangeError(name, oneOf(blockSizes), value);
      },
      read({ 'block-size': text }) {
        if (blockSizes.map(String).includes(String(text))) return Number(text);
        throw rangeError('--block-size', oneOf(blockSizes), text);
      },
    },
    dequantize: {
      flags: [
        {
          name: 'dequantize',
          value: 'HOW',
          about: 'int8-weights, uint8-weights: at every run (linear), or once (cast)',
        },
      ],
      check(value, name) {
        if (value !== 'linear' && value !== 'cast') throw rangeError(name, oneOf(['linear', 'cast']), value);
      },
      read: (words) => words.dequantize,
    },
    ranges: {
      flags: [
        {
          name: 'ranges',
          value: 'FILE',
          about: 'int8-static, fp16, q4f16, q2f16: the ranges of `calibrate --ranges`',
        },
      ],
      check(value, name) {
        if (isFileInput(value) || isHandle(value) || hasRanges(value)) return;
        throw typeError(name, ofType('file', 'result of calibrateModel with ranges'), value);
      },
      read: (words) => words.ranges,
    },
    kvCache: choiceOption(['float32', 'float16'], {
      name: 'kv-cache',
      value: 'TYPE',
      about: 'fp16, q4f16, q2f16: type of the caches of language models (default float32)',
    }),
    nonFinite,
    externalData: toggle({ name: 'external-data', about: 'weights in a second file, OUTPUT_data' }),
    zeroPoints: {
      flags: [
        { name: 'zero-points', about: 'zero points for blocks of integers' },
        { name: 'float-zero-points', about: 'q4, q4f16, q2, q2f16: zero points of any value' },
      ],
      check(value, name) {
        if (typeof value === 'boolean' || value === 'float') return;
        throw typeError(name, oneOf([true, false, 'float']), value);
      },
      read: (words) => (words['float-zero-points'] === true ? 'float' : true),
    },
    ...statisticsEntries,
    config: configOption(transformersSidecar),
  },
  check(choices) {
    const {
      to,
      range,
      perTensor,
      reduceRange,
      blockSize,
      zeroPoints,
      dequantize,
      rules,
      importance,
      method,
      moments,
      damping,
      ranges,
      kvCache,
    } = choices;
    // Refuse options that the target does not take.
    const target = targets.find(({ name }) => name === to);
    const named = {
      range,
      perTensor,
      reduceRange,
      blockSize,
      zeroPoints,
      dequantize,
      importance,
      method,
      moments,
      damping,
      ranges,
      kvCache,
    };
    for (const [name, value] of Object.entries(named)) {
      if (value !== undefined && target !== undefined && !target.options.includes(name)) {
        throw rangeError(name, without('to', to), value);
      }
    }
    // Check options against each other.
    checkStatistics(choices);
    if (zeroPoints === 'float' && target?.zeroPoints?.includes('float') !== true) {
      const others = targets.filter((one) => one.zeroPoints?.includes('float')).map(({ name }) => name);
      throw rangeError('zeroPoints', onlyWith('to', ...others), to);
    }
    if (target?.ranges === 'min-max and mse' && range !== undefined && range !== 'min-max' && range !== 'mse') {
      throw rangeError('range', oneOf(['min-max', 'mse']), range, { kind: 'with', options: [mention('to', to)] });
    }
    const looksAt = importance !== undefined ? 'importance' : moments !== undefined ? 'moments' : undefined;
    if (looksAt !== undefined && range !== undefined && range !== 'mse') {
      throw rangeError('range', oneOf(['mse']), range, { kind: 'with', options: [mention(looksAt)] });
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
  },
});

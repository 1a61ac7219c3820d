/** What ONNX models can become, and the options that decide about it. */
import { rangeError, typeError } from '../../core/errors.js';
import { mention, oneOf, onlyWith, without } from '../../core/option-problem.js';
import type { SearchedRange } from '../../core/range.js';
import type { Target } from '../format.js';
import { checkRules, didYouMean, optionTable, type PlanChoices, searchedRange, toggle } from '../options.js';

/** What ONNX models can become. */
export const onnxTargets = [
  'q8',
  'int8',
  'uint8',
  'int8-weights',
  'uint8-weights',
  'int4-weights',
  'q4',
  'q4f16',
  'q2',
  'q2f16',
  'q8-blocks',
  'bnb4',
  'fp16',
] as const;

/** A target of an ONNX model. */
export type OnnxTarget = (typeof onnxTargets)[number];

const dynamicOptions = ['range', 'perTensor', 'externalData'];
const blockOptions = ['range', 'blockSize', 'zeroPoints', 'externalData'];

export const targets: readonly Target[] = [
  {
    name: 'q8',
    about: '8 bits, multiplied as integers; int8, or uint8 beside convolutions',
    options: dynamicOptions,
    preset: 'balanced',
  },
  { name: 'int8', about: 'the same, symmetric', options: dynamicOptions },
  { name: 'uint8', about: 'the same with zero points', options: dynamicOptions },
  {
    name: 'int8-weights',
    about: '8 bits, a scale for each channel; floats when it runs',
    options: ['range', 'dequantize', 'externalData'],
  },
  { name: 'uint8-weights', about: 'the same with zero points', options: ['range', 'dequantize', 'externalData'] },
  {
    name: 'int4-weights',
    about: '4 bits in blocks, for every runtime of opset 21',
    options: ['range', 'externalData', 'blockSize', 'zeroPoints'],
  },
  {
    name: 'q4',
    about: '4 bits in blocks, for onnxruntime',
    options: ['range', 'externalData', 'blockSize', 'zeroPoints'],
    preset: 'small',
  },
  { name: 'q4f16', about: 'q4, with everything else in float16', options: blockOptions },
  { name: 'q2', about: '2 bits in blocks, for onnxruntime', options: blockOptions },
  { name: 'q2f16', about: 'q2, with everything else in float16', options: blockOptions },
  { name: 'q8-blocks', about: '8 bits in blocks, for onnxruntime', options: blockOptions },
  { name: 'bnb4', about: '4-bit floats (NF4) in blocks, for onnxruntime', options: ['blockSize', 'externalData'] },
  { name: 'fp16', about: 'weights with half the bytes of float32', options: ['externalData'], preset: 'safe' },
] satisfies readonly (Target & { readonly name: OnnxTarget })[];

/** What decides about an ONNX result. */
export interface OnnxOptions {
  /**
   * safetensors and ONNX, integers: how the range of each channel or group is found, as for arrays. 'mse' counts with scales as they are
   * stored, and is never worse than 'min-max'. Channels of more than 2^20 elements (packed with zero points: 2^17) keep the range of all
   * their values.
   * @defaultValue 'min-max'
   */
  readonly range?: 'min-max' | SearchedRange | undefined;
  /** ONNX, q8, int8 and uint8: one scale for each weight, as quantize_dynamic does by default. @defaultValue a scale for each channel */
  readonly perTensor?: boolean | undefined;
  /** ONNX, blocks: elements that share a scale: 16, 32, 64, 128 or 256. @defaultValue 32; bnb4: 64 */
  readonly blockSize?: number | undefined;
  /**
   * ONNX, blocks: whether they have zero points, which take 2 % more. 'float': zero points of any value, in products of 2 and 4 bits, which
   * take 20 % more.
   * @defaultValue false
   */
  readonly zeroPoints?: boolean | 'float' | undefined;
  /**
   * ONNX, int8-weights and uint8-weights: what makes floats of codes. 'linear': DequantizeLinear, which onnxruntime does again at every run,
   * in the memory of the codes. 'cast': Cast and Mul, which it does once when it loads the model; then the model has the speed and takes the
   * memory of float32, and only the file is small.
   * @defaultValue 'linear'
   */
  readonly dequantize?: 'linear' | 'cast' | undefined;
  /**
   * ONNX: whether weights go into a second file, whose name is that of the output with `_data` at its end. transformers.js wants
   * `use_external_data_format` in config.json for it. The output has to be a path.
   * @defaultValue false, unless the model would have 2 GiB or more
   */
  readonly externalData?: boolean | undefined;
}

const blockSizes: readonly unknown[] = [16, 32, 64, 128, 256];

export type OnnxChoices = PlanChoices<OnnxOptions, OnnxTarget>;

export const options = optionTable<OnnxOptions>({
  title: 'ONNX',
  entries: {
    range: searchedRange,
    perTensor: toggle({
      name: 'per-tensor',
      about: 'q8, int8, uint8: one scale for each weight, not for each channel',
    }),
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
  },
  check({ to, range, perTensor, blockSize, zeroPoints, dequantize, rules }) {
    const target = targets.find(({ name }) => name === to);
    for (const [name, value] of Object.entries({ range, perTensor, blockSize, zeroPoints, dequantize })) {
      if (value !== undefined && target !== undefined && !target.options.includes(name)) {
        throw rangeError(name, without('to', to), value);
      }
    }
    const takesFloats: readonly OnnxTarget[] = ['q4', 'q4f16', 'q2', 'q2f16'];
    if (zeroPoints === 'float' && !takesFloats.includes(to as OnnxTarget)) {
      throw rangeError('zeroPoints', onlyWith('to', ...takesFloats), to);
    }
    const searched: readonly OnnxTarget[] = [...takesFloats, 'q8-blocks'];
    if (searched.includes(to as OnnxTarget) && range !== undefined && range !== 'min-max' && range !== 'mse') {
      throw rangeError('range', oneOf(['min-max', 'mse']), range, { kind: 'with', options: [mention('to', to)] });
    }
    checkRules(rules, ({ to: wanted, granularity }, path) => {
      if (wanted !== undefined && !onnxTargets.includes(wanted as OnnxTarget)) {
        throw rangeError(`${path}.to`, oneOf(onnxTargets), wanted, didYouMean(wanted, onnxTargets));
      }
      if (granularity !== undefined)
        throw rangeError(`${path}.granularity`, { kind: 'onlyFor', files: 'safetensors' }, granularity);
    });
  },
});

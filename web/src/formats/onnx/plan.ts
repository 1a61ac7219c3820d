/** Plans ONNX results from the skeleton: reads the graphs, decides about each weight, and writes the result. */
import { ScalepointError } from '../../core/errors.js';
import { quoted } from '../files/bytes.js';
import type { FilePlan, PartsOf, PlannedTensor, ReadOptionFile } from '../format.js';
import { jsonBeside } from '../safetensors/safetensors.js';
import type { WeightNames } from '../weight-names.js';
import { readStatistics } from '../weight-statistics.js';
import { decide, type Evidence } from './decide/decide.js';
import type { OnnxModel } from './file/model.js';
import { holdsMasks } from './graph/beyond-half.js';
import { isPast } from './graph/caches.js';
import { readConstants } from './graph/constants.js';
import { withFolds } from './graph/outliers.js';
import { readingOf } from './graph/readers.js';
import { hasConfig, isWithoutRange, onnxNotes } from './notes.js';
import type { OnnxChoices } from './options.js';
import { targets } from './targets.js';
import { dataSuffix } from './write/builder.js';
import { writeResult } from './write/write.js';

/** Largest protobuf message in bytes. */
const mostBytes = 2 ** 31 - 1;

/** Operators besides products and look-ups that read parameters. */
const parameterReaders =
  /Normalization$|^(DequantizeLinear|QuantizeLinear|MatMulNBits|MatMulBnb4|GatherBlockQuantized|Q?MoE|PRelu|BiasGelu|FastGelu)$/;

/**
 * Plans the result for a model, with the files that options name and the config.json beside it.
 * @param weightNames finds further names that statistics may have for weights
 */
export async function planWithFiles(
  opened: OnnxModel,
  choices: OnnxChoices,
  partsOf: PartsOf,
  output: string | undefined,
  readOptionFile: ReadOptionFile,
  weightNames?: () => Promise<WeightNames | undefined>,
): Promise<FilePlan> {
  const folds = typeof choices.foldOutliers === 'object' ? choices.foldOutliers : [];
  const model = folds.length === 0 ? opened : withFolds(opened, folds);
  // float16 and the biases of static quantization depend on magnitudes.
  const wanted = [choices.to, ...(choices.rules ?? []).map(({ to }) => to)];
  const asked = targets.filter(({ name }) => wanted.includes(name));
  const isHalf = asked.some(({ half }) => half === true);
  const looks = isHalf || asked.some(({ kind }) => kind === 'static');
  const constants = looks ? await readConstants(model, isHalf) : undefined;
  // transformers.js 3 reads the type of caches from config.json.
  const hasCaches = isHalf && model.proto.graph.inputs.some(isPast);
  const config = choices.config ?? (hasCaches ? await jsonBeside(model, 'config.json') : undefined);
  const read = await readStatistics(choices, readOptionFile);
  const folded = folds.map(({ value, range }) => [value, range] as const);
  const statistics = read.ranges === undefined ? read : { ...read, ranges: new Map([...read.ranges, ...folded]) };
  const names = statistics.importance === undefined ? undefined : await weightNames?.();
  return planOnnx(model, { ...choices, config }, partsOf, { output, statistics, names, constants });
}

/**
 * Plans the result for a model. Weights go into a second file on request, or if the model would be too large.
 * @param given.output the name of the result, from which that of the second file derives
 * @throws ScalepointError `BAD_FILE` for statistics of another model
 */
export function planOnnx(
  model: OnnxModel,
  choices: OnnxChoices,
  partsOf: PartsOf,
  given: Partial<Evidence> & { readonly output?: string | undefined } = {},
): FilePlan {
  const { output = 'model.onnx', statistics = {} } = given;
  const decisions = decide(model, choices, partsOf, given);
  const { graphs, halves, statics, feedback } = decisions;
  if (statics.length > 0 && statics.every(isWithoutRange)) {
    const [first = ''] = statistics.ranges?.keys() ?? [];
    const text = `the ranges are those of another model: they have ${quoted(first)}, and no activations of its products`;
    throw new ScalepointError('BAD_FILE', text);
  }
  const written = (dataFile: string | undefined) => writeResult(model, decisions, partsOf, dataFile);
  const beside = output + dataSuffix;
  let plan = written(choices.externalData ? beside : undefined);
  const isTooLarge = plan.files.some(({ suffix, size }) => suffix === '' && size > mostBytes);
  if (isTooLarge && !choices.externalData) plan = written(beside);
  // Tell weights, which hold finite numbers alone, from masks: tables whose rows are added to the values of a Softmax.
  const isMask = holdsMasks(graphs);
  const parameters = model.weights.filter((weight) => {
    const { readers, channels } = readingOf(graphs, weight);
    const isRead = channels !== undefined || readers.some(({ node }) => parameterReaders.test(node.opType));
    return isRead && !isMask(weight);
  });
  const finite = new Set(parameters.map(({ source, made }) => made?.parts[0]?.tensor ?? source));
  const tensors = plan.tensors.map((tensor): PlannedTensor => {
    const [part] = tensor.source.parts;
    return part !== undefined && finite.has(part.tensor) ? tensor : { ...tensor, infinities: true };
  });
  const notes = onnxNotes({ model, choices, decisions, plan, partsOf });
  const hasHalfCaches = halves?.caches.size && hasConfig(model, choices) !== undefined;
  const value = { kv_cache_dtype: { [choices.to]: 'float16' } };
  const sidecars = hasHalfCaches ? [{ option: 'config', value, base: choices.config }] : [];
  const moments = feedback.size > 0 ? { moments: statistics.moments?.file } : {};
  return { ...plan, ...moments, tensors, notes, sidecars };
}

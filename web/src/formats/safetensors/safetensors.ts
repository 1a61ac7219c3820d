/** safetensors files, and models in several of them. */
import { rangeError, ScalepointError } from '../../core/errors.js';
import { type Hint, mention, oneOf, onlyWith, without } from '../../core/option-problem.js';
import { pauseFor } from '../../core/waiting.js';
import { quoted } from '../files/bytes.js';
import { badTensor } from '../files/errors.js';
import { type ReadStretch, readNeighbors } from '../files/neighbors.js';
import type { FilePlan, Format, LogicalTensor, OpenModel, Reader, SourceTensor } from '../format.js';
import { checkRules, checkStatistics, optionTable, type Rule } from '../options.js';
import { plainTensor } from '../tensors.js';
import { readStatistics } from '../weight-statistics.js';
import { diffusionArchitectures } from './diffusion.js';
import { apartNotes, withoutStacks } from './experts.js';
import { fusedUnit } from './keep.js';
import { type Fields, fieldsInJson, type SafetensorsChoices, type StoredModel } from './layouts/layout.js';
import {
  codedLayoutOf,
  granularityFor,
  layoutOfCodes,
  layouts,
  type SafetensorsTarget,
  safetensorsTargets,
  targetRows,
  targets,
  targetsWith,
} from './layouts/registry.js';
import { checkGranularity, optionEntries, type SafetensorsOptions, type SafetensorsSidecars } from './options.js';
import { planInSteps } from './plan.js';
import { safetensorsReasonText } from './reasons.js';
import { openSafetensors } from './shards.js';
import { safetensorsSignature } from './signature.js';
import { verifySafetensors } from './verify.js';

// ------------------------------------------------------------------------------------------------------------------------ options

/** A target in a result: the main one, or that of a rule. */
interface TargetUse {
  /** Prefix of option paths: empty, or `rules[2].`. */
  readonly path: string;
  readonly to: string;
  readonly row: ReturnType<typeof targetRows.get>;
  readonly rule: Rule | undefined;
}

/** The hint that names the target beside an option. */
const besideTarget = (to: string): Hint => ({ kind: 'with', options: [mention('to', to)] });

/** Refuses several kinds of codes, and options that do not apply to any of the targets. */
function checkKinds(choices: SafetensorsChoices, uses: readonly TargetUse[]): void {
  const { to, scheme, granularity, packed, include, range, search } = choices;
  const isTaken = (option: string) => uses.some(({ row }) => row?.options.includes(option));
  // All codes of a file have one kind, as a configuration requires.
  const coded = uses.filter(({ row }) => row?.kind !== undefined);
  const odd = coded.find(({ row }) => row?.kind !== coded[0]?.row?.kind);
  if (odd !== undefined) throw rangeError(`${odd.path}to`, without('to', coded[0]?.to), odd.to);
  if (search === 'best' && !isTaken('search')) throw rangeError('search', onlyWith('to', ...targetsWith('search')), to);
  // Rules select their weights themselves.
  if (include !== undefined && !targetRows.get(to)?.options.includes('include'))
    throw rangeError('include', onlyWith('to', ...targetsWith('include')), to);
  if (uses.some(({ row }) => row?.kind === 'integers')) return;
  const float8 = uses.find(({ row }) => row?.kind === 'floats')?.to;
  const allowed: string[] = [];
  if (float8 !== undefined) {
    // Allow the values that float8 has anyway.
    const beside = besideTarget(float8);
    if (granularity?.kind === 'per-group')
      throw rangeError('granularity.kind', oneOf(['per-channel']), granularity.kind, beside);
    if (scheme === 'asymmetric') throw rangeError('scheme', oneOf(['symmetric']), scheme, beside);
    if (packed === true) throw rangeError('packed', without('to', float8), packed);
    allowed.push('granularity', 'scheme', 'packed');
  }
  for (const option of ['granularity', 'scheme', 'packed', 'range', 'importance', 'method', 'activations'] as const) {
    if (choices[option] === undefined || allowed.includes(option) || isTaken(option)) continue;
    throw rangeError(option, onlyWith('to', ...targetsWith(option)), to);
  }
  // Scales of all other codes have one search.
  const single = coded.find(({ row }) => row?.kind !== 'floats');
  if (single !== undefined && range !== undefined && range !== 'min-max' && range !== 'mse')
    throw rangeError('range', oneOf(['min-max', 'mse']), range, besideTarget(single.to));
}

/** The options of safetensors and .npy files. */
const options = optionTable<SafetensorsOptions>('safetensors, integers', optionEntries, (choices) => {
  checkRules(choices.rules, ({ to, granularity }, path) => {
    const row = targetRows.get(to);
    if (to !== undefined && row === undefined) throw rangeError(`${path}.to`, oneOf(safetensorsTargets), to);
    if (granularity === undefined) return;
    if (!row?.options.includes('granularity'))
      throw rangeError(`${path}.granularity`, onlyWith(`${path}.to`, ...targetsWith('granularity')), to);
    checkGranularity(granularity, `${path}.granularity`);
  });
  checkStatistics(choices);
  const { to, rules = [], packed, activations, scheme } = choices;
  const uses: TargetUse[] = [{ path: '', to, row: targetRows.get(to), rule: undefined }];
  for (const [i, rule] of rules.entries())
    if (!rule.keep) uses.push({ path: `rules[${i}].`, to: rule.to, row: targetRows.get(rule.to), rule });
  checkKinds(choices, uses);
  // Refuse forms that loaders do not know.
  for (const { path, to, row, rule } of uses) {
    if (row?.kind !== 'integers') continue;
    const kind = granularityFor(choices, to, rule)?.kind ?? 'per-group';
    if (packed === false && row.bits === 4) throw rangeError('packed', without(`${path}to`, to), packed);
    if (packed === false && kind === 'per-group')
      throw rangeError('packed', without(`${path}granularity.kind`, kind), packed);
    if (activations === undefined) continue;
    // Kernels for 8-bit activations take int8 weights with one scale per row.
    if (row.bits !== 8) throw rangeError('activations', onlyWith(`${path}to`, 'int8'), to);
    if (kind !== 'per-channel')
      throw rangeError('activations', onlyWith(`${path}granularity.kind`, 'per-channel'), kind);
    if (scheme === 'asymmetric') throw rangeError('activations', onlyWith('scheme', 'symmetric'), scheme);
    if (packed === true) throw rangeError('activations', without('packed', true), activations);
  }
  for (const { path, to, row, rule } of uses) {
    const asked = granularityFor(choices, to, rule);
    if (row?.knownGroups === undefined || asked === undefined) continue;
    const option = rule?.granularity === undefined ? 'granularity' : `${path}granularity`;
    if (asked.kind !== 'per-group')
      throw rangeError(`${option}.kind`, oneOf(['per-group']), asked.kind, besideTarget(to));
    if (!row.knownGroups.includes(asked.groupSize))
      throw rangeError(`${option}.groupSize`, oneOf(row.knownGroups), asked.groupSize, besideTarget(to));
  }
});

// ------------------------------------------------------------------------------------------------------------- tensors of a model
/**
 * The tensors of an open model: weights that layouts find among the stored tensors, and plain ones. Weights that are quantized already are
 * recognized, because their codes must not be converted as if they were values.
 * Reference: layouts of github.com/vllm-project/compressed-tensors at ac8e2ba8, bitsandbytes-foundation/bitsandbytes at 95f9af30,
 * AutoGPTQ/AutoGPTQ at 9f7d3707, casper-hansen/AutoAWQ at 88e4c76b, and other writers.
 */

/** Most bytes of a tensor that are read while planning. */
const mostBytes = 1 << 20;

/** Objects in JSON files beside models. Several plans of a model read a file once. */
const contents = new WeakMap<OpenModel, Map<string, Promise<Fields | undefined>>>();

/** The object in a JSON file beside a model; undefined without the file, and for other contents. */
export function jsonBeside(model: OpenModel, name: string): Promise<Fields | undefined> {
  const read = async () => {
    const bytes = await model.fileBeside?.(name);
    return bytes && fieldsInJson(bytes);
  };
  const known = contents.get(model) ?? new Map<string, Promise<Fields | undefined>>();
  contents.set(model, known);
  const content = known.get(name) ?? read();
  known.set(name, content);
  return content;
}

/**
 * Gathers the weights of each layout, among the tensors that those before have not taken: first these, then plain tensors, with the names of
 * their stored tensors, and reasons why layouts refused some.
 */
async function gatherWeights(model: OpenModel) {
  const readers = model.files.map(readNeighbors);
  const byName = new Map(model.tensors.map((tensor) => [tensor.name, tensor]));
  let remaining = model.tensors;
  const stored: StoredModel = {
    metadata: model.metadata,
    get tensors() {
      return remaining;
    },
    tensor: (name) => byName.get(name),
    async read({ name, file, byteOffset, bytes: size }, bytes = size) {
      if (bytes > mostBytes) badTensor(name, `${bytes} bytes are too many for its purpose`);
      return (readers[file] as ReadStretch)(byteOffset, byteOffset + Math.min(bytes, size));
    },
    json: (name) => jsonBeside(model, name),
  };
  const tensors: LogicalTensor[] = [];
  const taken = new Set<string>();
  const refused = new Map<string, string>();
  const first = layouts.filter(({ findsFirst }) => findsFirst);
  for (const { find } of new Set([...first, ...layouts])) {
    const found = await find?.(stored);
    for (const { tensor, beside = [] } of found?.weights ?? []) {
      tensors.push(tensor);
      for (const { tensor: part } of tensor.parts) taken.add(part.name);
      for (const name of beside) taken.add(name);
    }
    for (const [name, why] of found?.refused ?? []) refused.set(name, why);
    for (const name of taken) byName.delete(name);
    if (byName.size < remaining.length) remaining = remaining.filter(({ name }) => byName.has(name));
  }
  for (const tensor of remaining) tensors.push(plainTensor(tensor));
  return { tensors, taken, refused };
}

// --------------------------------------------------------------------------------------------------------- quantized already

/** Integer tensors by tool: last part of the name, neighbors of which one must exist, and the tool. */
const integersOfTools: readonly (readonly [last: string, neighbors: readonly string[], by: string])[] = [
  ['W_q', [], 'HQQ'],
  ['codes', ['codebooks'], 'AQLM'],
  ['indices', ['centroids.weight'], 'VPTQ'],
  ['row_offsets', ['dense_weights'], 'SpQR'],
  ['q_weight', ['q_scale', 'q_groups'], 'EXL2'],
  ['trellis', ['suh', 'su'], 'EXL3'],
  ['B', ['s', 's_group'], 'Marlin'],
  ['weight_packed', ['scale_packed'], 'compressed-tensors, Marlin'],
  ['bitmask', ['compressed'], 'compressed-tensors, sparse'],
];

/** The first weight that is quantized already, with the method: by its name, its type and the names of its neighbors. */
function firstQuantized(tensors: readonly SourceTensor[]): readonly [name: string, method: string] | undefined {
  let names: ReadonlySet<string> | undefined;
  const has = (name: string) => {
    names ??= new Set(tensors.map((tensor) => tensor.name));
    return names.has(name);
  };
  for (const { name, dtype, shape } of tensors) {
    // Skip the names of floats, which most tensors are.
    if (dtype === 'F32' || dtype === 'BF16' || dtype === 'F16') continue;
    const dot = name.lastIndexOf('.') + 1;
    const [module, last] = [name.slice(0, dot), name.slice(dot)];
    const among = (...names: readonly string[]) => names.some((other) => has(module + other));
    /** True for a name whose end stands for others beside it. */
    const isPaired = (end: string, other: string) => last.endsWith(end) && has(name.slice(0, -end.length) + other);
    if (last === 'weight' && among('comfy_quant')) return [name, 'ComfyUI'];
    // 64-bit integers are positions and counts.
    if (/^[IU](8|16|32)$/.test(dtype)) {
      if (last === 'qweight' && among('scales', 'qzeros')) return [name, among('g_idx') ? 'GPTQ' : 'AWQ or GPTQ'];
      if (isPaired('_packed', '_scale')) return [name, 'compressed-tensors'];
      if (has(`${name}.absmax`) || has(`${name}.quant_map`) || (last === 'weight' && among('SCB')))
        return [name, 'bitsandbytes'];
      if (isPaired('_blocks', '_scales')) return [name, 'MXFP4'];
      if (last === 'weight' && dtype === 'U32' && among('scales')) return [name, 'MLX'];
      if (last === '_data' && among('_scale')) return [name, 'optimum-quanto'];
      if (isPaired('_qdata', '_scale')) return [name, 'torchao'];
      if (has(`${name}_scale`)) return [name, 'compressed-tensors'];
      const known = integersOfTools.find(
        ([end, neighbors]) => end === last && (neighbors.length === 0 || among(...neighbors)),
      );
      if (known !== undefined) return [name, known[2]];
      // Layers do not compute with plain integer weights.
      const isWeight = last === 'qweight' || (last === 'weight' && shape.length > 1);
      if (isWeight) return [name, 'by a method that is not known here'];
      continue;
    }
    const [, bits] = /^F([468])/.exec(dtype) ?? [];
    if (bits === undefined) continue;
    const hasScales =
      ['_scale', '_scale_inv', '.scale'].some((end) => has(name + end)) ||
      among(`scale_${last}`, `qscale_${last}`) ||
      (last === 'weight' && among('scale'));
    if (hasScales) return [name, `float${bits} with scales`];
  }
  return undefined;
}

/**
 * Tensors of a model as floats, in file order. With `requantize`, these include codes together with their scales.
 * @throws ScalepointError `UNSUPPORTED_DTYPE` for quantized weights without `requantize`, or in an unsupported layout
 */
export async function tensorsAsFloats(model: OpenModel, requantize: boolean): Promise<LogicalTensor[]> {
  const fail = (tensor: string, message: string, hint?: Hint): never => {
    const text = `tensor ${quoted(tensor)}: it is quantized already${message}`;
    throw new ScalepointError('UNSUPPORTED_DTYPE', text, { tensor, hint });
  };
  const found = firstQuantized(model.tensors);
  if (found === undefined) return adaptedTensors(model, model.tensors.map(plainTensor));
  const { tensors, taken, refused } = await gatherWeights(model);
  const rest = firstQuantized(model.tensors.filter((tensor) => !taken.has(tensor.name)));
  if (rest !== undefined || taken.size === 0) {
    const [name, method] = rest ?? found;
    const why = refused.get(name) ?? 'in a layout that cannot be decoded here; start from the model in floats';
    fail(name, ` (${method}), ${why}`);
  }
  if (!requantize) {
    const effect = 'starts from the values of the codes, which adds to their errors';
    fail(found[0], ` (${found[1]})`, { kind: 'try', option: mention('requantize', true), effect });
  }
  const long = tensors.find((tensor) => codedLayoutOf(tensor.form)?.canBeCut?.(tensor) === false);
  if (long !== undefined) fail(long.name, ', and its rows or groups are too long to be decoded in tiles');
  const places = new Map(model.tensors.map((tensor, i) => [tensor.name, i]));
  const placeOf = ({ parts: [first] }: LogicalTensor) => places.get(first?.tensor.name ?? '') ?? 0;
  return adaptedTensors(
    model,
    [...tensors].sort((a, b) => placeOf(a) - placeOf(b)),
  );
}

/** The tensors of a model with its adapters. @throws ScalepointError `BAD_FILE`, `UNSUPPORTED_DTYPE` */
function adaptedTensors(model: OpenModel, tensors: LogicalTensor[]): LogicalTensor[] {
  return model.adapters?.merge(tensors, (form) => codedLayoutOf(form)?.floats(form)) ?? tensors;
}

// --------------------------------------------------------------------------------------------------------------------- the format
type SafetensorsFormat = Format<
  'safetensors',
  SafetensorsTarget,
  'safetensors',
  SafetensorsOptions,
  SafetensorsSidecars
>;

/** Plans a result of an open model. */
export const planStored: NonNullable<SafetensorsFormat['plan']> = async (model, choices, context) => {
  const { to, requantize = false } = choices;
  const whole =
    to === 'copy' ? adaptedTensors(model, model.tensors.map(plainTensor)) : await tensorsAsFloats(model, requantize);
  const metadata = model.metadata as Readonly<Record<string, string>>;
  return planTensors(whole, metadata, choices, context, (name) => jsonBeside(model, name));
};

/** Plans a result of tensors. @param json the object in a JSON file beside them */
export async function planTensors(
  whole: readonly LogicalTensor[],
  metadata: Readonly<Record<string, string>>,
  choices: SafetensorsChoices,
  context: Parameters<NonNullable<SafetensorsFormat['plan']>>[2],
  json: (name: string) => Promise<Fields | undefined>,
): Promise<FilePlan> {
  const { partsOf, output, readOptionFile } = context;
  const statistics = await readStatistics(choices, readOptionFile);
  const names = statistics.importance === undefined ? undefined : await context.weightNames();
  const layout = layoutOfCodes(choices);
  const tensors = layout?.splitsExperts ? withoutStacks(whole) : whole;
  const beside = new Map<string, Fields>();
  for (const file of layout?.reads ?? []) {
    const content = await json(file);
    if (content !== undefined) beside.set(file, content);
  }
  const steps = planInSteps(tensors, choices, {
    metadata,
    partsOf,
    isModel: true,
    output,
    inputs: { statistics, names },
    beside,
    known: layout?.needsKnownModels ? await context.knownModels() : {},
    planLayout: await layout?.load?.(),
  });
  let step = steps.next();
  for (; !step.done; step = steps.next()) await pauseFor(tensors);
  const plan = step.value;
  // Layouts for known models have names of their own for all tensors.
  const notes = layout?.forKnownModels ? [] : apartNotes(whole, tensors);
  return { ...plan, notes: [...notes, ...plan.notes] };
}

/** Programs that read a result. Codes need a reader of their layout, and those that load a folder need a language model. */
export function safetensorsReaders(to: string, file: string, architecture?: string): readonly Reader[] {
  const everywhere: Reader = {
    program: 'Python',
    code: `from safetensors.torch import load_file\ntensors = load_file("${file}")`,
    needs: 'Everything that reads safetensors reads this file.',
  };
  const code = `import { readFloats } from 'scalepoint/model';\nconst { data, shape } = await readFloats('${file}', 'NAME.weight');`;
  const own = targetRows.get(to)?.layout?.readers?.(file);
  const isLanguage = architecture !== '' && !diffusionArchitectures.some(({ name }) => name === architecture);
  const known = own?.filter((reader) => isLanguage || !reader.code.includes('FOLDER')) ?? [everywhere];
  return [...known, { program: 'Scalepoint', code }];
}

export const safetensors: SafetensorsFormat = {
  ...safetensorsSignature,
  result: 'safetensors',
  about:
    'safetensors get the layout of compressed-tensors, with codes for the weights of linear layers; embeddings, lm_head and all other ' +
    'tensors are kept, unless --all or a rule converts them.',
  examples: [
    'model.safetensors --to int8 --config config.json',
    'model.safetensors --to int4 --group-size 32 -o small',
    "model.safetensors --to int8 --rule '^decoder=keep'",
  ],
  targets,
  aliases: {},
  ruleTargets: safetensorsTargets,
  mixtures: {
    to: 'int4',
    types(to) {
      const { mixedWith } = targetRows.get(to) ?? {};
      return mixedWith && [to, ...mixedWith];
    },
    unit: (to, name) => (targetRows.get(to)?.layout?.joinsLayers ? fusedUnit(name) : undefined),
    stored: (bytes) => bytes,
  },
  options,
  unit: 'element',
  takesAdapters: true,
  readers: safetensorsReaders,

  open: openSafetensors,
  tensors: async (model) => (await gatherWeights(model)).tensors,
  apart: withoutStacks,
  verify: verifySafetensors,
  reasonText: safetensorsReasonText,
  plan: planStored,
};

/**
 * Plans results in the layouts of GPTQ and AWQ: which layers get codes, and the `quantization_config` that loaders read.
 * Reference: github.com/ModelCloud/GPTQModel at f4c327a1, gptqmodel/quantization/config.py; casper-hansen/AutoAWQ at 88e4c76b and 024d960c,
 * awq/models/_config.py; AutoGPTQ/AutoGPTQ at c69ed3e2, auto_gptq/quantization/config.py.
 */

import { type Note, noteOf } from '../../../core/note.js';
import type { Form } from '../../codecs/codec.js';
import type { GptqForm, gptqRowUnit } from '../../codecs/gptq.js';
import type { PlannedTensor } from '../../format.js';
import { type Reason, rankReason } from '../../reason.js';
import type { keeperByName, linearOnly } from '../keep.js';
import type { gptqCodesOf } from '../targets.js';
import type { Fields, LayoutPlan, LayoutStart, PlanLayout } from './layout.js';

/** Functions that are passed in, because bundlers would make further files if this module, which is loaded on demand, imported them. */
export interface GptqTools {
  readonly codesOf: typeof gptqCodesOf;
  readonly keeperOf: typeof keeperByName;
  readonly linear: typeof linearOnly;
  readonly rowUnit: typeof gptqRowUnit;
  /** True for a matrix that statistics can weigh. */
  weighs(shape: readonly number[], form: GptqForm): boolean;
}

/** Sizes of groups by default: the first that divides all rows. */
const usualGroups = [128, 64, 32];
const smallestGroup = 32;

/** Plans results. */
export function gptqPlanner(tools: GptqTools): PlanLayout {
  return (start) => planGptq(start, tools);
}

const moduleOf = (name: string) => name.slice(0, -'.weight'.length);

/** An expression that matches a module's name alone. */
const exactly = (module: string) => `^${module.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`;

/**
 * Layers with codes that loaders of AWQ skip, each with the layer of floats that makes them do so. Names in `modules_to_not_convert` are
 * looked for anywhere in the names of layers by vLLM (is_layer_skipped with skip_with_substr, since release 0.11; is_layer_skipped_awq
 * before), by SGLang, by AutoAWQ, and by transformers 4 (replace_with_awq_linear); at the begin and the end by transformers 5
 * (should_convert_module). No name in the list selects `mlp.gate` without `mlp.gate_proj`, so the longer one has to keep its floats, too.
 */
function skippedLayers(coded: readonly string[], plain: readonly string[]): Map<string, string> {
  const skipped = new Map<string, string>();
  const entries = new Set(plain);
  const lengths = new Set(plain.map(({ length }) => length));
  const entryIn = (module: string): string | undefined => {
    for (const length of lengths) {
      for (let at = 0; at + length <= module.length; at++) {
        const part = module.slice(at, at + length);
        if (entries.has(part)) return part;
      }
    }
    return undefined;
  };
  // A layer that keeps its floats is in the list itself. Names that contain it contain the first entry, too.
  for (const module of coded) {
    const entry = entryIn(module);
    if (entry !== undefined) skipped.set(module, entry);
  }
  return skipped;
}

/** The note about layers that stay floats because of others. */
function skippedNote(planned: readonly PlannedTensor[]): readonly Note[] {
  const pairs = planned.flatMap(({ source: { name }, kept }) =>
    kept?.kind === 'skippedWith' ? [{ name, module: kept.module }] : [],
  );
  const [first] = pairs;
  if (first === undefined) return [];
  const stay = pairs.length === 1 ? '1 weight keeps its floats' : `${pairs.length} weights keep their floats`;
  const text =
    `${stay}: loaders of AWQ skip each layer whose name contains that of a layer of floats, and ${moduleOf(first.name)} contains ` +
    `${first.module}; such layers become codes together or not at all`;
  return [noteOf('skippedByLoaders', { tensors: pairs.map(({ name }) => name) }, text)];
}

/**
 * The content of quantize_config.json. AutoGPTQ wants it in local folders, even where config.json says the same, and GPTQModel reads it first.
 * Early releases of AutoGPTQ fail at keys that they do not know, so only those that all have are written; the method and the checkpoint
 * format are the defaults of later ones. `dynamic` is needed by GPTQModel, and no AutoGPTQ loads layers of several kinds.
 */
function gptqSettings({ bits, group_size, desc_act, sym, damp_percent, true_sequential, dynamic }: Fields): Fields {
  const all = { bits, group_size, damp_percent, desc_act, sym, true_sequential, dynamic };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}

/**
 * The content of quant_config.json, in the words of early releases of AutoAWQ. Names the method, because GPTQModel reads this file before
 * config.json and takes GPTQ without it.
 */
function awqSettings({ bits, group_size, zero_point, modules_to_not_convert: kept }: Fields): Fields {
  const shared = { quant_method: 'awq', zero_point, q_group_size: group_size, w_bit: bits, version: 'GEMM' };
  return kept === null ? shared : { ...shared, modules_to_not_convert: kept };
}

function planGptq({ tensors, choices, beside, isModel }: LayoutStart, tools: GptqTools): LayoutPlan {
  const { codesOf, keeperOf, linear, rowUnit, weighs } = tools;
  const forms = new Map<string, GptqForm>();
  const codesFor = (to: string) => codesOf(to) ?? { words: 'gptq' as const, bits: 4 as const };
  const main = codesFor(choices.to);
  const range = choices.range === 'mse' ? choices.range : undefined;
  const keptByName = keeperOf(tensors);
  const notLinear = isModel ? linear(tensors) : undefined;

  /** Layers with codes, and layers without any. */
  function layersOf(planned: readonly PlannedTensor[]) {
    const coded: { readonly module: string; readonly form: GptqForm }[] = [];
    const plain: string[] = [];
    for (const { source, form } of planned) {
      const { name, shape } = source;
      if (form.codec === 'gptq') coded.push({ module: moduleOf(name), form: form as GptqForm });
      else if (
        notLinear?.(name, shape) === undefined &&
        !['embedding', 'lmHead', 'norm'].includes(keptByName(name)?.kind ?? '')
      )
        plain.push(moduleOf(name));
    }
    return { coded, plain };
  }

  /** The entry of config.json; undefined if nothing has codes. */
  function quantizationOf(planned: readonly PlannedTensor[]): Fields | undefined {
    const { coded, plain } = layersOf(planned);
    const first = coded.find(({ form }) => form.bits === main.bits) ?? coded[0];
    if (first === undefined) return undefined;
    const { groupSize, bits } = first.form;
    if (main.words === 'awq') {
      const kept = plain.length === 0 ? null : plain;
      const shared = { bits, group_size: groupSize, zero_point: true, version: 'gemm' };
      return { quant_method: 'awq', ...shared, modules_to_not_convert: kept };
    }
    const dynamic: Record<string, Fields> = {};
    for (const { module, form } of coded) {
      if (form.bits === bits && form.groupSize === groupSize) continue;
      dynamic[`+:${exactly(module)}`] = { bits: form.bits, group_size: form.groupSize };
    }
    for (const module of plain) dynamic[`-:${exactly(module)}`] = {};
    const isOrdered = choices.method === 'gptq';
    return {
      quant_method: 'gptq',
      bits,
      group_size: groupSize,
      sym: true,
      desc_act: false,
      checkpoint_format: 'gptq',
      pack_dtype: 'int32',
      lm_head: false,
      ...(isOrdered ? { damp_percent: choices.damping ?? 0.01, true_sequential: false } : {}),
      ...(Object.keys(dynamic).length === 0 ? {} : { dynamic }),
      meta: { quantizer: ['scalepoint'] },
    };
  }

  return {
    ...(notLinear === undefined ? {} : { notLinear }),
    obstacle({ source: { shape }, to }): Reason | undefined {
      if (shape.length !== 2) return rankReason(shape.length);
      const { words, bits } = codesFor(to);
      const [rows = 0, columns = 0] = shape;
      // Words hold codes of neighbors: of rows in AWQ; of columns in GPTQ, and its zero points those of rows.
      const unit = words === 'awq' ? rowUnit({ words, bits }) : 32;
      if (rows % unit !== 0) return { kind: 'notDivisible', dimension: rows, by: unit };
      // The smallest group has to divide rows in both, or no default size would fit the model.
      return columns % smallestGroup === 0
        ? undefined
        : { kind: 'notDivisible', dimension: columns, by: smallestGroup };
    },
    takenForFloats(planned) {
      if (main.words !== 'awq') return new Map();
      const { coded, plain } = layersOf(planned);
      const skipped = skippedLayers(
        coded.map(({ module }) => module),
        plain,
      );
      return new Map([...skipped].map(([name, module]) => [`${name}.weight`, { kind: 'skippedWith', module }]));
    },
    groupSizes: () => usualGroups,
    formOf({ source: { shape }, to }, groupSize = 128) {
      const { words, bits } = codesFor(to);
      const groups = Math.ceil((shape.at(-1) as number) / groupSize);
      const key = `${words} ${bits} ${groupSize} ${groups}`;
      const isGptq = words === 'gptq';
      const form: GptqForm = forms.get(key) ?? {
        codec: 'gptq',
        bits,
        words,
        groups,
        groupSize,
        lessOne: isGptq,
        grouped: isGptq,
        symmetric: isGptq,
        scale: 'F16',
        ...(range && { range }),
      };
      forms.set(key, form);
      return form;
    },
    weighing: {
      takes: (shape, form: Form) => weighs(shape, form as GptqForm),
      add: (form: Form, importance): GptqForm => ({ ...(form as GptqForm), range: 'mse', importance }),
    },
    sidecars(planned) {
      const value = quantizationOf(planned);
      if (value === undefined) return [];
      const settings =
        main.words === 'awq'
          ? { option: 'quantConfig', value: awqSettings(value) }
          : { option: 'quantizeConfig', value: gptqSettings(value) };
      return [{ option: 'config', value, base: beside.get('config.json') }, settings];
    },
    notes: skippedNote,
  };
}

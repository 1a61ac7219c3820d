/**
 * The layouts of GPTQ and AWQ, which loaders of every age read: `X.weight` [N, K] as `X.qweight`, `X.qzeros`, `X.scales` and, for GPTQ,
 * `X.g_idx`. Matrices are transposed.
 * Reference: github.com/AutoGPTQ/AutoGPTQ at 9f7d3707 and c69ed3e2, auto_gptq/quantization/config.py; ModelCloud/GPTQModel at f4c327a1,
 * gptqmodel/quantization/config.py; casper-hansen/AutoAWQ at 88e4c76b and 024d960c, awq/models/_config.py; intel/auto-round at 00122bc6,
 * auto_round/export/export_to_autoround/export.py.
 */

import { noteOf } from '../../../core/note.js';
import { show } from '../../../core/show.js';
import type { CastType } from '../../codecs/cast.js';
import { tileElements } from '../../codecs/codec.js';
import { type GptqForm, type GptqWidth, gptqRowUnit } from '../../codecs/gptq.js';
import { mlxGroupSizes } from '../../codecs/mlx.js';
import type { PlannedTensor, SourceTensor } from '../../format.js';
import { rankReason } from '../../reason.js';
import { statisticsNames } from '../../statistics.js';
import { keeperByName, linearOnly } from '../keep.js';
import {
  type CodedLayout,
  type CodedTarget,
  type Fields,
  type FoundWeight,
  floatOptions,
  formSharing,
  isFields,
  moduleOfWeight,
  partsByRole,
  type StoredModel,
} from './layout.js';

// ------------------------------------------------------------------------------------------------------------------------ reading

/** The facts of a configuration that shapes leave open. */
interface Settings {
  /** Statement on zero points: true if one less is stored. Those of symmetric codes show it themselves. */
  readonly lessOne: boolean;
  readonly groupSize: number | undefined;
  /** Name of a checkpoint format with other words; undefined for those that are read. */
  readonly otherFormat: string | undefined;
}

/** Formats of whole checkpoints that store words as the first version does. */
const knownFormats: readonly unknown[] = [undefined, null, '', 'gptq', 'gptq_v2', 'gemm', 'awq'];

async function gptqSettings(model: StoredModel): Promise<Settings> {
  const config = (await model.json('config.json')) ?? {};
  const nested = isFields(config.text_config) ? config.text_config.quantization_config : undefined;
  const inConfig = [config.quantization_config, nested].find(isFields);
  const all: Fields = inConfig ?? (await model.json('quantize_config.json')) ?? {};
  const format = all.checkpoint_format ?? all.format;
  const size = all.group_size ?? all.q_group_size;
  // AutoRound stores zero points as they are, unless it packs as AutoGPTQ does.
  const packing = all.packing_format ?? all.backend;
  const isAutoRound =
    ['auto-round', 'intel/auto-round'].includes(all.quant_method as string) && typeof packing === 'string';
  const formatText = typeof format === 'string' ? format.slice(0, 40) : show(format);
  return {
    lessOne: isAutoRound ? /gptq(?!_?v2)/.test(packing) : format !== 'gptq_v2',
    groupSize: typeof size === 'number' && Number.isSafeInteger(size) && size > 0 ? size : undefined,
    otherFormat: knownFormats.includes(format) ? undefined : formatText,
  };
}

/** Bytes of zero points that are looked at: thousands of them, in whole words of all widths. */
const zeroBytes = 3 << 12;

/**
 * True if zero points are stored less one, false if they are as they are; undefined if they do not show it. Those of symmetric codes are all
 * 2^(bits - 1). Files are labeled wrongly: AutoRound and others wrote 8 where the first version has 7.
 */
async function areLessOne(model: StoredModel, zeroPoint: SourceTensor, bits: number): Promise<boolean | undefined> {
  const bytes = await model.read(zeroPoint, Math.min(zeroPoint.bytes, zeroBytes));
  for (const lessOne of [true, false]) {
    const zero = 2 ** (bits - 1) - (lessOne ? 1 : 0);
    // Eight codes fill whole bytes, those of 3 bits as well.
    const codes = Array.from({ length: 8 }, () => zero.toString(2).padStart(bits, '0')).join('');
    const unit = Array.from({ length: bits }, (_, i) => Number.parseInt(codes.slice(8 * i, 8 * i + 8), 2)).reverse();
    if (bytes.every((byte, i) => byte === unit[i % bits])) return lessOne;
  }
  return undefined;
}

/** Codes, with the tensors that belong to them by name. */
interface Parts {
  readonly data: SourceTensor;
  readonly zeroPoint: SourceTensor;
  readonly scale: SourceTensor;
  readonly group: SourceTensor | undefined;
}

/** The form and the shape of a weight, or a reason why its parts do not fit together. */
function gptqForm(
  { data, zeroPoint, scale, group }: Parts,
  { groupSize: given }: Settings,
): { readonly shape: readonly number[]; readonly form: GptqForm } | string {
  const all = [data, zeroPoint, scale];
  if (data.dtype !== 'I32' || zeroPoint.dtype !== 'I32' || !['F16', 'BF16', 'F32'].includes(scale.dtype)) {
    return `with parts of types ${all.map(({ dtype }) => dtype).join(', ')} in place of I32, I32 and F16`;
  }
  if (!all.every(({ shape }) => shape.length === 2 && shape.every((dimension) => dimension > 0)))
    return 'with parts that are not matrices';
  const [rows = 0, width = 0] = data.shape;
  const [groups = 0, n = 0] = scale.shape;
  const [zeroRows, zeroWidth = 0] = zeroPoint.shape;
  const words = width === n ? 'gptq' : 'awq';
  const bits = ((zeroWidth * 32) / n) as GptqWidth;
  if (words === 'awq' && (width * 8 !== n || bits !== 4))
    return 'with words that are neither those of GPTQ nor those of AWQ (gemm)';
  const k = words === 'awq' ? rows : (rows * 32) / bits;
  const hasWholeWords = Number.isInteger(k) && (words === 'awq' || k % 32 === 0);
  if (![2, 3, 4, 8].includes(bits) || zeroRows !== groups || !hasWholeWords)
    return `with parts whose shapes do not match: ${all.map(({ shape }) => `[${shape.join(', ')}]`).join(', ')}`;
  if (n % gptqRowUnit({ words, bits }) !== 0) return `with ${n} outputs, which do not fill whole words`;
  if (group !== undefined && (words === 'awq' || group.dtype !== 'I32' || group.shape.join() !== String(k)))
    return `with a g_idx ${group.dtype} [${group.shape.join(', ')}] for ${k} columns`;
  // The last group of a row may be shorter, but not in words of AWQ.
  const isGiven = given !== undefined && Math.ceil(k / given) === groups;
  const even = k % groups === 0 ? k / groups : undefined;
  const groupSize = words === 'gptq' && isGiven ? given : even;
  if (group === undefined && groupSize === undefined)
    return `with ${groups} groups in rows of ${k}, whose size no configuration says`;
  const form: GptqForm = {
    codec: 'gptq',
    bits,
    words,
    groups,
    groupSize: groupSize ?? k,
    lessOne: false,
    grouped: group !== undefined,
    symmetric: false,
    scale: scale.dtype as CastType,
  };
  return { shape: [n, k], form };
}

// ------------------------------------------------------------------------------------------------------------------------ writing

/** Sizes of groups by default: the first that divides all rows. */
const usualGroups = [128, 64, 32] as const;
const smallestGroup = 32;

/** Codes of a target. */
type GptqCodes = Pick<GptqForm, 'words' | 'bits'>;

const gptqTarget = (words: 'gptq' | 'awq', bits: GptqWidth, text: string) =>
  ({
    about: `${bits} bits in groups, in the layout of ${text}`,
    kind: 'gptq',
    codes: { words, bits } satisfies GptqCodes,
    groupSizes: usualGroups,
    knownGroups: mlxGroupSizes,
    options: ['granularity', 'range', ...statisticsNames, 'config', ...floatOptions],
    completes: ['config'],
  }) as const satisfies CodedTarget;

const targets = {
  gptq: gptqTarget('gptq', 4, 'GPTQ'),
  'gptq-8bit': gptqTarget('gptq', 8, 'GPTQ'),
  'gptq-3bit': gptqTarget('gptq', 3, 'GPTQ'),
  'gptq-2bit': gptqTarget('gptq', 2, 'GPTQ'),
  awq: gptqTarget('awq', 4, 'AWQ, with zero points'),
};

/**
 * Layers with codes that loaders of AWQ skip, each with the layer of floats that makes them do so. Names in `modules_to_not_convert` are
 * looked for anywhere in the names of layers by vLLM (is_layer_skipped with skip_with_substr, since release 0.11; is_layer_skipped_awq
 * before), by SGLang, by AutoAWQ, and by transformers 4 (replace_with_awq_linear); at the begin and the end by transformers 5
 * (should_convert_module). No name in the list selects `mlp.gate` without `mlp.gate_proj`, so the longer one has to keep its floats, too.
 */
function skippedLayers(coded: readonly { readonly module: string }[], plain: readonly string[]) {
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
  return new Map(
    coded.flatMap(({ module }) => {
      const entry = entryIn(module);
      return entry === undefined ? [] : [[`${module}.weight`, { kind: 'skippedWith', module: entry }] as const];
    }),
  );
}

const folder =
  'FOLDER holds the result as model.safetensors, or its files, with config.json and the files of the tokenizer.';

export const gptqLayout = {
  label: 'GPTQ or AWQ',
  codecs: ['gptq'],
  quantMethods: ['gptq', 'awq', 'auto-round', 'intel/auto-round'],
  floats: (form) => (form as GptqForm).scale,
  /** Rows that share words have to fit into a tile. */
  canBeCut: ({ shape: [, k = 1], form }) => k * gptqRowUnit(form as GptqForm) <= tileElements,
  targets,
  reads: ['config.json'],
  splitsExperts: true,
  readers: () => [
    { program: 'vLLM', code: 'vllm serve ./FOLDER', needs: folder },
    {
      program: 'transformers',
      code: 'from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained("FOLDER")',
      needs: 'It needs the package gptqmodel.',
    },
  ],

  async find(model) {
    const weights: FoundWeight[] = [];
    const refused = new Map<string, string>();
    const share = formSharing<GptqForm>();
    const lessOne = new Map<GptqWidth, boolean>();
    let settings: Settings | undefined;
    for (const data of model.tensors) {
      if (!data.name.endsWith('.qweight')) continue;
      const module = data.name.slice(0, -'.qweight'.length);
      const [zeroPoint, scale] = [model.tensor(`${module}.qzeros`), model.tensor(`${module}.scales`)];
      if (zeroPoint === undefined || scale === undefined) continue;
      settings ??= await gptqSettings(model);
      const group = model.tensor(`${module}.g_idx`);
      const name = `${module}.weight`;
      const found =
        settings.otherFormat === undefined
          ? gptqForm({ data, zeroPoint, scale, group }, settings)
          : `with the words of the checkpoint format ${settings.otherFormat}, which are not read here`;
      if (typeof found === 'string' || model.tensor(name) !== undefined) {
        refused.set(data.name, typeof found === 'string' ? found : `and there is a tensor ${name} as well`);
        continue;
      }
      const { bits, words } = found.form;
      if (words === 'gptq' && !lessOne.has(bits)) {
        // One weight of each width speaks for all, so that planning reads little.
        lessOne.set(bits, (await areLessOne(model, zeroPoint, bits)) ?? settings.lessOne);
      }
      const form = share({ ...found.form, lessOne: words === 'gptq' && lessOne.get(bits) === true });
      const parts = partsByRole({ data, zeroPoint, scale, group });
      weights.push({ tensor: { name, shape: found.shape, type: `I${bits}`, form, parts } });
    }
    return { weights, refused };
  },

  plan({ tensors, choices, codes: mainCodes = targets.gptq.codes, beside, isModel }) {
    const main = mainCodes as GptqCodes;
    const range = choices.range === 'mse' ? choices.range : undefined;
    const keptByName = keeperByName(tensors);
    const notLinear = isModel ? linearOnly(tensors) : undefined;
    const share = formSharing<GptqForm>();

    /** Modules with codes, and linear layers without any. */
    function layersIn(planned: readonly PlannedTensor[]) {
      const coded: { readonly module: string; readonly form: GptqForm }[] = [];
      const plain: string[] = [];
      for (const { source, form } of planned) {
        const { name, shape } = source;
        if (form.codec === 'gptq') coded.push({ module: moduleOfWeight(name), form: form as GptqForm });
        else if (
          notLinear?.(name, shape) === undefined &&
          !/^(embedding|lmHead|norm)$/.test(keptByName(name)?.kind ?? '')
        )
          plain.push(moduleOfWeight(name));
      }
      return { coded, plain };
    }

    return {
      ...(notLinear === undefined ? {} : { notLinear }),
      obstacle({ source: { shape }, codes }) {
        const [rows = 0, columns = 0] = shape;
        if (shape.length !== 2) return rankReason(shape.length);
        // Words hold codes of neighbors: of rows in AWQ; of columns in GPTQ, and its zero points those of rows.
        const { words, bits } = codes as GptqCodes;
        const unit = words === 'awq' ? gptqRowUnit({ words, bits }) : 32;
        if (rows % unit !== 0) return { kind: 'notDivisible', dimension: rows, by: unit };
        // The smallest group has to divide rows in both, or no default size would fit the model.
        if (columns % smallestGroup === 0) return undefined;
        return { kind: 'notDivisible', dimension: columns, by: smallestGroup };
      },
      takenForFloats(planned) {
        if (main.words !== 'awq') return new Map();
        const { coded, plain } = layersIn(planned);
        return skippedLayers(coded, plain);
      },
      formOf({ source: { shape }, codes }, groupSize = usualGroups[0]) {
        const groups = Math.ceil((shape.at(-1) ?? 1) / groupSize);
        const { words, bits } = codes as GptqCodes;
        const isGptq = words === 'gptq';
        return share({
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
        });
      },
      weighing: {
        takes: ([, columns = 0], form) => columns * gptqRowUnit(form as GptqForm) <= tileElements,
        add: (form, importance): GptqForm => ({ ...(form as GptqForm), range: 'mse', importance }),
      },
      sidecars(planned) {
        const { coded, plain } = layersIn(planned);
        const first = coded.find(({ form }) => form.bits === main.bits) ?? coded[0];
        if (first === undefined) return [];
        const { groupSize, bits } = first.form;
        const base = beside.get('config.json');
        if (main.words === 'awq') {
          // quant_config.json has the words of early releases of AutoAWQ. It names the method, because GPTQModel reads this file before
          // config.json and takes GPTQ without it.
          const kept = plain.length === 0 ? null : plain;
          const facts = {
            bits,
            group_size: groupSize,
            zero_point: true,
            version: 'gemm',
            modules_to_not_convert: kept,
          };
          const old = { quant_method: 'awq', zero_point: true, q_group_size: groupSize, w_bit: bits, version: 'GEMM' };
          return [
            { option: 'config', value: { quant_method: 'awq', ...facts }, base },
            { option: 'quantConfig', value: { ...old, ...(kept && { modules_to_not_convert: kept }) } },
          ];
        }
        // `dynamic` is needed by GPTQModel. Its expressions match the names of modules alone.
        const pattern = (module: string) => `^${module.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`;
        const others = coded.filter(({ form }) => form.bits !== bits || form.groupSize !== groupSize);
        const dynamic = Object.fromEntries([
          ...others.map(({ module, form }) => [
            `+:${pattern(module)}`,
            { bits: form.bits, group_size: form.groupSize },
          ]),
          ...plain.map((module) => [`-:${pattern(module)}`, {}]),
        ]);
        const damping = choices.method === 'gptq' && { damp_percent: choices.damping ?? 0.01 };
        const order = damping && { true_sequential: false };
        const kinds = Object.keys(dynamic).length > 0 && { dynamic };
        const shared = { bits, group_size: groupSize };
        const entry = {
          quant_method: 'gptq',
          ...shared,
          sym: true,
          desc_act: false,
          checkpoint_format: 'gptq',
          pack_dtype: 'int32',
          lm_head: false,
          ...damping,
          ...order,
          ...kinds,
          meta: { quantizer: ['scalepoint'] },
        };
        // AutoGPTQ wants quantize_config.json in local folders, even where config.json says the same, and GPTQModel reads it first. Early
        // releases of AutoGPTQ fail at keys that they do not know, so only those that all have are written; the method and the checkpoint
        // format are the defaults of later ones. No AutoGPTQ loads layers of several kinds.
        const old = { ...shared, ...damping, desc_act: false, sym: true, ...order, ...kinds };
        return [
          { option: 'config', value: entry, base },
          { option: 'quantizeConfig', value: old },
        ];
      },
      /** The layers that stay floats because of others. */
      notes(planned) {
        const skipped = planned.filter(({ kept }) => kept?.kind === 'skippedWith');
        const [first] = skipped;
        if (first === undefined) return [];
        const stay = skipped.length === 1 ? '1 weight keeps its floats' : `${skipped.length} weights keep their floats`;
        const text =
          `${stay}: loaders of AWQ skip each layer whose name contains that of a layer of floats, and ${moduleOfWeight(first.source.name)} contains ` +
          `${first.kept?.module}; such layers become codes together or not at all`;
        return [noteOf('skippedByLoaders', { tensors: skipped.map(({ source }) => source.name) }, text)];
      },
    };
  },
} satisfies CodedLayout;

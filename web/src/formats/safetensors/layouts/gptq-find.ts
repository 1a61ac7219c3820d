/**
 * Finds weights in the layouts of GPTQ and AWQ: `X.weight` [N, K] as `X.qweight`, `X.qzeros`, `X.scales` and, for GPTQ, `X.g_idx`.
 * Reference: github.com/AutoGPTQ/AutoGPTQ at 9f7d3707, ModelCloud/GPTQModel at f4c327a1, casper-hansen/AutoAWQ at 88e4c76b;
 * intel/auto-round at 00122bc6, auto_round/export/export_to_autoround/export.py.
 */

import { show } from '../../../core/show.js';
import type { CastType } from '../../codecs/cast.js';
import { tileElements } from '../../codecs/codec.js';
import { type GptqForm, type GptqWidth, gptqRowUnit } from '../../codecs/gptq.js';
import type { LogicalTensor, SourceTensor } from '../../format.js';
import { isFields } from '../stored-model.js';
import type { Fields, FoundWeight, FoundWeights, StoredModel } from './layout.js';

const widths: readonly number[] = [2, 3, 4, 8];

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

async function settingsOf(model: StoredModel): Promise<Settings> {
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
  return {
    lessOne: isAutoRound ? /gptq(?!_?v2)/.test(packing) : format !== 'gptq_v2',
    groupSize: typeof size === 'number' && Number.isSafeInteger(size) && size > 0 ? size : undefined,
    otherFormat: knownFormats.includes(format)
      ? undefined
      : typeof format === 'string'
        ? format.slice(0, 40)
        : show(format),
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

const isMatrix = ({ shape }: SourceTensor) => shape.length === 2 && shape.every((dimension) => dimension > 0);

/** The form and the shape of a weight, or a reason why its parts do not fit together. */
function formOf(parts: Parts, { groupSize: given }: Settings): { shape: readonly number[]; form: GptqForm } | string {
  const { data, zeroPoint, scale, group } = parts;
  if (data.dtype !== 'I32' || zeroPoint.dtype !== 'I32' || !['F16', 'BF16', 'F32'].includes(scale.dtype)) {
    return `with parts of types ${[data, zeroPoint, scale].map(({ dtype }) => dtype).join(', ')} in place of I32, I32 and F16`;
  }
  if (![data, zeroPoint, scale].every(isMatrix)) return 'with parts that are not matrices';
  const [rows = 0, width = 0] = data.shape;
  const [groups = 0, n = 0] = scale.shape;
  const [zeroRows, zeroWidth = 0] = zeroPoint.shape;
  const words = width === n ? 'gptq' : 'awq';
  const bits = (zeroWidth * 32) / n;
  if (words === 'awq' && (width * 8 !== n || bits !== 4))
    return 'with words that are neither those of GPTQ nor those of AWQ (gemm)';
  const k = words === 'awq' ? rows : (rows * 32) / bits;
  if (!widths.includes(bits) || zeroRows !== groups || !Number.isInteger(k) || (words === 'gptq' && k % 32 !== 0)) {
    return `with parts whose shapes do not match: ${[data, zeroPoint, scale].map(({ shape }) => `[${shape.join(', ')}]`).join(', ')}`;
  }
  if (n % gptqRowUnit({ words, bits: bits as GptqWidth }) !== 0)
    return `with ${n} outputs, which do not fill whole words`;
  if (group !== undefined && (words === 'awq' || group.dtype !== 'I32' || group.shape.join() !== String(k))) {
    return `with a g_idx ${group.dtype} [${group.shape.join(', ')}] for ${k} columns`;
  }
  // The last group of a row may be shorter, but not in words of AWQ.
  const isGiven = given !== undefined && Math.ceil(k / given) === groups;
  const even = k % groups === 0 ? k / groups : undefined;
  const groupSize = words === 'gptq' && isGiven ? given : even;
  if (group === undefined && groupSize === undefined) {
    return `with ${groups} groups in rows of ${k}, whose size no configuration says`;
  }
  const form: GptqForm = {
    codec: 'gptq',
    bits: bits as GptqWidth,
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

/** Finds weights in the layouts of GPTQ and AWQ. */
export async function findGptq(model: StoredModel): Promise<FoundWeights> {
  const weights: FoundWeight[] = [];
  const refused = new Map<string, string>();
  const forms = new Map<string, GptqForm>();
  const lessOne = new Map<GptqWidth, boolean>();
  let settings: Settings | undefined;
  for (const data of model.tensors) {
    if (!data.name.endsWith('.qweight')) continue;
    const module = data.name.slice(0, -'.qweight'.length);
    const [zeroPoint, scale] = [model.tensor(`${module}.qzeros`), model.tensor(`${module}.scales`)];
    if (zeroPoint === undefined || scale === undefined) continue;
    settings ??= await settingsOf(model);
    const group = model.tensor(`${module}.g_idx`);
    const name = `${module}.weight`;
    const parts = { data, zeroPoint, scale, group };
    const found =
      settings.otherFormat === undefined
        ? formOf(parts, settings)
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
    const stated = { ...found.form, lessOne: words === 'gptq' && (lessOne.get(bits) as boolean) };
    // Tensors share the objects of equal forms.
    const key = JSON.stringify(stated);
    const form = forms.get(key) ?? stated;
    forms.set(key, form);
    const tensor: LogicalTensor = {
      name,
      shape: found.shape,
      type: `I${form.bits}`,
      form,
      parts: [
        { role: 'data', tensor: data },
        { role: 'zeroPoint', tensor: zeroPoint },
        { role: 'scale', tensor: scale },
        ...(group === undefined ? [] : [{ role: 'group', tensor: group }]),
      ],
    };
    weights.push({ tensor });
  }
  return { weights, refused };
}

/** True if a tile holds the rows that share words. */
export function canCutGptq({ shape: [, k = 1], form }: LogicalTensor): boolean {
  return k * gptqRowUnit(form as GptqForm) <= tileElements;
}

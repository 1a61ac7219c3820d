/**
 * The layout of MLX, as mlx-lm stores models: `X.weight` of words with `X.scales` and, for integers, `X.biases`. config.json says which codes
 * they hold, because shapes leave that open.
 * Reference: github.com/ml-explore/mlx-lm at d78bf58e, mlx_lm/convert.py, mlx_lm/utils.py (quantize_model, save_model, save_config), and
 * mlx_lm/models: `sanitize` and `quant_predicate` of each file; ml-explore/mlx at 846d1762, python/mlx/nn/layers/quantized.py.
 */

import { ScalepointError } from '../../../core/errors.js';
import { noteOf } from '../../../core/note.js';
import { show } from '../../../core/show.js';
import type { CastForm, CastType } from '../../codecs/cast.js';
import { type Form, tileElements } from '../../codecs/codec.js';
import { elementsOf } from '../../codecs/elements.js';
import {
  feedsMicroscaled,
  type MicroscaledForm,
  type MicroscaledKind,
  microscaledBlock,
} from '../../codecs/microscaled.js';
import { type MlxForm, type MlxWidth, mlxGroupSizes, mlxWidths } from '../../codecs/mlx.js';
import { quoted, quotedNames } from '../../files/bytes.js';
import { badTensor } from '../../files/errors.js';
import type { ElementView, Finding, LogicalTensor, SourceTensor } from '../../format.js';
import type { KnownModels } from '../../known-models.js';
import { ruleFor } from '../../options.js';
import { rankReason, reasons } from '../../reason.js';
import { keeperByName } from '../keep.js';
import {
  blockOptions,
  type CodedLayout,
  type CodedTarget,
  castTypes,
  type Fields,
  type FoundWeight,
  fedBlockOptions,
  formSharing,
  isFields,
  moduleOfWeight,
  partsByRole,
  problemFound,
} from './layout.js';

/** Codes of MLX: integers of a width with a scale and a bias for each group, or small floats in blocks. */
type MlxCodes = MlxWidth | MicroscaledKind;

/** The type of a model's floats by its config.json; undefined if it does not say. */
function mlxFloats({ torch_dtype: torch, dtype, text_config: text }: Fields): CastType | undefined {
  return castTypes.get(torch ?? dtype ?? (text as Fields | null | undefined)?.dtype);
}

const blockSettings = (kind: MicroscaledKind) => ({
  group_size: microscaledBlock(kind),
  bits: kind === 'mxfp8' ? 8 : 4,
  mode: kind,
});

/** The settings of config.json that describe a form. */
function mlxSettings(form: Form) {
  if (form.codec !== 'mlx') return blockSettings((form as MicroscaledForm).kind);
  const { groupSize, bits } = form as MlxForm;
  return { group_size: groupSize, bits, mode: 'affine' };
}

// ------------------------------------------------------------------------------------------------------------------------------ reading

/** The stored tensors of a module. */
interface Parts {
  readonly data: SourceTensor;
  readonly scale: SourceTensor;
  readonly bias: SourceTensor | undefined;
}

/** The shape and the form of a module, or what is wrong with its parts. @param floats type of the model's floats */
function mlxWeight(
  module: string,
  quantization: Fields | undefined,
  floats: CastType,
  { data, scale, bias }: Parts,
): { readonly shape: readonly number[]; readonly form: MlxForm | MicroscaledForm } | string {
  if (quantization === undefined)
    return 'and the number of its bits stands in a config.json with a "quantization", which is not beside it';
  // The settings of a module replace those of the model.
  const given = quantization[module];
  const { bits, group_size: groupSize, mode = 'affine' } = isFields(given) ? given : quantization;
  const isKind = mode === 'mxfp4' || mode === 'nvfp4' || mode === 'mxfp8';
  if (!isKind && mode !== 'affine') return `in the mode ${show(mode)}, which is not read here`;
  let [width, size] = isFields(given) ? [bits ?? 4, groupSize ?? 64] : [bits, groupSize];
  if (isKind) {
    ({ bits: width, group_size: size } = blockSettings(mode));
    if ((bits ?? width) !== width || (groupSize ?? size) !== size)
      return `as ${mode} with ${show(bits)} bits in groups of ${show(groupSize)}, which MLX does not have`;
  } else {
    if (!mlxWidths.includes(width as MlxWidth) || !mlxGroupSizes.includes(size as number))
      return `with ${show(width)} bits in groups of ${show(size)}, which MLX does not have`;
    if (bias === undefined) return 'without biases';
  }
  // Compare the words with the scales.
  const rows = scale.shape.slice(0, -1);
  const columns = (scale.shape.at(-1) ?? 0) * (size as number);
  const words = [...rows, (columns * (width as number)) / 32];
  const isWhole = columns > 0 && rows.length > 0 && rows.every((dimension) => dimension > 0);
  const hasScales = isKind
    ? scale.dtype === 'U8' && bias === undefined
    : bias?.shape.join() === scale.shape.join() && bias.dtype === scale.dtype && /^(F16|BF16|F32)$/.test(scale.dtype);
  if (!isWhole || data.shape.join() !== words.join() || !hasScales) {
    const all = [data, scale, ...(bias === undefined ? [] : [bias])];
    return `with parts that do not match: ${all.map(({ dtype, shape }) => `${dtype} [${shape.join(', ')}]`).join(', ')}`;
  }
  const form: MlxForm | MicroscaledForm = isKind
    ? { codec: 'mlx-floats', kind: mode, tool: 'mlx', floats }
    : { codec: 'mlx', bits: width as MlxWidth, groupSize: size as number, scale: scale.dtype as CastType };
  return { shape: [...rows, columns], form };
}

// ------------------------------------------------------------------------------------------------------------------------------- models

/** The weights of all experts as one tensor. */
function stackedExperts(name: string, members: readonly LogicalTensor[]): LogicalTensor {
  const [first] = members;
  if (first === undefined) return badTensor(name, 'expert 0 is missing');
  const { shape, type, form } = first;
  const text = (one: LogicalTensor) => `${one.type} [${one.shape.join(', ')}]`;
  // Lists of experts may have holes.
  for (let i = 0; i < members.length; i++) {
    const member = members[i];
    if (member === undefined) return badTensor(name, `expert ${i} is missing`);
    if (member.shape.join() !== shape.join() || JSON.stringify(member.form) !== JSON.stringify(form))
      badTensor(member.name, `it is ${text(member)}, and ${first.name} is ${text(first)}`);
  }
  if (form.codec === 'copy') badTensor(first.name, `experts of the type ${type} cannot be stacked`);
  // Experts that were taken out of a stack lie in it alike.
  const read = form.codec === 'cast' ? { view: first.gathered?.view } : { members };
  const width = shape.at(-1) as number;
  const parts = members.flatMap((member) => member.parts);
  return { name, shape: [members.length, ...shape], type, form, parts, isRenamed: true, gathered: { width, ...read } };
}

/** Names of the keys and values of latent attention in mlx-lm. */
const latentName = /\.self_attn\.(embed_q|unembed_out)\.weight$/;

/** Keys and values of each head out of the matrix of both, keys transposed; undefined for codes, which mlx-lm restores. */
function splitLatent({ name, shape, type, form, parts, gathered }: LogicalTensor, config: Fields) {
  const [heads, plain, value] = ['num_attention_heads', 'qk_nope_head_dim', 'v_head_dim'].map((key) =>
    Number(config[key]),
  );
  const [rows, rank] = shape as [number, number];
  const isKnown = heads !== undefined && plain !== undefined && value !== undefined && heads * (plain + value) === rows;
  if (!isKnown || form.codec !== 'cast' || gathered !== undefined) return undefined;
  const each = (plain + value) * rank;
  const part = (
    end: string,
    [first, second]: readonly [number, number],
    offset: number,
    dims: ElementView['dims'],
  ): LogicalTensor => ({
    ...{ name: name.replace('kv_b_proj', end), shape: [heads, first, second], type, form, parts, isRenamed: true },
    gathered: { width: second, view: { offset, dims: [[heads, each], ...dims] } },
  });
  return [
    part('embed_q', [rank, plain], 0, [
      [rank, 1],
      [plain, rank],
    ]),
    part('unembed_out', [value, rank], plain * rank, [[value * rank, 1]]),
  ];
}

/** The projections of experts, by their names in folders. */
const usualProjections: Readonly<Record<string, string>> = {
  gate_proj: 'gate_proj',
  up_proj: 'up_proj',
  down_proj: 'down_proj',
};

/** A model as mlx-lm has it. */
interface MlxModel {
  readonly tensors: readonly LogicalTensor[];
  /** Names of tensors that are left out. */
  readonly unused: readonly string[];
  /** Keys that config.json needs besides its own. */
  readonly also: Fields;
  readonly known: NonNullable<KnownModels[string]>;
  /** Names of the stacks. */
  readonly stacks: ReadonlySet<string>;
}

/**
 * Arranges a model as mlx-lm loads it.
 * @throws ScalepointError `UNKNOWN_FORMAT` for a model that is not known, `BAD_FILE` for one that lacks a tensor
 */
function arrangedModel(source: readonly LogicalTensor[], config: Fields | undefined, known: KnownModels): MlxModel {
  const refuse = (message: string): never => {
    throw new ScalepointError('UNKNOWN_FORMAT', message);
  };
  if (config === undefined)
    return refuse('MLX needs the config.json of the model beside it: give the folder of the model');
  const { model_type: type, text_config: given } = config;
  const text = isFields(given) ? given : undefined;
  const stated = config.tie_word_embeddings ?? text?.tie_word_embeddings;
  const model = typeof type === 'string' && Object.hasOwn(known, type) ? known[type] : undefined;
  if (model === undefined) {
    const list = Object.keys(known).join(', ');
    return refuse(`MLX: models of the type ${quoted(String(type))} are not known here; known are ${list}`);
  }
  const { head, experts, plusOne, embedding = 'model.embed_tokens', output = 'lm_head' } = model;
  const [embeddingName, headName] = [`${embedding}.weight`, `${output}.weight`];
  const split = source.flatMap((tensor) => {
    const isLatent = model.splitsLatent === true && tensor.name.endsWith('.self_attn.kv_b_proj.weight');
    return (isLatent ? splitLatent(tensor, config) : undefined) ?? [tensor];
  });
  const all = split.map((tensor): LogicalTensor => {
    const name = model.rename?.(tensor.name) ?? tensor.name;
    const { shape, form } = tensor;
    if (plusOne?.test(name) && shape.length === 1 && form.codec === 'cast') {
      // A norm of a GGUF file is read without this 1.
      const { add = 0, ...plain } = form as CastForm;
      const added: CastForm = add === -1 ? plain : { ...plain, add: add + 1 };
      return { ...tensor, name, form: added, isRenamed: true };
    }
    // A convolution of each channel has its taps in the second dimension.
    if (plusOne !== undefined && /\.conv1d\.weight$/.test(name) && shape.length === 3 && shape[1] === 1)
      return { ...tensor, name, shape: [shape[0] as number, shape[2] as number, 1], isRenamed: true };
    return name === tensor.name ? tensor : { ...tensor, name, isRenamed: true };
  });
  const names = new Set(all.map(({ name }) => name));
  if (!names.has(embeddingName)) badTensor(embeddingName, `it is missing; mlx-lm needs it in a ${type} model`);
  // Decide about the output layer.
  const hasHead = names.has(headName);
  const isTied = head === 'tied' || (head === undefined && (typeof stated === 'boolean' ? stated : !hasHead));
  if (head === 'tied' && stated === false && hasHead)
    refuse(`MLX: ${type} models with an output layer of their own are not known to mlx-lm`);
  if (!isTied && !hasHead)
    badTensor(headName, 'it is missing, and config.json does not say that the embedding takes its place');
  // Leave out what mlx-lm does not read, and stack experts, each stack in the place of its first.
  const { block, projections = usualProjections, stack: stackModule = 'switch_mlp' } = experts ?? {};
  const pattern =
    experts &&
    new RegExp(`^(.*\\.${block})\\.experts\\.(\\d{1,6})\\.(${Object.keys(projections).join('|')})\\.(weight|bias)$`);
  // mlx-lm has no place for layers behind those that it counts, which predict further tokens.
  const layers = config.num_hidden_layers ?? text?.num_hidden_layers;
  const isBeyond = (name: string) => {
    const [, layer] = /(?:^|\.)layers\.(\d{1,6})\./.exec(name) ?? [];
    return layer !== undefined && typeof layers === 'number' && Number(layer) >= layers;
  };
  const unused: string[] = [];
  const stacks = new Map<string, LogicalTensor[]>();
  const order: (LogicalTensor | string)[] = [];
  for (const tensor of all) {
    const { name } = tensor;
    const isUnused = /(^|\.)rotary_emb\.inv_freq$/.test(name) || model.unused?.test(name) || isBeyond(name);
    if (isUnused || (isTied && name === headName)) {
      unused.push(name);
      continue;
    }
    const [, prefix, index, projection, end] = pattern?.exec(name) ?? [];
    if (experts === undefined || projection === undefined) {
      if (experts !== undefined && name.includes('.experts.'))
        badTensor(name, 'mlx-lm knows no such tensor of an expert');
      order.push(tensor);
      continue;
    }
    const stackName = `${prefix}.${stackModule}.${projections[projection]}.${end}`;
    const stack = stacks.get(stackName) ?? [];
    if (!stacks.has(stackName)) order.push(stackName);
    stack[Number(index)] = tensor;
    stacks.set(stackName, stack);
  }
  const tie = { tie_word_embeddings: isTied };
  const ties = text === undefined ? tie : { text_config: { ...text, ...tie } };
  return {
    tensors: order.map((one) => (typeof one === 'string' ? stackedExperts(one, stacks.get(one) ?? []) : one)),
    unused,
    // mlx-lm and transformers have different defaults.
    also: head === undefined && typeof stated !== 'boolean' ? ties : {},
    known: model,
    stacks: new Set([...stacks.keys(), ...all.flatMap(({ name }) => (latentName.test(name) ? [name] : []))]),
  };
}

// ------------------------------------------------------------------------------------------------------------------------------ writing

/** Size of groups by default. */
const usualGroup = 64;

/** A target of integers. @param wider targets with more bits, which a mixture may have besides */
const mlxTarget = (codes: MlxWidth, ...wider: readonly MlxWidth[]) =>
  ({
    about: `MLX: ${codes} bits, a scale and a bias for each group`,
    kind: 'mlx',
    codes: codes as MlxCodes,
    groupSizes: [usualGroup],
    knownGroups: mlxGroupSizes,
    options: ['granularity', 'search', ...fedBlockOptions],
    completes: ['config'],
    mixedWith: [...wider.map((width) => `mlx-${width}bit`), 'bfloat16'],
  }) as const satisfies CodedTarget;

/** A target of small floats. */
const mlxFloatTarget = (codes: MicroscaledKind, text: string) =>
  ({
    about: `MLX: ${text}`,
    kind: 'mlx',
    codes: codes as MlxCodes,
    options: codes === 'mxfp8' ? blockOptions : fedBlockOptions,
    completes: ['config'],
    mixedWith: ['bfloat16'],
  }) as const satisfies CodedTarget;

const targets = {
  'mlx-4bit': mlxTarget(4, 6, 8),
  'mlx-2bit': mlxTarget(2, 4, 6, 8),
  'mlx-3bit': mlxTarget(3, 4, 6, 8),
  'mlx-5bit': mlxTarget(5, 6, 8),
  'mlx-6bit': mlxTarget(6, 8),
  'mlx-8bit': mlxTarget(8),
  'mlx-mxfp4': mlxFloatTarget('mxfp4', '4.25 bits, small floats in blocks of 32'),
  'mlx-nvfp4': mlxFloatTarget('nvfp4', '4.5 bits, small floats in blocks of 16'),
  'mlx-mxfp8': mlxFloatTarget('mxfp8', '8.25 bits, small floats in blocks of 32'),
};

export const mlxLayout = {
  label: 'MLX',
  codecs: ['mlx', 'mlx-floats'],
  quantMethods: ['mlx'],
  floats: (form) => (form.codec === 'mlx' ? (form as MlxForm).scale : (form as MicroscaledForm).floats),
  targets,
  forKnownModels: true,
  needsKnownModels: true,
  reads: ['config.json'],
  splitsExperts: true,
  readers: () => [
    {
      program: 'mlx-lm',
      code: 'mlx_lm.generate --model FOLDER --prompt "Once upon a time"',
      needs:
        'FOLDER holds the result as model.safetensors, or its files, with config.json and the files of the tokenizer. It needs a Mac, ' +
        'or MLX for Linux.',
    },
  ],

  async find(model) {
    const weights: FoundWeight[] = [];
    const refused = new Map<string, string>();
    const share = formSharing<MlxForm | MicroscaledForm>();
    let config: Fields | undefined;
    for (const data of model.tensors) {
      const { name } = data;
      if (data.dtype !== 'U32' || !name.endsWith('.weight')) continue;
      const module = moduleOfWeight(name);
      const scale = model.tensor(`${module}.scales`);
      if (scale === undefined) continue;
      config ??= (await model.json('config.json')) ?? {};
      const quantization = [config.quantization, config.quantization_config].find(isFields);
      const bias = model.tensor(`${module}.biases`);
      const found = mlxWeight(module, quantization, mlxFloats(config) ?? 'BF16', { data, scale, bias });
      if (typeof found === 'string') {
        refused.set(name, found);
        continue;
      }
      const { shape, form } = found;
      const type = form.codec === 'mlx' ? `I${form.bits}` : form.kind.toUpperCase();
      const parts = partsByRole({ data, scale, zeroPoint: bias });
      weights.push({ tensor: { name, shape, type, form: share(form), parts } });
    }
    return { weights, refused };
  },

  /** Findings for entries that contradict the weights. */
  verify(coded, quantization) {
    const found: Finding[] = [];
    const modules = new Map(coded.map((tensor) => [tensor.name.replace(/\.weight$/, ''), tensor]));
    for (const [module, { name, form }] of modules) {
      const given = quantization[module];
      const entry = isFields(given) ? given : quantization;
      const { mode, bits, group_size } = mlxSettings(form);
      // The mode of integers may be left out, and older files have none.
      for (const [key, actual] of Object.entries({ bits, group_size, ...(mode !== 'affine' && { mode }) })) {
        const stated = entry[key];
        if (stated === actual || stated === undefined) continue;
        const text = `config.json says ${key} ${show(stated)}, but it is ${actual}`;
        found.push(problemFound('configDiffers', text, { tensor: name, key, stated, actual }));
      }
    }
    // mlx-lm fails where it finds settings of a module without codes.
    for (const [module, given] of Object.entries(quantization)) {
      if (!isFields(given) || modules.has(module)) continue;
      found.push(problemFound('noCodesOfModule', `config.json has settings for ${show(module)}, which has no codes`));
    }
    return found;
  },

  /** Makes the decisions of a result. @throws ScalepointError `UNKNOWN_FORMAT` or `BAD_FILE` if mlx-lm does not load the model */
  plan({ tensors: source, choices, codes: mainCodes, beside, known }) {
    const config = beside.get('config.json');
    const { tensors, unused, also, stacks, known: model } = arrangedModel(source, config, known);
    const modelFloats = config && mlxFloats(config);
    const search = choices.search === 'best' ? choices.search : undefined;
    const range = search !== undefined || choices.range === 'mse' ? 'mse' : undefined;
    const keeper = keeperByName(tensors);
    const share = formSharing<MlxForm | MicroscaledForm>();
    const formFor = (codes: MlxCodes, groupSize: number, floats: CastType) =>
      share(
        typeof codes === 'number'
          ? { codec: 'mlx', bits: codes, groupSize, scale: floats, ...(range && { range }), ...(search && { search }) }
          : { codec: 'mlx-floats', kind: codes, tool: 'mlx', floats, ...(range && { search: true }) },
      );
    return {
      tensors,
      floats: modelFloats,
      keepsType: (name) => model.uncast?.test(name) === true,
      keptByName(name) {
        const reason = keeper(name);
        return reason?.kind === 'norm' || reason?.kind === 'bias' ? reason : undefined;
      },
      obstacle({ source: { name, shape }, codes }) {
        if (!name.endsWith('.weight')) return reasons.notWeight;
        if (shape.length !== 2 && !stacks.has(name)) return rankReason(shape.length);
        if (model.plain?.test(moduleOfWeight(name))) return { kind: 'plain' };
        const by = typeof codes === 'number' ? 1 : microscaledBlock(codes as MicroscaledKind);
        const dimension = shape.at(-1) as number;
        return dimension % by === 0 ? undefined : { kind: 'notDivisible', dimension, by };
      },
      groupsStacked: true,
      formOf({ source: { name, shape }, codes, dtype }, groupSize = usualGroup) {
        const floats = modelFloats ?? (dtype === 'F64' ? 'F32' : (dtype as CastType));
        const isRuled = choices.rules !== undefined && ruleFor(choices.rules, name) !== undefined;
        const isPrecise = model.precise?.test(moduleOfWeight(name)) === true && (shape.at(-1) ?? 1) % 64 === 0;
        return isPrecise && !isRuled ? formFor(8, 64, floats) : formFor(codes as MlxCodes, groupSize, floats);
      },
      weighing: {
        takes: (shape) => shape.length === 2 && (shape[1] ?? 1) <= tileElements,
        feeds: (form) => form.codec === 'mlx' || feedsMicroscaled(form as MicroscaledForm),
        add: (form, importance) => ({
          ...form,
          ...(form.codec === 'mlx' ? { range: 'mse' } : { search: true }),
          importance,
        }),
      },
      sidecars(planned) {
        // Modules that differ from the main settings have their own.
        const { granularity } = choices;
        const groupSize = granularity?.kind === 'per-group' ? granularity.groupSize : usualGroup;
        const main = mlxSettings(formFor((mainCodes ?? 4) as MlxCodes, groupSize, 'F32'));
        const value: Record<string, unknown> = { ...main };
        for (const { source, form } of planned) {
          if (form.codec !== 'mlx' && form.codec !== 'mlx-floats') continue;
          const settings = mlxSettings(form);
          if (JSON.stringify(settings) !== JSON.stringify(main)) value[moduleOfWeight(source.name)] = settings;
        }
        return [{ option: 'config', value, also: { ...also, quantization: value }, base: config }];
      },
      notes() {
        if (unused.length === 0) return [];
        const text = `left out, because mlx-lm does not read it: ${quotedNames(unused)}`;
        return [noteOf('notReadByMlx', { tensors: unused }, text)];
      },
      metadata: () => ({ format: 'mlx' }),
      indexMetadata: (planned) => ({
        total_parameters: planned.reduce((sum, { source: { shape } }) => sum + elementsOf(shape), 0),
      }),
      // mlx-lm has at most 5 GiB in a file.
      shardBytes: 5 * 2 ** 30,
    };
  },
} satisfies CodedLayout;

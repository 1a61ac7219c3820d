/**
 * Chooses by name the tensors that are kept by default when weights become integers. Norms, biases, embeddings, the output layer and the
 * router of experts are small and sensitive, and so are the towers for pictures and sound of language models. Scales and zero points belong
 * to weights that are quantized already.
 */
import { type Note, noteOf } from '../../core/note.js';
import type { Form } from '../codecs/codec.js';
import type { LogicalTensor, PlannedTensor } from '../format.js';
import { type Reason, rankReason, reasons } from '../reason.js';
import type { SafetensorsReason } from './reasons.js';

// ------------------------------------------------------------------------------------------------------------------ joined layers
/**
 * Layers that loaders join. vLLM and SGLang make one matrix of the queries, keys and values of a layer, and one kernel of all of its experts.
 * Such layers need one scheme, and a scale of the whole matrix has to be that of all.
 * Reference: `packed_modules_mapping` of the models in github.com/vllm-project/vllm, vllm/model_executor/models/{llama,bert,deepseek_v2,
 * internlm2,kimi_linear,qwen3_5}.py (the last at 00def4f8); `CompressedTensorsConfig.get_scheme_dict` and `FusedMoE` there.
 */

/** Modules that become one matrix, each by its last name. Those of one row have the same parent. */
const joinedModules: readonly (readonly string[])[] = [
  // Kimi Linear joins those of its gates as well.
  ['q_proj', 'k_proj', 'v_proj', 'b_proj', 'f_a_proj', 'g_a_proj'],
  ['query', 'key', 'value'],
  ['gate_proj', 'up_proj'],
  ['w1', 'w3'],
  ['in_proj_qkv', 'in_proj_z'],
  ['in_proj_b', 'in_proj_a'],
  ['q_a_proj', 'kv_a_proj_with_mqa'],
];

const rowOfModule = new Map(joinedModules.flatMap((names) => names.map((name) => [name, names.join('|')] as const)));

/** The matrix that a loader makes of a weight and others, under a name that only these have; undefined for other tensors. */
export function joinedMatrix(name: string): string | undefined {
  const [, prefix = '', module = ''] = /^(.*\.)?([^.]+)\.weight$/s.exec(name) ?? [];
  const row = rowOfModule.get(module);
  return row === undefined ? undefined : `${prefix}(${row})`;
}

/** The unit of a weight whose layer has one scheme: all experts of a layer, or a joined matrix; undefined for other tensors. */
export function fusedUnit(name: string): string | undefined {
  const [, experts] = /^((?:.*\.)?experts)\.(?:\d+\.)?\w+(?:\.weight)?$/s.exec(name) ?? [];
  return experts === undefined || /bias/.test(name.slice(experts.length)) ? joinedMatrix(name) : experts;
}

/** Fields of forms that their schemes state. */
const statedFields = ['codec', 'type', 'kind', 'bits', 'symmetric', 'groupSize', 'packed', 'blockRows', 'blockColumns'];

const schemeNames = new WeakMap<Form, string>();

/** A name for the scheme of a form; empty for floats. Weights share the objects of equal forms. */
function schemeName(form: Form): string {
  if (!/^(compressed-tensors|microscaled|scaled-elements)$/.test(form.codec)) return '';
  const known = schemeNames.get(form);
  if (known !== undefined) return known;
  const fields: Readonly<Record<string, unknown>> = { ...form };
  const name = statedFields.map((field) => fields[field]).join(' ');
  schemeNames.set(form, name);
  return name;
}

/** Names of the weights of each unit that has several schemes, or codes beside floats. */
export function cutUnits(weights: readonly Pick<LogicalTensor, 'name' | 'shape' | 'form'>[]): (readonly string[])[] {
  // Most results have one scheme, and files have up to a million tensors: keys are made only where something can be cut.
  const joined = weights.filter(({ name, shape }) => shape.length >= 2 && fusedUnit(name) !== undefined);
  const [first] = joined;
  if (first === undefined || joined.every(({ form }) => schemeName(form) === schemeName(first.form))) return [];
  const schemes = new Map<string, string>();
  const cut = new Map<string, string[]>();
  for (const { name, form } of joined) {
    const key = fusedUnit(name) as string;
    const scheme = schemes.get(key) ?? schemeName(form);
    schemes.set(key, scheme);
    if (scheme !== schemeName(form)) cut.set(key, []);
  }
  for (const { name } of joined) cut.get(fusedUnit(name) as string)?.push(name);
  return [...cut.values()];
}

/** The note about units that a result cuts. */
export function cutUnitsNotes(planned: readonly PlannedTensor[]): Note[] {
  const cut = cutUnits(planned.map(({ source: { name, shape }, form }) => ({ name, shape, form })));
  if (cut.length === 0) return [];
  const text =
    `${cut.length === 1 ? 'a group of layers that vLLM joins gets' : `${cut.length} groups of layers that vLLM joins get`} ` +
    `different types, which it refuses, such as ${cut[0]?.slice(0, 3).join(', ')}; give all of a group one type`;
  return [noteOf('cutGroups', { tensors: cut.flat() }, text)];
}

// --------------------------------------------------------------------------------------------------------------------- kept names
/** Modules for pictures and sound, and those that fit their outputs to a language model, in the names of Hugging Face. */
const towerName =
  /(^|[./])(visual|vision|vision_(tower|model|encoder|embed_tokens|projection)|vit_large_projector|audio_(tower|model|encoder)|image_newline|(multi_modal|mm|vision|audio|modality)_projector|connector)([./]|$)/i;

/**
 * Places in a name, which is split at dots and slashes: the last part; the innermost module, such as `linear` in `norm1.linear.weight`, which is
 * a linear layer inside of a norm; either of them; any part; the whole name; the innermost module beside a list of experts; the name in a
 * model that has a token embedding or an output layer outside of towers.
 */
type NamePlace = 'last' | 'owner' | 'end' | 'part' | 'name' | 'besideExperts' | 'inLanguageModel';

/** Reasons to keep a tensor. The first row that matches is reported. */
const keptNames: readonly (readonly [reason: Reason, place: NamePlace, words: RegExp])[] = [
  [reasons.bias, 'last', /(^|_)bias(_|$)/i],
  [reasons.bias, 'owner', /(^|_)bias$/i],
  [{ kind: 'lmHead' }, 'part', /^lm_head$/i],
  [reasons.embedding, 'end', /embed|embd|(^|_)emb$|^w[tp]e$|^shared$|_tokens?$/i],
  [reasons.norm, 'end', /norm(_?\d+)?$|^norm_|^(ln|bn|gn)(\d*|_\w+)$/i],
  // Loaders expect routers in floats. A gate without experts beside it is an ordinary layer.
  [reasons.router, 'part', /^router$/i],
  [reasons.router, 'besideExperts', /^(shared_expert_)?gate$/i],
  // Hunyuan's router.
  [reasons.router, 'name', /(^|[./])gate[./]wg[./][^./]*$/],
  // DeepSeek's indexer weighs its heads in floats.
  [{ kind: 'sensitive' }, 'name', /(^|[./])indexer[./]weights_proj[./][^./]*$/],
  [{ kind: 'tower' }, 'inLanguageModel', towerName],
  [{ kind: 'scale' }, 'last', /(^|_)(scales?|scale_inv|absmax|quant_map)$/i],
  [{ kind: 'zeroPoint' }, 'last', /(^|_)(zero_points?|q?zeros)$/i],
];

/** Number of cached ends of names. Models have a few dozen. */
const mostEnds = 1024;

/** Names to check as a whole: those with routers, or with parts that count anywhere in the name. */
const unusual = /lm_head|router|gate[./]|indexer[./]|vision|visual|audio|projector|connector/i;

/**
 * Makes a function from names to the reason to keep a tensor by default, or undefined.
 * @param tensors all of the model, because the meaning of some names depends on others
 */
export function keeperByName(tensors: readonly { readonly name: string }[]): (name: string) => Reason | undefined {
  const ofLanguageModel = tensors.some(
    ({ name }) => /(^|[./])(embed_tokens|lm_head)[./]/.test(name) && !towerName.test(name),
  );
  /** The parts of names before `experts`. */
  const expertPrefixes = new Set<string>();
  for (const { name } of tensors) {
    const at = name.search(/(^|[./])experts[./]/i);
    if (at >= 0) expertPrefixes.add(name.slice(0, at));
  }
  const known = new Map<string, { readonly reason: Reason | undefined }>();
  return (name) => {
    // Most names are decided by their last two parts, whose begin is behind the second separator from the end.
    const isUnusual = unusual.test(name);
    let begin = 0;
    for (let at = name.length - 1, separators = 0; !isUnusual && at >= 0 && begin === 0; at--) {
      const unit = name.charCodeAt(at);
      if ((unit === 0x2e || unit === 0x2f) && ++separators === 2) begin = at + 1;
    }
    const ending = name.slice(begin);
    const found = isUnusual ? undefined : known.get(ending);
    if (found !== undefined) return found.reason;
    // Look for the first row of the table that matches.
    const parts = name.split(/[./]/);
    const [owner = '', last = ''] = parts.length > 1 ? parts.slice(-2) : ['', name];
    const prefix = name.slice(0, Math.max(0, name.length - last.length - owner.length - 2));
    const places: Readonly<Record<NamePlace, readonly string[]>> = {
      last: [last],
      owner: [owner],
      end: [owner, last],
      part: parts,
      name: [name],
      besideExperts: expertPrefixes.has(prefix) ? [owner] : [],
      inLanguageModel: ofLanguageModel ? [name] : [],
    };
    const reason = keptNames.find(([, place, words]) => places[place].some((text) => words.test(text)))?.[0];
    if (!isUnusual && known.size < mostEnds) known.set(ending, { reason });
    return reason;
  };
}

const conv1DReason: SafetensorsReason = { kind: 'conv1D' };

/** End of the names of weights in GPT-2's layers. */
const conv1D = /(^|\.)(c_attn|c_proj|c_fc|q_attn)\.weight$/;

/**
 * Makes a function from weights to the reason why loaders of compressed-tensors do not decode them, or undefined. Loaders decode linear
 * layers: the two-dimensional `.weight` of a module. Names reveal one other class: GPT-2's Conv1D, a linear layer that is stored
 * transposed.
 * @param tensors all tensors of the model
 */
export function linearOnly(
  tensors: readonly { readonly name: string; readonly shape: readonly number[] }[],
): (name: string, shape: readonly number[]) => Reason | undefined {
  // c_attn computes queries, keys and values, so its rows are the longer side only if it is transposed.
  const isConv1D = tensors.some(
    ({ name, shape: [rows = 0, columns = 0] }) => columns === 3 * rows && /(^|\.)c_attn\.weight$/.test(name),
  );
  return (name, shape) => {
    if (shape.length !== 2) return rankReason(shape.length);
    if (!name.endsWith('.weight') && name !== 'weight') return reasons.notWeight;
    return isConv1D && conv1D.test(name) ? conv1DReason : undefined;
  };
}

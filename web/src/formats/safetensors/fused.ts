/**
 * Layers that loaders join. vLLM and SGLang make one matrix of the queries, keys and values of a layer, and one kernel of all of its experts.
 * Such layers need one scheme, and a scale of the whole matrix has to be that of all.
 * Reference: `packed_modules_mapping` of the models in github.com/vllm-project/vllm, vllm/model_executor/models/{llama,bert,deepseek_v2,
 * internlm2,kimi_linear,qwen3_5}.py (the last at 00def4f8); `CompressedTensorsConfig.get_scheme_dict` and `FusedMoE` there.
 */

import { type Note, noteOf } from '../../core/note.js';
import type { Form } from '../codecs/codec.js';
import type { LogicalTensor, PlannedTensor } from '../format.js';

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

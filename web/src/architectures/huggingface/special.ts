/**
 * Keys behind a vocabulary: ids of the tokens with a role, flags for those that the tokenizer adds, chat templates.
 * Reference: github.com/ggml-org/llama.cpp, gguf-py/gguf/vocab.py at 0c1c9d3.
 */
import { noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import type { GgufKey } from '../../formats/gguf/pairs.js';
import { arrayMember, isObject, type Json, member, objectMember } from './json.js';
import type { TokenizerFiles } from './tokenizer-input.js';
import { addedTokens, type Vocabulary } from './vocabulary.js';

/** Roles with their keys, in the order of llama.cpp's converter. The misspelled key is part of the format. */
const idKeys: Readonly<Record<string, string>> = {
  bos: 'bos_token_id',
  eos: 'eos_token_id',
  unk: 'unknown_token_id',
  sep: 'seperator_token_id',
  pad: 'padding_token_id',
  cls: 'cls_token_id',
  mask: 'mask_token_id',
  eot: 'eot_token_id',
  eom: 'eom_token_id',
};
const roles = ['bos', 'eos', 'unk', 'sep', 'pad', 'cls', 'mask'];

/** Roles whose token a tokenizer may add by itself. */
const addable = ['bos', 'eos', 'sep'];

/** Text of a token in tokenizer_config.json: a string, or an object that holds it. */
function textOf(entry: unknown): string | undefined {
  const text = isObject(entry) ? member(entry, 'content') : entry;
  return typeof text === 'string' && text !== '' ? text : undefined;
}

/** Facts about roles, collected from the files. */
interface RoleFacts {
  /** Texts by role, without those that are missing. */
  readonly texts: Map<string, string>;
  /** True for roles whose token the tokenizer adds. */
  readonly adds: Map<string, boolean>;
  readonly roles: string[];
}

/** Text of a template's entry of the given kind; undefined for the other kind. */
function entryOf(entry: unknown, kind: 'SpecialToken' | 'Sequence'): string | undefined {
  const id = member(objectMember(isObject(entry) ? entry : undefined, kind), 'id');
  return typeof id === 'string' ? id : undefined;
}

/**
 * Reads a TemplateProcessing. Its first special token is the beginning of a text, its last one the end. If tokenizer_config.json names
 * another end, that one ends a turn instead.
 */
function readTemplate(found: RoleFacts, template: Json, hasSettings: boolean): void {
  const { texts, adds } = found;
  const [single, pair] = [arrayMember(template, 'single'), arrayMember(template, 'pair')];
  let first: string | undefined;
  let last: string | undefined;
  if (single.length > 1) {
    first = entryOf(single[0], 'SpecialToken');
    last = entryOf(single.at(-1), 'SpecialToken');
    if (first !== undefined) adds.set('bos', !hasSettings || first === texts.get('bos') || first === texts.get('cls'));
    if (last !== undefined) {
      if (hasSettings && last !== texts.get('eos')) endsTurn(found, last);
      adds.set('eos', true);
    }
  }
  if (pair.length > 0) readPair(found, pair, first, last);
}

/** Makes the template's last token the end of a text, and the former end of a text the end of a turn. */
function endsTurn({ texts, roles: all }: RoleFacts, last: string): void {
  const role = ['eot', 'eom'].find((name) => !all.includes(name));
  const old = texts.get('eos');
  if (role !== undefined) {
    all.push(role);
    if (old !== undefined) texts.set(role, old);
  }
  texts.set('eos', last);
}

/** Reads the separator between two texts. */
function readPair(
  { texts, adds }: RoleFacts,
  pair: readonly unknown[],
  first: string | undefined,
  last: string | undefined,
): void {
  const start = first !== undefined && entryOf(pair[0], 'SpecialToken') === first ? 1 : 0;
  const stop = last !== undefined && entryOf(pair.at(-1), 'SpecialToken') === last ? -1 : undefined;
  const inner = pair.slice(start, stop);
  const between = inner.slice(1, -1);
  if (entryOf(inner[0], 'Sequence') !== 'A' || entryOf(inner.at(-1), 'Sequence') !== 'B' || between.length === 0)
    return;
  const separators = [texts.get('sep'), texts.get('eos')];
  const separates = (entry: unknown) => {
    const text = entryOf(entry, 'SpecialToken');
    return text !== undefined && separators.includes(text);
  };
  const adding = (separates(between[0]) && last === undefined) || (between.length === 2 && separates(between[1]));
  adds.set('sep', adding);
  const end = texts.get('eos');
  if (adding && !texts.has('sep') && end !== undefined) texts.set('sep', end);
}

/** Reads the tokens that a post-processor adds. */
function readPostProcessor(found: RoleFacts, tokenizer: Json, hasSettings: boolean): void {
  const post = objectMember(tokenizer, 'post_processor');
  if (post === undefined) return;
  const list = member(post, 'processors');
  for (const processor of (Array.isArray(list) ? (list as unknown[]) : [post]).filter(isObject)) {
    const type = member(processor, 'type');
    if (type === 'RobertaProcessing') for (const role of addable) found.adds.set(role, true);
    if (type === 'TemplateProcessing') readTemplate(found, processor, hasSettings);
  }
}

/** Roles, their texts and added tokens, from tokenizer.json and tokenizer_config.json. */
function readRoles({ tokenizer, settings }: TokenizerFiles): RoleFacts {
  const found: RoleFacts = { texts: new Map(), adds: new Map(), roles: [...roles] };
  for (const role of [...roles, 'eot', 'eom']) {
    const text = textOf(member(settings, `${role}_token`));
    if (text !== undefined) found.texts.set(role, text);
  }
  if (tokenizer !== undefined) {
    for (const [role, other] of [
      ['bos', 'cls'],
      ['eos', 'sep'],
    ] as const) {
      const text = found.texts.get(other);
      if (!found.texts.has(role) && text !== undefined) found.texts.set(role, text);
    }
    readPostProcessor(found, tokenizer, settings !== undefined);
  }
  for (const role of found.roles) {
    const adds = member(settings, `add_${role}_token`);
    if (typeof adds === 'boolean') found.adds.set(role, adds);
  }
  return found;
}

/** Ids of the roles, in writing order: by their texts first, then by config.json. */
function roleIds(files: TokenizerFiles, { texts, roles: all }: RoleFacts, vocabulary: Vocabulary): Map<string, number> {
  const ids = new Map<string, number>();
  const put = (role: string, id: unknown) => {
    if (typeof id !== 'number' || !Number.isInteger(id) || id < 0 || ids.has(role)) return;
    if (id < vocabulary.size) ids.set(role, id);
    else {
      const rows = vocabulary.size;
      const text = `the ${role} token ${id} left out, because the embedding has ${rows} rows`;
      vocabulary.notes.push(noteOf('roleLeftOut', { role, token: id, rows }, text));
    }
  };
  const added = new Map<string, number>();
  // Of two added tokens with the same text, the first one counts.
  for (const { content, id } of addedTokens(files.tokenizer)) if (!added.has(content)) added.set(content, id);
  if (files.settings !== undefined) for (const role of all) put(role, added.get(texts.get(role) ?? ''));
  for (const role of all) {
    const stated = files.config.get(`${role}_token_id`);
    if (!Array.isArray(stated) || ids.has(role)) {
      put(role, stated);
      continue;
    }
    // llama.cpp's converter drops lists, and llama.cpp then takes an end of its own.
    const [first, ...others] = stated as unknown[];
    put(role, first);
    if (others.length === 0) continue;
    const text = `config.json has several ${role} tokens, of which ${show(first)} is written; llama.cpp knows others by their texts alone`;
    vocabulary.notes.push(noteOf('severalTokens', { role, tokens: stated }, text));
  }
  for (const [role, text] of files.facts.roleTokens ?? []) put(role, added.get(text));
  return ids;
}

/** True if a normalizer lowers the case of text. */
function lowers(normalizer: unknown, depth = 0): boolean {
  if (!isObject(normalizer) || depth > 8) return false;
  const type = member(normalizer, 'type');
  if (type === 'Lowercase') return true;
  if (type === 'BertNormalizer') return member(normalizer, 'lowercase') !== false;
  return type === 'Sequence' && arrayMember(normalizer, 'normalizers').some((one) => lowers(one, depth + 1));
}

/**
 * Keys of models that llama.cpp's converter recognizes by the size of their vocabulary: the infill tokens of CodeLlama, and tokenizers for
 * text without a BOS token.
 */
function ownKeys({ facts, size }: TokenizerFiles): GgufKey[] {
  if (facts.statesPrefix !== true) return [];
  if (size === 49152) return [{ name: 'tokenizer.ggml.add_bos_token', type: 'bool', value: false }];
  if (size !== 32016) return [];
  return ['prefix', 'suffix', 'middle', 'eot'].map(
    (role, i): GgufKey => ({ name: `tokenizer.ggml.${role}_token_id`, type: 'u32', value: 32007 + i }),
  );
}

/** Defaults that depend on the kind of tokenizer. */
export interface SpecialWish {
  /** Default of add_bos if no file states it; undefined leaves it to the runtime. */
  readonly addsBos?: boolean;
  /** True if the runtime lowers the case of text unless a key forbids it. */
  readonly normalizes?: boolean;
}

/** Keys of the special tokens, in writing order. */
export function specialKeys(files: TokenizerFiles, vocabulary: Vocabulary, wish: SpecialWish = {}): GgufKey[] {
  const found = readRoles(files);
  const ids = roleIds(files, found, vocabulary);
  if (wish.addsBos !== undefined && !found.adds.has('bos')) found.adds.set('bos', wish.addsBos);
  const own = ownKeys(files);
  for (const { name, value } of own)
    if (name.endsWith('.add_bos_token') && found.adds.has('bos')) found.adds.set('bos', value as boolean);
  const adds = Object.entries(files.facts.adds ?? {}).map(
    ([role, value]): GgufKey => ({ name: `tokenizer.ggml.add_${role}_token`, type: 'bool', value }),
  );
  const keys: GgufKey[] = [...ids].map(([role, value]) => ({
    name: `tokenizer.ggml.${idKeys[role]}`,
    type: 'u32',
    value,
  }));
  for (const [role, value] of found.adds)
    if (addable.includes(role)) keys.push({ name: `tokenizer.ggml.add_${role}_token`, type: 'bool', value });
  for (const template of files.templates) keys.push(template);
  const lowered = lowers(member(files.tokenizer, 'normalizer'));
  if (lowered || wish.normalizes === true)
    keys.push({ name: 'tokenizer.ggml.normalizer.lowercase', type: 'bool', value: lowered });
  const all = [...adds, ...keys, ...own.filter(({ name }) => !keys.some((key) => key.name === name))];
  const ends = arrayMember(files.generation, 'eos_token_id');
  for (const [role, id] of Object.entries(files.facts.roleIds?.(files.config, ends) ?? {})) {
    if (typeof id !== 'number' || !Number.isInteger(id) || id < 0 || id >= vocabulary.size) continue;
    all.push({ name: `tokenizer.ggml.${idKeys[role]}`, type: 'u32', value: id });
  }
  return all;
}

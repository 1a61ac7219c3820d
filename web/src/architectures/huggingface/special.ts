/**
 * Keys behind a vocabulary: ids of the tokens with a role, flags for those that the tokenizer adds, chat templates.
 * Reference: github.com/ggml-org/llama.cpp, gguf-py/gguf/vocab.py at 0c1c9d3.
 */
import { noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import { arrayMember, isObject, type Json, member, objectMember } from './json.js';
import type { TokenizerKeys } from './keys.js';
import type { TokenizerFiles } from './tokenizer-input.js';
import { addedTokens, isId, type Vocabulary } from './vocabulary.js';

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
function readTemplate({ texts, adds, roles: all }: RoleFacts, template: Json, hasSettings: boolean): void {
  const [single, pair] = [arrayMember(template, 'single'), arrayMember(template, 'pair')];
  const isLong = single.length > 1;
  const first = isLong ? entryOf(single[0], 'SpecialToken') : undefined;
  const last = isLong ? entryOf(single.at(-1), 'SpecialToken') : undefined;
  if (first !== undefined) adds.set('bos', !hasSettings || first === texts.get('bos') || first === texts.get('cls'));
  if (last !== undefined) {
    const old = texts.get('eos');
    if (hasSettings && last !== old) {
      // Make the last token the end of a text, and the former end of a text the end of a turn.
      const role = ['eot', 'eom'].find((name) => !all.includes(name));
      if (role !== undefined) all.push(role);
      if (role !== undefined && old !== undefined) texts.set(role, old);
      texts.set('eos', last);
    }
    adds.set('eos', true);
  }
  // Read the separator between two texts.
  const start = first !== undefined && entryOf(pair[0], 'SpecialToken') === first ? 1 : 0;
  const stop = last !== undefined && entryOf(pair.at(-1), 'SpecialToken') === last ? -1 : undefined;
  const inner = pair.slice(start, stop);
  const between = inner.slice(1, -1);
  if (entryOf(inner[0], 'Sequence') !== 'A' || entryOf(inner.at(-1), 'Sequence') !== 'B' || between.length === 0)
    return;
  const end = texts.get('eos');
  const separators = [texts.get('sep'), end];
  const separates = (entry: unknown) => {
    const text = entryOf(entry, 'SpecialToken');
    return text !== undefined && separators.includes(text);
  };
  const adding = (separates(between[0]) && last === undefined) || (between.length === 2 && separates(between[1]));
  adds.set('sep', adding);
  if (adding && !texts.has('sep') && end !== undefined) texts.set('sep', end);
}

/** Roles, their texts and added tokens, from tokenizer.json and tokenizer_config.json. */
function readRoles({ tokenizer, settings }: TokenizerFiles): RoleFacts {
  const found: RoleFacts = { texts: new Map(), adds: new Map(), roles: [...roles] };
  const { texts, adds } = found;
  for (const role of [...roles, 'eot', 'eom']) {
    // The text is a string, or an object holds it.
    const entry = member(settings, `${role}_token`);
    const text = isObject(entry) ? member(entry, 'content') : entry;
    if (typeof text === 'string' && text !== '') texts.set(role, text);
  }
  if (tokenizer !== undefined) {
    for (const [role, other] of [
      ['bos', 'cls'],
      ['eos', 'sep'],
    ] as const) {
      const text = texts.get(other);
      if (!texts.has(role) && text !== undefined) texts.set(role, text);
    }
    // Read the tokens that a post-processor adds.
    const post = objectMember(tokenizer, 'post_processor');
    const list = member(post, 'processors');
    for (const processor of (Array.isArray(list) ? (list as unknown[]) : [post]).filter(isObject)) {
      const type = member(processor, 'type');
      if (type === 'RobertaProcessing') for (const role of addable) adds.set(role, true);
      if (type === 'TemplateProcessing') readTemplate(found, processor, settings !== undefined);
    }
  }
  for (const role of found.roles) {
    const stated = member(settings, `add_${role}_token`);
    if (typeof stated === 'boolean') adds.set(role, stated);
  }
  return found;
}

/** Ids of the roles, in writing order: by their texts first, then by config.json. */
function roleIds(files: TokenizerFiles, { texts, roles: all }: RoleFacts, vocabulary: Vocabulary): Map<string, number> {
  const ids = new Map<string, number>();
  const put = (role: string, id: unknown) => {
    if (!isId(id) || ids.has(role)) return;
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
  const { endToken } = files.facts;
  if (endToken !== undefined) {
    const ends = Object.entries(objectMember(files.settings, 'added_tokens_decoder') ?? {});
    const named = ends.find(([, token]) => isObject(token) && member(token, 'content') === endToken)?.[0];
    const id = added.get(endToken) ?? Number(named);
    if (isId(id) && id < vocabulary.size) ids.set('eos', id);
  }
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

/** Defaults that depend on the kind of tokenizer. */
export interface SpecialWish {
  /** Default of add_bos if no file states it; undefined leaves it to the runtime. */
  readonly addsBos?: boolean;
  /** True if the runtime lowers the case of text unless a key forbids it. */
  readonly normalizes?: boolean;
}

/** Keys of the special tokens. */
export function specialKeys(files: TokenizerFiles, vocabulary: Vocabulary, wish: SpecialWish = {}): TokenizerKeys {
  const { facts, size, config, tokenizer } = files;
  const found = readRoles(files);
  const ids = roleIds(files, found, vocabulary);
  if (wish.addsBos !== undefined && !found.adds.has('bos')) found.adds.set('bos', wish.addsBos);
  const adds = [...Object.entries(facts.adds ?? {}), ...[...found.adds].filter(([role]) => addable.includes(role))];
  const lowered = lowers(member(tokenizer, 'normalizer'));
  // The converter of Llama knows the infill tokens of CodeLlama and text without a BOS token by the size of the vocabulary.
  const bySize = facts.usesLlamaConverter === true ? size : undefined;
  const infill = ['prefix', 'suffix', 'middle', 'eot'].map((role, i) => [`${role}_token_id`, 32007 + i]);
  const set = Object.entries(facts.roleIds?.(config, arrayMember(files.generation, 'eos_token_id')) ?? {});
  return Object.fromEntries([
    ...(bySize === 32016 ? infill : []),
    ...[...ids, ...set.filter(([, id]) => isId(id) && id < vocabulary.size)].map(([role, id]) => [idKeys[role], id]),
    ...adds.map(([role, value]) => [`add_${role}_token`, value]),
    ...(bySize === 49152 ? [['add_bos_token', false]] : []),
    ...(lowered || wish.normalizes === true ? [['normalizer.lowercase', lowered]] : []),
  ]);
}

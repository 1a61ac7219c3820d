/**
 * The vocabulary of PLaMo 2, a JSON array in each line of tokenizer.jsonl: a token, its score, and its kind.
 * Reference: conversion/base.py (_set_vocab_plamo) of Tippach/Franken-Llama 1774451. Tests compare with llama.cpp v0.5.0.
 */
import { show } from '../../core/show.js';
import { badConfig, badFolderFile } from './errors.js';
import { decodeText, member, parseJson } from './json.js';
import type { Tokenizer, TokenizerFiles } from './tokenizer-input.js';
import { addedScore, kinds, Vocabulary, vocabularyKeys } from './vocabulary.js';

export const plamoFile = 'tokenizer.jsonl';

/** Kinds by their names in the file. Others are normal tokens. */
const named = new Map([
  ['UNKNOWN', kinds.unknown],
  ['CONTROL', kinds.control],
  ['BYTE', kinds.byte],
]);

/** The token that ends a turn, whatever the files say. */
const turnEnd = 4;

export function plamoKeys({ settings, size }: TokenizerFiles, bytes: Uint8Array): Tokenizer {
  const lines = decodeText(plamoFile, bytes)
    .split('\n')
    .filter((line) => line.trim() !== '');
  if (lines.length > size) badConfig(`vocab_size is ${size}, but ${plamoFile} has ${lines.length} tokens`);
  const vocabulary = new Vocabulary(size);
  for (const [id, line] of lines.entries()) {
    const entry = parseJson(plamoFile, new TextEncoder().encode(line));
    const [text, score, kind]: readonly unknown[] = Array.isArray(entry) ? entry : [];
    if (typeof text !== 'string' || !Number.isFinite(Number(score)) || score === null)
      return badFolderFile(plamoFile, `line ${id + 1} has to be a token and its score, got ${show(entry)}`);
    const isControl = text.startsWith('<|plamo:') && text.endsWith('|>');
    const type = named.get(kind as string) ?? (isControl ? kinds.control : kinds.normal);
    vocabulary.put(plamoFile, id, { text, type, score: Number(score) });
  }
  // Fillers are counted by themselves.
  for (let id = lines.length; id < size; id++)
    vocabulary.set(id, { text: `[PAD${id - lines.length + 1}]`, type: kinds.unused, score: addedScore });
  vocabulary.check(plamoFile);
  const idOf = (role: string): number | undefined => {
    const token = member(settings, `${role}_token`);
    if (token === undefined) return undefined;
    const id = vocabulary.tokens.indexOf(token as string);
    return id >= 0 ? id : badFolderFile('tokenizer_config.json', `${role}_token ${show(token)} is no token`);
  };
  return {
    keys: {
      ...vocabularyKeys('plamo2', 'default', vocabulary),
      scores: vocabulary.scores,
      bos_token_id: idOf('bos'),
      eos_token_id: idOf('eos'),
      padding_token_id: idOf('pad'),
      seperator_token_id: idOf('sep'),
      unknown_token_id: idOf('unk'),
      eot_token_id: turnEnd,
      add_space_prefix: false,
    },
    notes: vocabulary.notes,
  };
}

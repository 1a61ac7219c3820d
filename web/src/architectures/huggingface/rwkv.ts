/**
 * The vocabulary of RWKV's world models: a number, a token as Python writes it, and its bytes in each line.
 * Reference: conversion/base.py of ggml-org/llama.cpp (_set_vocab_rwkv_world). Tests compare with llama.cpp v0.5.0.
 */
import { badConfig, badFolderFile } from './errors.js';
import { decodeText } from './json.js';
import { specialKeys } from './special.js';
import type { Tokenizer, TokenizerFiles } from './tokenizer-input.js';
import { kinds, Vocabulary, vocabularyKeys } from './vocabulary.js';

export const rwkvFile = 'rwkv_vocab_v20230424.txt';

/** The token "\n\n", which ends a turn. */
const turnEnd = 261;

const escapes: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', '\\': '\\', "'": "'", '"': '"' };

/** The bytes of a Python literal, of text or of bytes; undefined for anything else. */
function bytesOfLiteral(literal: string): Uint8Array | undefined {
  const [, ofBytes, , body] = /^(b?)(['"])(.*)\2$/s.exec(literal) ?? [];
  if (body === undefined) return undefined;
  let isBad = false;
  const text = body.replace(/\\(x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8}|.)|\\$/gs, (_, code: string = '') => {
    const [, kind, digits = ''] = /^([xuU])([\da-fA-F]+)$/.exec(code) ?? [];
    const value = Number.parseInt(digits, 16);
    const isOwn = kind === 'x' || ofBytes === '';
    if (escapes[code] !== undefined) return escapes[code];
    if (isOwn && value <= 0x10ffff) return String.fromCodePoint(value);
    isBad = true;
    return '';
  });
  if (isBad) return undefined;
  if (ofBytes === '') return new TextEncoder().encode(text);
  const bytes = Array.from(text, (character) => character.charCodeAt(0));
  return bytes.every((byte) => byte < 256) ? Uint8Array.from(bytes) : undefined;
}

/** Bytes as Python writes them between quotes, which llama.cpp reads. */
function written(bytes: Uint8Array): string {
  // Python takes double quotes for bytes with single ones alone.
  const quote = bytes.includes(39) && !bytes.includes(34) ? 34 : 39;
  return Array.from(bytes, (byte) => {
    const named = { 9: '\\t', 10: '\\n', 13: '\\r', 92: '\\\\', [quote]: `\\${String.fromCharCode(quote)}` }[byte];
    if (named !== undefined) return named;
    return byte >= 32 && byte < 127 ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, '0')}`;
  }).join('');
}

export function rwkvKeys(files: TokenizerFiles, bytes: Uint8Array): Tokenizer {
  const { size } = files;
  const lines = decodeText(rwkvFile, bytes).replace(/\n$/, '').split('\n');
  if (lines.length >= size) badConfig(`vocab_size is ${size}, but ${rwkvFile} has ${lines.length} tokens behind <s>`);
  const vocabulary = new Vocabulary(size);
  vocabulary.set(0, { text: '<s>', type: kinds.control });
  for (const [i, line] of lines.entries()) {
    const [, number, literal = '', count] = /^(\d+) (.+) (\d+)\r?$/s.exec(line) ?? [];
    const token = bytesOfLiteral(literal);
    if (token === undefined || token.length !== Number(count) || Number(number) !== i + 1)
      return badFolderFile(rwkvFile, `line ${i + 1} has to be ${i + 1}, a token as Python writes it, and its bytes`);
    vocabulary.set(i + 1, { text: written(token), type: kinds.normal });
  }
  const { pre: _, ...keys } = vocabularyKeys('rwkv', '', vocabulary);
  const { add_bos_token: __, ...special } = specialKeys(files, vocabulary);
  return {
    keys: { ...keys, ...special, ...(turnEnd < size && { eot_token_id: turnEnd }) },
    notes: vocabulary.notes,
  };
}

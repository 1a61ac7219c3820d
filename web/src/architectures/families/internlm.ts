/**
 * InternLM 2 and 3, whose architecture in llama.cpp is that of Llama since the third.
 * Reference: conversion/internlm.py of Tippach/Franken-Llama 1774451. Tests compare with llama.cpp v0.5.0.
 */
import { decoderDefaults, type ModelClass, siluSettings } from '../huggingface/reading.js';
import type { Row, RowsOf, ViewOf } from '../huggingface/tensors.js';
import { llamaKeys, llamaTable } from './llama.js';
import { viewFrom } from './rows.js';

/** Queries that share a key, the key and its value, group by group; llama.cpp rotates neighbors, Hugging Face halves. */
const turned =
  (isKey: boolean): ViewOf =>
  ({ heads, keyHeads, head, hidden }) => {
    const shared = heads / keyHeads;
    const row = [
      [head / 2, hidden],
      [2, (head / 2) * hidden],
      [hidden, 1],
    ] as const;
    const group = [keyHeads, (shared + 2) * head * hidden] as const;
    return isKey
      ? viewFrom(shared * head * hidden, group, ...row)
      : viewFrom(0, group, [shared, head * hidden], ...row);
  };
const valueRows: RowsOf = ({ heads, keyHeads, head }) =>
  Array.from({ length: keyHeads }, (_, i) => [((i + 1) * (heads / keyHeads + 2) - 1) * head, head] as const);

const grouped: Row = {
  from: 'attention.wqkv',
  to: '',
  shape: ['together', 'hidden'],
  shares: [
    { to: 'attn_q', shape: ['queries', 'hidden'], view: turned(false) },
    { to: 'attn_k', shape: ['keys', 'hidden'], view: turned(true) },
    { to: 'attn_v', shape: ['keys', 'hidden'], windows: valueRows },
  ],
};

const settings = { ...siluSettings, bias: [false], qkv_bias: [false] };

const internlm2: ModelClass = {
  architecture: 'internlm2',
  classes: {
    InternLM2ForCausalLM: decoderDefaults([4096, 11008, 32], [32, 32], 2048, { tie_word_embeddings: false }),
  },
  endToken: '<|im_end|>',
  only: settings,
  decoder: { plainHeads: true },
  scaling: ['linear', 'dynamic'],
  ties: false,
  table: {
    outside: [
      { from: 'model.tok_embeddings', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
      { from: 'model.norm', to: 'output_norm', shape: ['hidden'] },
      { from: 'output', to: 'output', shape: ['vocabulary', 'hidden'] },
    ],
    layer: [
      { from: 'attention_norm', to: 'attn_norm', shape: ['hidden'] },
      { from: 'ffn_norm', to: 'ffn_norm', shape: ['hidden'] },
      grouped,
      { from: 'attention.wo', to: 'attn_output', shape: ['hidden', 'queries'] },
      { from: 'feed_forward.w1', to: 'ffn_gate', shape: ['feedForward', 'hidden'] },
      { from: 'feed_forward.w3', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
      { from: 'feed_forward.w2', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
    ],
  },
};

const internlm3: ModelClass = {
  architecture: 'llama',
  traits: { pairs: 'neighbors' },
  classes: { InternLM3ForCausalLM: decoderDefaults([4096, 11008, 32], [32, 32], 32768) },
  endToken: '<|im_end|>',
  only: settings,
  // Beyond its context, transformers grows the base, which llama.cpp does not.
  scaling: ['linear', 'yarn', 'dynamic'],
  table: llamaTable,
  details: (draft) => ({ keys: llamaKeys(draft) }),
};

export const internlmFamily: readonly ModelClass[] = [internlm2, internlm3];

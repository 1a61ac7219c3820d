/**
 * Types chosen by the patched llama-quantize of ComfyUI-GGUF. All blocks of a model count alike.
 * Reference: github.com/city96/ComfyUI-GGUF, tools/lcpp.patch at 795e451 (a patch of llama.cpp b3962).
 */

import { ggmlType } from '../../formats/gguf/contents.js';
import { type FileType, fileTypes, type TargetType } from '../../formats/gguf/targets.js';

type Class = 'value' | 'query, key and value' | 'down';

const has = (...parts: string[]) => {
  return (name: string) => parts.some((part) => name.includes(part));
};

/** Classes of tensors by their names. The first match decides. */
const classes: readonly (readonly [Class, (name: string) => boolean])[] = [
  [
    'value',
    has(
      'attn_v.weight',
      '.to_v.weight',
      '.v.weight',
      '.attn.w1v.weight',
      '.attn.w2v.weight',
      '_attn.v_proj.weight',
      '.add_v_proj.weight',
    ),
  ],
  ['query, key and value', has('attn_qkv.weight', 'attn.qkv.weight', 'attention.qkv.weight')],
  [
    'down',
    has(
      'ffn_down',
      '.ffn.2.weight',
      '.ff.net.2.weight',
      '.mlp.layer2.weight',
      '.adaln_modulation_mlp.2.weight',
      '.feed_forward.w2.weight',
      '.img_mlp.net.2.weight',
      '.txt_mlp.net.2.weight',
    ),
  ],
  ['down', (name) => name.includes('experts.') && name.includes('.w2.weight')],
];

/** Type of each class of tensors, by file type. */
const ofClass: Readonly<Record<Class, Readonly<Partial<Record<FileType, TargetType>>>>> = {
  value: { Q2_K: 'Q3_K', Q3_K_L: 'Q5_K', Q4_K_M: 'Q6_K', Q5_K_M: 'Q6_K' },
  'query, key and value': { Q3_K_M: 'Q4_K', Q3_K_L: 'Q4_K', Q4_K_M: 'Q5_K', Q5_K_M: 'Q6_K' },
  down: {
    Q3_K_M: 'Q4_K',
    Q3_K_L: 'Q5_K',
    Q4_K_S: 'Q5_K',
    Q4_K_M: 'Q6_K',
    Q5_K_M: 'Q6_K',
    Q4_0: 'Q4_1',
    Q5_0: 'Q5_1',
  },
};

/** Types of the first and the last block of Qwen-Image. */
const ofQwenEnds: Readonly<Partial<Record<FileType, TargetType>>> = {
  Q2_K: 'Q4_K',
  Q3_K_S: 'Q4_K',
  Q3_K_M: 'Q4_K',
  Q3_K_L: 'Q4_K',
  Q4_K_M: 'Q5_K',
  Q5_K_M: 'Q6_K',
};
const isQwenEnd = has('transformer_blocks.0.', 'transformer_blocks.59.');

/** Chooses types for tensors. It counts them, so they must come in the order of the file. */
export class DiffusionMixture {
  readonly #architecture: string;
  readonly #fileType: FileType;
  #values = 0;

  constructor(architecture: string, fileType: FileType) {
    this.#architecture = architecture;
    this.#fileType = fileType;
  }

  typeOf(name: string): TargetType {
    const [found] = classes.find(([, matches]) => matches(name)) ?? [];
    const seen = found === 'value' ? this.#values++ : 0;
    if (this.#architecture === 'qwen_image' && isQwenEnd(name)) {
      const type = ofQwenEnds[this.#fileType];
      if (type !== undefined) return type;
    }
    const { base } = fileTypes[this.#fileType];
    if (found === undefined) return base;
    if (found === 'value') {
      if (this.#fileType === 'Q3_K_M') return seen < 2 ? 'Q5_K' : 'Q4_K';
      if (this.#fileType === 'Q4_K_S' && seen < 4) return 'Q5_K';
    }
    return ofClass[found][this.#fileType] ?? base;
  }
}

/** The type itself if its blocks fit the rows, otherwise F16. */
export function fitting(type: TargetType, shape: readonly number[]): TargetType {
  return (shape.at(-1) ?? 1) % ggmlType(type).elements === 0 ? type : 'F16';
}

/**
 * Recognizes ONNX models, and names results as transformers.js expects.
 * Reference: github.com/huggingface/transformers.js, packages/transformers/src/utils/dtypes.js at 5ed4c5c.
 */
import { targets } from './targets.js';

/** Tags of possible first fields of a model: numbers, and bytes. */
const numberTags: readonly number[] = [0x08, 0x28];
const bytesTags: readonly number[] = [0x12, 0x1a, 0x22, 0x32, 0x3a, 0x42, 0x72];

/** Recognizes the first two fields of a model. */
function isModel(head: Uint8Array): boolean {
  const [tag, value = 0x80, next] = head;
  if (tag === 0x08) return value > 0 && isField(head[2 + head.subarray(1).findIndex((byte) => byte < 0x80)]);
  if (tag === undefined || value >= 0x80) return tag === 0x3a && hasGraph(head);
  // opset_import and a graph begin with an inner tag.
  if (tag === 0x42) return next === 0x0a || next === 0x10;
  if (tag === 0x3a) return hasGraph(head);
  // Skip other texts, up to the next field.
  const behind = head[2 + value];
  return bytesTags.includes(tag) && behind !== undefined && isTag(behind);
}

/** True if the field begins like a graph: with a node, its name, or a tensor. */
function hasGraph(head: Uint8Array): boolean {
  const inner = head[2 + head.subarray(1).findIndex((byte) => byte < 0x80)];
  return inner === 0x0a || inner === 0x12 || inner === 0x2a;
}

/** True if the byte behind the version is the tag of a field, of any wire type, or the head ends there. */
function isField(byte: number | undefined): boolean {
  return byte === undefined || (byte >> 3 > 0 && byte >> 3 <= 8) || byte >> 3 === 14;
}

function isTag(byte: number): boolean {
  return numberTags.includes(byte) || bytesTags.includes(byte);
}

/**
 * The dtype of transformers.js 3 that loads a file of this name; undefined for types that it does not know. Reference: the package
 * @huggingface/transformers 3.8.1, src/utils/dtypes.js.
 */
export function dtypeOfName(file: string): string | undefined {
  const target = targets.find(({ name, ending = name }) => file.endsWith(`_${ending}.onnx`));
  return target === undefined ? 'fp32' : /-|q2/.test(target.name) ? undefined : target.name;
}

export const onnxSignature = {
  name: 'onnx',
  label: 'ONNX',
  files: 'ONNX',
  extensions: ['.onnx'],
  resultEnd: (to: string) => `_${targets.find(({ name }) => name === to)?.ending ?? to}.onnx`,
  sniff: isModel,
  takesData: true,
} as const;

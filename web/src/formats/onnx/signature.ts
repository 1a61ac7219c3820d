/**
 * Recognizes ONNX models, and names results as transformers.js expects.
 * Reference: github.com/huggingface/transformers.js, packages/transformers/src/utils/dtypes.js at 5ed4c5c.
 */
import { targets } from './targets.js';

/** Tags of possible first fields of a model: numbers, and bytes. */
const numberTags: readonly number[] = [0x08, 0x28];
const bytesTags: readonly number[] = [0x12, 0x1a, 0x22, 0x32, 0x3a, 0x42, 0x72];

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
  // Recognize the first two fields of a model.
  sniff(head: Uint8Array): boolean {
    const [tag = 0, value = 0x80, next] = head;
    const behind = head[2 + head.subarray(1).findIndex((byte) => byte < 0x80)];
    // Behind the version comes the tag of a field, of any wire type, or the head ends there.
    const field = (behind ?? 8) >> 3;
    if (tag === 0x08) return value > 0 && ((field > 0 && field <= 8) || field === 14);
    // A graph begins with a node, its name, or a tensor.
    if (tag === 0x3a) return behind === 0x0a || behind === 0x12 || behind === 0x2a;
    if (value >= 0x80) return false;
    // opset_import begins with an inner tag.
    if (tag === 0x42) return next === 0x0a || next === 0x10;
    // Skip other texts, up to the next field.
    const after = head[2 + value];
    return bytesTags.includes(tag) && after !== undefined && [...numberTags, ...bytesTags].includes(after);
  },
  takesData: true,
} as const;

/** Names folders for transformers.js. */
export const onnxFolderSignature = {
  name: 'onnx-folder',
  label: 'transformers.js',
  files: 'ONNX',
  extensions: [] as readonly string[],
  isFolder: true,
  isNamedByModel: true,
  /** `model` with the target `onnx:q4` becomes `model-q4-ONNX`. */
  resultEnd: (to: string) => `-${to.replace(/^onnx:/, '')}-ONNX`,
} as const;

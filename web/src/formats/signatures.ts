/** Recognizes formats and names their results, without loading the code that plans and converts. */
import type { Format } from './format.js';
import { ggufSignature } from './gguf/signature.js';
import { mlcSignature } from './mlc/signature.js';
import { npySignature } from './npy/signature.js';
import { onnxFolderSignature, onnxSignature } from './onnx/signature.js';
import { pytorchSignature } from './pytorch/signature.js';
import { safetensorsSignature } from './safetensors/signature.js';

/** The members of a format that recognize and name its files. */
export type FormatSignature = Pick<
  Format,
  | 'name'
  | 'label'
  | 'files'
  | 'extensions'
  | 'resultEnd'
  | 'ownName'
  | 'isNamedByModel'
  | 'isFolder'
  | 'magic'
  | 'sniff'
  | 'resembles'
  | 'index'
  | 'takesData'
  | 'takesSplits'
  | 'folderNames'
  | 'isLastChoice'
>;

const all: FormatSignature[] = [
  safetensorsSignature,
  ggufSignature,
  onnxSignature,
  npySignature,
  pytorchSignature,
  mlcSignature,
  onnxFolderSignature,
];

/** The signature of every format, in the order in which texts name them. */
export const signatures: readonly FormatSignature[] = all;

/** The signature of the format of that name. */
export function signatureNamed(name: string): FormatSignature {
  const signature = all.find((known) => known.name === name);
  if (signature === undefined) throw new Error(`unknown format: ${name}`);
  return signature;
}

/** Adds a signature. Returns a function that removes it. */
export function registerSignature(signature: FormatSignature): () => void {
  all.push(signature);
  return () => void all.splice(all.indexOf(signature), 1);
}

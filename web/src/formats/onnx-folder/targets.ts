/**
 * The dtypes of transformers.js, and the names of their files in the folder `onnx`.
 * Reference: npm @huggingface/transformers 4.3.2, src/utils/dtypes.js.
 */
import type { Target } from '../format.js';
import { type OnnxTarget, targetNamed } from '../onnx/targets.js';

/** Beginning of the names of targets. */
const prefix = 'onnx:';

const table = {
  fp32: 'transformers.js: float32',
  fp16: 'transformers.js: float16',
  q8: 'transformers.js: 8 bits, multiplied as integers',
  int8: 'transformers.js: the same with a sign',
  uint8: 'transformers.js: the same with zero points',
  q4: 'transformers.js: 4 bits in blocks',
  q4f16: 'transformers.js: q4, with everything else in float16',
  bnb4: 'transformers.js: 4-bit floats (NF4) in blocks',
  'q8-blocks': 'transformers.js: 8 bits in blocks, also on WebGPU',
} as const satisfies Readonly<Partial<Record<OnnxTarget | 'fp32', string>>>;

/** A dtype, and `q8-blocks`, which transformers.js loads as fp32 from a file of another name. */
type Dtype = keyof typeof table;

/** A target of a folder for transformers.js. */
export type OnnxFolderTarget = `${typeof prefix}${Dtype}`;

/** Facts about the file that a target makes. */
export interface DtypeFacts {
  /** The target of ONNX files that makes it; undefined for float32. */
  readonly target: OnnxTarget | undefined;
  /** Name of the model without its ending. */
  readonly stem: string;
  /** The dtype with which transformers.js finds it under its stem. */
  readonly dtype: string;
}

/** The facts of a target. */
export function dtypeFacts(to: string): DtypeFacts {
  const name = to.slice(prefix.length) as Dtype;
  if (name === 'fp32') return { target: undefined, stem: 'model', dtype: name };
  const { ending = name } = targetNamed(name) as { readonly ending?: string };
  return { target: name, stem: `model_${ending}`, dtype: name === 'q8-blocks' ? 'fp32' : name };
}

/** Options of ONNX files that have no meaning in folders: config.json is written anyway, and large weights lie outside. */
const inFiles: readonly string[] = ['externalData'];

export const onnxFolderTargets: readonly Target[] = (Object.keys(table) as Dtype[]).map((name) => {
  const options = name === 'fp32' ? ['nonFinite'] : targetNamed(name).options.filter((one) => !inFiles.includes(one));
  return { name: prefix + name, about: table[name], options: [...options, 'requantize'] };
});

/** Names of results. */
import { rangeError, typeError } from '../core/errors.js';
import { oneOf } from '../core/option-problem.js';
import { signatureNamed, signatures } from '../formats/signatures.js';

/** Names that programs give every model. They say nothing about it. */
export const usualNames = /^(model|pytorch_model|diffusion_pytorch_model|adapter_model)(?=$|[._-])/i;

/**
 * The usual name of a result: `model.safetensors` as int8 becomes `model.int8.safetensors`. A copy has the name of the whole model, without
 * the number of a file. GGUF files and folders are named after the model: `tiny/model.safetensors` as Q4_K_M becomes `tiny-Q4_K_M.gguf`.
 * @param name the name of the input, or its path from the folder above that of the model
 * @param options the target, and the format of the result as reports call it; `architecture` of its plan, for the name that llama.cpp's
 *   converter gives a vision tower
 * @example resultName('model.onnx', { to: 'q4', format: 'onnx' }); // model_q4.onnx
 * @throws TypeError or RangeError naming the argument
 */
export function resultName(
  name: string,
  options: { readonly to: string; readonly format: string; readonly architecture?: string | undefined },
): string {
  if (typeof name !== 'string') throw typeError('name', { kind: 'text', examples: ['model.safetensors'] }, name);
  if (typeof options !== 'object' || options === null) {
    throw typeError('options', { kind: 'object', keys: ['to', 'format'] }, options);
  }
  const { to, format, architecture } = options;
  if (typeof to !== 'string') throw typeError('to', { kind: 'text', examples: ['int8'] }, to);
  if (to === '') throw rangeError('to', { kind: 'required' }, to);
  const formats = signatures.map((signature) => signature.name);
  if (!formats.includes(format)) throw rangeError('format', oneOf(formats), format);
  const ends = signatures.flatMap(({ extensions }) => extensions).sort((a, b) => b.length - a.length);
  const end = ends.find((extension) => name.toLowerCase().endsWith(extension)) ?? '';
  const { resultEnd, ownName, extensions, isNamedByModel } = signatureNamed(format);
  const [file = '', folder] = name.split(/[\\/]/).reverse();
  const ownStem = file.slice(0, file.length - end.length).replace(/-\d{5,}-of-\d{5,}$/, '');
  const stem = isNamedByModel && folder ? ownStem.replace(usualNames, () => folder) : ownStem;
  const own = architecture === undefined ? undefined : ownName?.(stem, to, architecture);
  return own ?? stem + (to === 'copy' ? extensions[0] : (resultEnd?.(to) ?? `.${to}${extensions[0]}`));
}

/** Names of results. */
import { signatureNamed, signatures } from '../formats/signatures.js';

/**
 * The usual name of a result: `model.safetensors` as int8 becomes `model.int8.safetensors`. A copy has the name of the whole model, without
 * the number of a file.
 * @param name the name of the input
 * @param options the target, and the format of the result as reports call it
 * @example resultName('model.onnx', { to: 'q4', format: 'onnx' }); // model_q4.onnx
 */
export function resultName(name: string, options: { readonly to: string; readonly format: string }): string {
  const { to, format } = options;
  const ends = signatures()
    .flatMap(({ extensions }) => extensions)
    .sort((a, b) => b.length - a.length);
  const end = ends.find((extension) => name.toLowerCase().endsWith(extension)) ?? '';
  const { resultEnd, extensions } = signatureNamed(format);
  const stem = name.slice(0, name.length - end.length).replace(/-\d{5,}-of-\d{5,}$/, '');
  return stem + (to === 'copy' ? extensions[0] : (resultEnd?.(to) ?? `.${to}${extensions[0]}`));
}

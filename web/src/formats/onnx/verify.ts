/** Compares ONNX models with their config.json. */
import type { Finding, LogicalTensor } from '../format.js';
import { cacheTypeIn } from './config.js';
import type { OnnxModel } from './file/model.js';
import { isPast } from './graph/caches.js';
import type { OnnxSidecars } from './options.js';
import { dtypeOfName } from './signature.js';

/** Types of caches by their numbers in ONNX. */
const types: Readonly<Record<number, string>> = { 1: 'float32', 10: 'float16' };

/** Findings about the type of caches, which transformers.js 3 takes from config.json. */
export function verifyOnnx(
  { proto: { graph }, files: [file] }: OnnxModel,
  _tensors: readonly LogicalTensor[],
  { config }: OnnxSidecars,
): Finding[] {
  const type = types[graph.inputs.find(isPast)?.type ?? 0];
  const dtype = dtypeOfName(file?.name ?? '');
  if (config === undefined || type === undefined || dtype === undefined) return [];
  const stated = cacheTypeIn(config, dtype);
  if ((stated ?? 'float32') === type) return [];
  const text = `caches are ${type}, and config.json says ${stated ?? 'nothing'} of ${dtype} to transformers.js 3`;
  // Version 4 reads the type from the model.
  const severity = stated === undefined ? 'note' : 'problem';
  return [{ severity, kind: 'cacheType', text, dtype, type, stated }];
}

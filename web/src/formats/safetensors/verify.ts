/** Compares the tensors of a safetensors model with each other, with its config.json and with its index. */
import { show } from '../../core/show.js';
import type { Finding, LogicalTensor, OpenModel } from '../format.js';
import { methodIn } from './config.js';
import { cutUnits } from './keep.js';
import { type CodedLayout, type Fields, isFields, noteFound, problemFound } from './layouts/layout.js';
import { codedLayoutOf, layouts } from './layouts/registry.js';
import type { SafetensorsSidecars } from './options.js';

/** The layout that compares the configurations of a method; undefined for methods that are not known here. */
const checkerOf = (method: unknown): CodedLayout | undefined =>
  layouts.find(({ quantMethods, verify }) => verify !== undefined && quantMethods?.includes(method as string));

/** Findings about contradictions in a model. Offsets, sizes and names have been checked on opening. */
export function verifySafetensors(
  model: OpenModel & { readonly index?: { readonly metadata: Fields } },
  tensors: readonly LogicalTensor[],
  { config }: SafetensorsSidecars,
): Finding[] {
  // Find parts that do not form a tensor: scales of a wrong shape, codes without scales.
  const stored = new Set(model.tensors.map(({ name }) => name));
  const found = tensors.flatMap(({ name: tensor, type, form }): Finding[] => {
    const [, base = '', part] = /^(.*)_(packed|scale|zero_point)$/s.exec(tensor) ?? [];
    if (part === undefined || codedLayoutOf(form) !== undefined) return [];
    if (part === 'packed' && type === 'I32')
      return [problemFound('packedAlone', 'the packed codes have no scale and shape that fit them', { tensor })];
    const codes = [base, `${base}_packed`].find((one) => stored.has(one));
    if (codes === undefined) return [];
    return [problemFound('partMisfit', `it does not fit the codes of ${show(codes)}`, { tensor, codes })];
  });
  // Compare weights that loaders join, which need one scheme.
  for (const names of cutUnits(tensors)) {
    const some = `${names.slice(0, 3).map(show).join(', ')}${names.length > 3 ? ' and others' : ''}`;
    const text = `loaders join ${some}, whose codes differ; vLLM refuses them`;
    found.push(problemFound('schemesDiffer', text, { tensors: names }));
  }
  // Compare the size stated by an index. A wrong one is harmless, because loaders do not use it.
  const stated = model.index?.metadata.total_size;
  const actual = model.tensors.reduce((sum, { bytes }) => sum + bytes, 0);
  if (stated !== undefined && (typeof stated === 'string' ? Number(stated) : stated) !== actual) {
    const text = `the index says that the tensors have ${show(stated)} bytes, but they have ${actual}`;
    found.push(noteFound('indexDiffers', text, { stated, actual }));
  }
  // Files of some layouts describe their codes themselves, and configurations of others are not compared.
  const coded = tensors.filter(({ form }) => codedLayoutOf(form)?.quantMethods?.some(checkerOf));
  const holdCodes = coded.length === 1 ? 'a tensor holds' : `${coded.length} tensors hold`;
  // Compare them with config.json.
  if (config === undefined) {
    const text = `${holdCodes} codes; the config.json that says so was not checked`;
    return coded.length === 0 ? found : [...found, noteFound('configNotGiven', text)];
  }
  const { quantization_config: quantization } = config;
  if (!isFields(quantization)) {
    const text = `config.json has no quantization_config, but ${holdCodes} codes`;
    return coded.length === 0 ? found : [...found, problemFound('noConfig', text)];
  }
  const method = methodIn(config);
  const layout = checkerOf(method);
  if (layout === undefined) {
    const text = `config.json names the method ${show(method)}, which is not known here and was not checked`;
    return [...found, noteFound('unknownMethod', text, { method })];
  }
  if (coded.length === 0)
    return [...found, problemFound('noCodes', 'config.json has a quantization_config, but no tensor holds codes')];
  const described = coded.filter(({ form }) => codedLayoutOf(form) === layout);
  return [...found, ...(layout.verify?.(described, quantization) ?? [])];
}

/** Compares the tensors of a safetensors model with each other, with its config.json and with its index. */
import { show } from '../../core/show.js';
import type { Finding, LogicalTensor, OpenModel } from '../format.js';
import { methodIn } from './config.js';
import { cutUnits } from './fused.js';
import { noteFound, problemFound } from './layouts/findings.js';
import type { Fields } from './layouts/layout.js';
import { codedLayoutOf, isCoded, layouts } from './layouts/registry.js';
import type { SafetensorsSidecars } from './options.js';
import { isFields } from './stored-model.js';

// ------------------------------------------------------------------------------------------------------------------------ tensors

/** Findings for parts that do not form a tensor: scales of a wrong shape, codes without scales. */
function strayParts(model: OpenModel, tensors: readonly LogicalTensor[]): Finding[] {
  const stored = new Set(model.tensors.map(({ name }) => name));
  // Skip parts of codes.
  const alone = tensors.filter((tensor) => !isCoded(tensor));
  return alone.flatMap(({ name, type }) => {
    const [, base = '', part] = /^(.*)_(packed|scale|zero_point)$/s.exec(name) ?? [];
    if (part === 'packed' && type === 'I32') {
      return [problemFound('packedAlone', 'the packed codes have no scale and shape that fit them', { tensor: name })];
    }
    const codes = [base, `${base}_packed`].find((one) => stored.has(one));
    return part === undefined || codes === undefined
      ? []
      : [problemFound('partMisfit', `it does not fit the codes of ${show(codes)}`, { tensor: name, codes })];
  });
}

// -------------------------------------------------------------------------------------------------------------------- config.json

const counted = (coded: readonly LogicalTensor[]) =>
  coded.length === 1 ? 'a tensor holds' : `${coded.length} tensors hold`;

/** True for a method whose configurations are compared. */
const isChecked = (method: string) =>
  layouts.some(({ quantMethods, verify }) => verify !== undefined && quantMethods?.includes(method));

function compareWithConfig(coded: readonly LogicalTensor[], config: Fields): Finding[] {
  const { quantization_config: quantization } = config;
  if (!isFields(quantization)) {
    return coded.length === 0
      ? []
      : [problemFound('noConfig', `config.json has no quantization_config, but ${counted(coded)} codes`)];
  }
  const method = methodIn(config);
  const layout = layouts.find(
    ({ quantMethods, verify }) => quantMethods?.includes(method as string) && verify !== undefined,
  );
  if (layout === undefined) {
    const text = `config.json names the method ${show(method)}, which is not known here and was not checked`;
    return [noteFound('unknownMethod', text, { method })];
  }
  if (coded.length === 0)
    return [problemFound('noCodes', 'config.json has a quantization_config, but no tensor holds codes')];
  const own = coded.filter(({ form }) => codedLayoutOf(form) === layout);
  return [...(layout.verify?.(own, quantization) ?? [])];
}

// -------------------------------------------------------------------------------------------------------------------------- index

/** Compares the size stated by an index. A wrong one is harmless, because loaders do not use it. */
function compareWithIndex(model: OpenModel & { readonly index?: { readonly metadata: Fields } }): Finding[] {
  const stated = model.index?.metadata.total_size;
  const size = model.tensors.reduce((sum, { bytes }) => sum + bytes, 0);
  if (stated === undefined || (typeof stated === 'string' ? Number(stated) : stated) === size) return [];
  const text = `the index says that the tensors have ${show(stated)} bytes, but they have ${size}`;
  return [noteFound('indexDiffers', text, { stated, actual: size })];
}

/** Compares weights that loaders join, which need one scheme. */
const differentSchemes = (tensors: readonly LogicalTensor[]): Finding[] =>
  cutUnits(tensors).map((names) => {
    const text = `loaders join ${names.slice(0, 3).map(show).join(', ')}${names.length > 3 ? ' and others' : ''}, whose codes differ; vLLM refuses them`;
    return problemFound('schemesDiffer', text, { tensors: names });
  });

/** Findings about contradictions in a model. Offsets, sizes and names have been checked on opening. */
export function verifySafetensors(
  model: OpenModel,
  tensors: readonly LogicalTensor[],
  { config }: SafetensorsSidecars,
): Finding[] {
  // Files of some layouts describe their codes themselves, and configurations of others are not compared.
  const coded = tensors.filter(({ form }) => codedLayoutOf(form)?.quantMethods?.some(isChecked));
  const found = [...strayParts(model, tensors), ...differentSchemes(tensors), ...compareWithIndex(model)];
  if (config !== undefined) return [...found, ...compareWithConfig(coded, config)];
  if (coded.length === 0) return found;
  const text = `${counted(coded)} codes; the config.json that says so was not checked`;
  return [...found, noteFound('configNotGiven', text)];
}

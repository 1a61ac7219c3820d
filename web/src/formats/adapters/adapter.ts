/** Reads adapters (LoRA): pairs of narrow matrices whose products are added to weights. */

import { ScalepointError } from '../../core/errors.js';
import { show } from '../../core/show.js';
import { floatsIn } from '../codecs/floats-in.js';
import { grouped, quoted } from '../files/bytes.js';
import { readNeighbors } from '../files/neighbors.js';
import type { OpenModel, SourceTensor } from '../format.js';
import { MatchingWork, NamePattern } from '../name-pattern.js';
import { type Fields, isFields } from '../safetensors/layouts/layout.js';
import { type AdapterPart, adapterMeaning } from './names.js';

/** The matrices for one layer. */
export interface AdapterLayer {
  /** Name of the layer as the file spells it. */
  readonly module: string;
  readonly down: SourceTensor;
  readonly up: SourceTensor;
  readonly middle: SourceTensor | undefined;
  /** DoRA: the magnitudes (norms) of the rows of the sum. */
  readonly magnitude: SourceTensor | undefined;
  /** True if both matrices are transposes, as for the weights of embeddings and of layers [inputs, outputs]. */
  readonly turned: boolean;
  readonly alpha: number;
  /** True if alpha is divided by the root of the rank. */
  readonly root: boolean;
}

/** An adapter. */
export interface Adapter {
  /** Name of its file, for messages. */
  readonly name: string;
  readonly strength: number;
  readonly layers: readonly AdapterLayer[];
  /** Tensors that take the place of those of the model, by the names that the adapter has for them (PEFT's modules_to_save). */
  readonly whole: readonly { readonly name: string; readonly tensor: SourceTensor }[];
}

/** Fails because of an adapter. @throws ScalepointError `BAD_FILE`, or another code */
export function badAdapter(
  name: string,
  message: string,
  tensor?: Pick<SourceTensor, 'name' | 'byteOffset'>,
  code: 'BAD_FILE' | 'UNKNOWN_FORMAT' = 'BAD_FILE',
): never {
  const place = { tensor: tensor?.name, byteOffset: tensor?.byteOffset };
  throw new ScalepointError(code, `adapter ${quoted(name)}: ${message}`, place);
}

/** The file of PEFT with the facts that names and shapes leave open. */
const adapterConfig = 'adapter_config.json';

/** Key of the metadata in which diffusers keeps the configurations of its models, with the names of the models as prefixes. */
const diffusersKey = 'lora_adapter_metadata';

/** Prefix of the layers of PEFT's models, which are not part of the model's names. */
const peftPrefix = 'base_model.model.';

/** Members of a configuration that are used. */
interface AdapterSettings {
  /** The alpha of a layer. */
  alphaOf(module: string): number;
  readonly root: boolean;
  /** True if weights are stored as [inputs, outputs], as those of GPT-2 are. */
  readonly turned: boolean;
  /** True with magnitudes of rows (DoRA). */
  readonly dora: boolean;
}

/** Initializations that change the weights of the model, so that the adapter fits only these. */
const changedBase: readonly string[] = ['pissa', 'olora', 'corda', 'loftq', 'lora_ga'];

/** Most entries of alpha_pattern: more than a model has layers to adapt. */
const mostAlphas = 5000;

type Fail = (message: string, tensor?: SourceTensor) => never;

/** Reads the members of a configuration. @param fail names their place */
function adapterSettings(config: Fields, fail: Fail): AdapterSettings {
  const { peft_type: type, init_lora_weights: given, alpha_pattern: pattern } = config;
  const refuseKind = (kind: string) => fail(`adapters of the kind ${kind} are not merged here`);
  const numberOf = (value: unknown, name: string) =>
    typeof value === 'number' && Number.isFinite(value)
      ? value
      : fail(`${name} is ${value === undefined ? 'missing' : show(value)} in place of a number`);
  if (type !== undefined && type !== 'LORA') refuseKind(typeof type === 'string' ? type.slice(0, 40) : show(type));
  if (config.lora_bias === true) refuseKind('LoRA with biases');
  const init = typeof given === 'string' ? given.toLowerCase() : '';
  const changed = changedBase.find((name) => init.startsWith(name));
  if (changed !== undefined)
    fail(`init_lora_weights is ${changed}, which changes the weights of the model; convert the adapter to a plain one`);
  const alpha = numberOf(config.lora_alpha, 'lora_alpha');
  // Keys are expressions for the ends of layers' names, as PEFT matches them. Each may be compared with each layer.
  const patterns = isFields(pattern) ? Object.entries(pattern) : [];
  if (patterns.length > mostAlphas) fail(`alpha_pattern has ${patterns.length} entries, of ${mostAlphas} allowed`);
  const work = new MatchingWork();
  const alphas = patterns.map(([key, value]) => {
    let name: NamePattern;
    try {
      name = new NamePattern(`^(?:.*\\.)?(?:${key})$`, 'alpha_pattern', work);
    } catch (error) {
      return fail(`alpha_pattern has the key ${quoted(key)}: ${(error as Error).message}`);
    }
    return { name, alpha: numberOf(value, `alpha_pattern of ${quoted(key)}`) };
  });
  return {
    alphaOf(module) {
      try {
        return alphas.find(({ name }) => name.test(module))?.alpha ?? alpha;
      } catch (error) {
        return fail(`alpha_pattern: ${(error as Error).message}`);
      }
    },
    root: config.use_rslora === true,
    turned: config.fan_in_fan_out === true,
    dora: config.use_dora === true,
  };
}

/** The tensors of a layer while they are collected. */
interface FoundLayer {
  readonly module: string;
  readonly isPeft: boolean;
  readonly parts: Map<AdapterPart, SourceTensor>;
}

/** Names of PEFT for whole tensors, and for the weight that a layer had before. */
const wholeName = /^base_model\.model\.(.+?)(?:\.modules_to_save(?:\.default)?|\.base_layer)?(\.(?:weight|bias))$/s;

/** The tensors of each layer, and whole ones. */
function collectLayers({ tensors }: OpenModel, name: string, fail: Fail) {
  const layers = new Map<string, FoundLayer>();
  const whole: Adapter['whole'][number][] = [];
  for (const tensor of tensors) {
    const found = adapterMeaning(tensor.name);
    const [, inner, end] = found === undefined ? (wholeName.exec(tensor.name) ?? []) : [];
    if (inner !== undefined && end !== undefined) {
      whole.push({ name: inner + end, tensor });
      continue;
    }
    if (found === undefined) return fail(`the tensor ${quoted(tensor.name)} is not a matrix of LoRA`, tensor);
    if (typeof found === 'string') {
      const message = `it is ${found}, as the tensor ${quoted(tensor.name)} shows, and only LoRA is merged here`;
      return badAdapter(name, message, tensor, 'UNKNOWN_FORMAT');
    }
    const { module, part, isPeft } = found;
    const layer = layers.get(module) ?? { module, isPeft, parts: new Map<AdapterPart, SourceTensor>() };
    const before = layer.parts.get(part);
    if (before !== undefined)
      fail(`the tensors ${quoted(before.name)} and ${quoted(tensor.name)} have the same place`, tensor);
    layers.set(module, layer);
    layer.parts.set(part, tensor);
  }
  if (layers.size + whole.length === 0) fail('it has no matrices');
  return { layers: [...layers.values()], whole };
}

type FileBeside = (name: string) => Promise<Uint8Array<ArrayBuffer> | undefined>;

/** Gives the settings of a layer of PEFT: those of the file beside the adapter, or of its model in the metadata. */
async function readSettings(
  { metadata }: OpenModel,
  file: FileBeside,
  fail: Fail,
): Promise<(module: string) => AdapterSettings | undefined> {
  const config = await file(adapterConfig);
  const packed = metadata[diffusersKey];
  const place = config === undefined ? diffusersKey : adapterConfig;
  const text = config === undefined ? packed : new TextDecoder().decode(config);
  if (typeof text !== 'string') return () => undefined;
  let all: unknown;
  try {
    all = JSON.parse(text);
  } catch {
    return fail(`${place} is not JSON`);
  }
  if (!isFields(all)) return fail(`${place} is not an object`);
  const failThere: Fail = (message, tensor) => fail(`${place}: ${message}`, tensor);
  if (config !== undefined) {
    const settings = adapterSettings(all, failThere);
    return () => settings;
  }
  const entries = Object.entries(all);
  const modelOf = (name: string) => name.slice(0, name.indexOf('.') + 1);
  const fields = grouped(entries, ([key]) => modelOf(key));
  const byModel = new Map<string, AdapterSettings | undefined>();
  return (module) => {
    const model = modelOf(module);
    const some = model === '' ? entries : fields.get(model);
    if (!byModel.has(model) && some !== undefined) {
      const inner = Object.fromEntries(some.map(([key, value]) => [key.slice(model.length), value]));
      byModel.set(model, adapterSettings(inner, failThere));
    }
    return byModel.get(model);
  };
}

/**
 * Reads an adapter.
 * @param opened the file, whose matrices are not read yet
 * @param name of the file, for messages
 * @param file gives the bytes of a file beside it
 * @throws ScalepointError `UNKNOWN_FORMAT` for other kinds of adapters, `BAD_FILE`
 */
export async function readAdapter(
  opened: OpenModel,
  name: string,
  strength: number,
  file: FileBeside,
): Promise<Adapter> {
  const fail: Fail = (message, tensor) => badAdapter(name, message, tensor);
  const { layers: found, whole } = collectLayers(opened, name, fail);
  const [replacing] = whole;
  if (replacing !== undefined && strength !== 1)
    fail(
      `the tensor ${quoted(replacing.tensor.name)} takes the place of one of the model, which a strength of ${strength} cannot scale`,
      replacing.tensor,
    );
  const settingsFor = found.some(({ isPeft }) => isPeft) ? await readSettings(opened, file, fail) : () => undefined;
  const readers = opened.files.map(readNeighbors);

  /** The finite number in a tensor of one; undefined for other tensors. */
  const numberIn = async ({ shape, dtype, bytes, byteOffset, file }: SourceTensor) => {
    if (bytes > 8 || shape.some((dimension) => dimension !== 1)) return undefined;
    const stored = (await readers[file]?.(byteOffset, byteOffset + bytes))?.slice() ?? new Uint8Array(0);
    const view = new DataView(stored.buffer);
    let value: number | undefined;
    if (dtype === 'F64') value = view.getFloat64(0, true);
    else if (dtype === 'I64') value = Number(view.getBigInt64(0, true));
    else if (dtype === 'I32') value = view.getInt32(0, true);
    else if (dtype === 'F32' || dtype === 'BF16' || dtype === 'F16') value = floatsIn(stored, dtype)[0];
    return Number.isFinite(value) ? value : undefined;
  };

  const layers: AdapterLayer[] = [];
  for (const { module, isPeft, parts } of found) {
    // Find its two matrices.
    const isEmbedding = parts.has('embeddingA') || parts.has('embeddingB');
    const [down, up] = [parts.get(isEmbedding ? 'embeddingB' : 'down'), parts.get(isEmbedding ? 'embeddingA' : 'up')];
    const hasMore = isEmbedding && (parts.has('down') || parts.has('up'));
    if (down === undefined || up === undefined || hasMore) {
      const [first] = parts.values();
      const shows = `as the tensor ${quoted(first?.name ?? '')} shows`;
      return fail(`the layer ${quoted(module)} has not just two matrices, ${shows}`, first);
    }
    const settings = isPeft ? settingsFor(module) : undefined;
    if (settings === undefined && module.startsWith(peftPrefix))
      return fail(`it needs ${adapterConfig} beside it, which says by how much its matrices count`);
    const inner = module.startsWith(peftPrefix) ? module.slice(peftPrefix.length) : module;
    // Find alpha. Without one, alpha / rank is 1.
    const rank = isEmbedding ? up.shape[0] : down.shape[0];
    const given = parts.get('alpha');
    const alpha = given === undefined ? (settings?.alphaOf(inner) ?? rank ?? 1) : await numberIn(given);
    if (alpha === undefined) {
      const text = `${quoted(given?.name ?? '')} (${given?.dtype} [${given?.shape.join(', ')}])`;
      return fail(`the tensor ${text} is not a finite number`, given);
    }
    const turned = isEmbedding || settings?.turned === true;
    const root = given === undefined && settings?.root === true;
    // Magnitudes are those of outputs, which are columns of a transposed weight.
    const magnitude = parts.get('magnitude');
    if (settings?.dora !== undefined && settings.dora !== (magnitude !== undefined)) {
      const has = settings.dora ? 'lacks the magnitudes that use_dora asks for' : 'has magnitudes without use_dora';
      return fail(`the layer ${quoted(module)} ${has}`, magnitude ?? up);
    }
    if (magnitude !== undefined && (turned || strength !== 1)) {
      const what = turned ? 'of embeddings and of transposed weights' : `with a strength of ${strength}`;
      return fail(`DoRA ${what} is not merged here, as in the layer ${quoted(module)}`, magnitude);
    }
    // The stored transposes of a layer [inputs, outputs] change their roles.
    const pair = turned && !isEmbedding ? { down: up, up: down } : { down, up };
    layers.push({ module: inner, ...pair, middle: parts.get('middle'), magnitude, turned, alpha, root });
  }
  return { name, strength, layers, whole };
}

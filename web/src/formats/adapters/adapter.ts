/** Reads adapters (LoRA): pairs of narrow matrices whose products are added to weights. */

import { ScalepointError } from '../../core/errors.js';
import { grouped } from '../../core/groups.js';
import { show } from '../../core/show.js';
import { floatsIn } from '../codecs/floats-in.js';
import { quoted } from '../files/bytes.js';
import { readNeighbors } from '../files/neighbors.js';
import type { OpenModel, SourceTensor } from '../format.js';
import { MatchingWork, NamePattern } from '../name-pattern.js';
import { type AdapterPart, adapterNameOf, strangeAdapter } from './names.js';

/** The matrices for one layer. */
export interface AdapterLayer {
  /** Name of the layer as the file spells it. */
  readonly module: string;
  readonly down: SourceTensor;
  readonly up: SourceTensor;
  readonly middle: SourceTensor | undefined;
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
}

/** The file of PEFT with the facts that names and shapes leave open. */
const adapterConfig = 'adapter_config.json';

/** Members of a configuration that are used. */
interface Settings {
  /** The alpha of a layer. */
  alphaOf(module: string): number;
  readonly root: boolean;
  /** True if weights are stored as [inputs, outputs], as those of GPT-2 are. */
  readonly turned: boolean;
}

/** Initializations that change the weights of the model, so that the adapter fits only these. */
const changedBase: readonly string[] = ['pissa', 'olora', 'corda', 'loftq', 'lora_ga'];

/** Most entries of alpha_pattern: more than a model has layers to adapt. */
const mostAlphas = 5000;

const isFields = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

type Fail = (message: string, tensor?: SourceTensor) => never;

function numberIn(value: unknown, name: string, fail: Fail): number {
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  return fail(`${name} is ${value === undefined ? 'missing' : show(value)} in place of a number`);
}

/** Reads the members of a configuration. @param place of them, for messages */
function settingsOf(config: Readonly<Record<string, unknown>>, place: string, fail: Fail): Settings {
  const type = config.peft_type;
  const other = (kind: string) => fail(`${place}: adapters of the kind ${kind} are not merged here`);
  if (type !== undefined && type !== 'LORA') other(typeof type === 'string' ? type.slice(0, 40) : show(type));
  if (config.use_dora === true) other('DoRA');
  if (config.lora_bias === true) other('LoRA with biases');
  const { init_lora_weights: given } = config;
  const init = typeof given === 'string' ? given.toLowerCase() : '';
  const changed = changedBase.find((name) => init.startsWith(name));
  if (changed !== undefined)
    fail(
      `${place}: init_lora_weights is ${changed}, which changes the weights of the model; convert the adapter to a plain one`,
    );
  const alpha = numberIn(config.lora_alpha, `${place}: lora_alpha`, fail);
  const patterns = isFields(config.alpha_pattern) ? Object.entries(config.alpha_pattern) : [];
  // Each may be compared with each layer.
  if (patterns.length > mostAlphas)
    fail(`${place}: alpha_pattern has ${patterns.length} entries, of ${mostAlphas} allowed`);
  const work = new MatchingWork();
  // Keys are expressions for the ends of layers' names, as PEFT matches them.
  const patternOf = (key: string) => {
    try {
      return new NamePattern(`^(?:.*\\.)?(?:${key})$`, 'alpha_pattern', work);
    } catch (error) {
      return fail(`${place}: alpha_pattern has the key ${quoted(key)}: ${(error as Error).message}`);
    }
  };
  const alphas = patterns.map(([key, value]) => ({
    pattern: patternOf(key),
    alpha: numberIn(value, `${place}: alpha_pattern of ${quoted(key)}`, fail),
  }));
  return {
    alphaOf(module) {
      try {
        return alphas.find(({ pattern }) => pattern.test(module))?.alpha ?? alpha;
      } catch (error) {
        return fail(`${place}: alpha_pattern: ${(error as Error).message}`);
      }
    },
    root: config.use_rslora === true,
    turned: config.fan_in_fan_out === true,
  };
}

/** An object of JSON text. */
function fieldsIn(text: string, place: string, fail: Fail): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return fail(`${place} is not JSON`);
  }
  return isFields(value) ? value : fail(`${place} is not an object`);
}

/** Prefix of the layers of PEFT's models, which are not part of the model's names. */
const peftPrefix = 'base_model.model.';

/** Key of the metadata in which diffusers keeps the configurations of its models, with the names of the models as prefixes. */
const diffusersKey = 'lora_adapter_metadata';

/** The value of a tensor with one float. */
function floatAt(bytes: Uint8Array<ArrayBuffer>, dtype: string): number | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (dtype === 'F64') return view.getFloat64(0, true);
  if (dtype === 'I64') return Number(view.getBigInt64(0, true));
  if (dtype === 'I32') return view.getInt32(0, true);
  return dtype === 'F32' || dtype === 'BF16' || dtype === 'F16' ? floatsIn(bytes, dtype)[0] : undefined;
}

/** The tensors of a layer while they are collected. */
interface Found {
  readonly module: string;
  readonly isPeft: boolean;
  readonly parts: Map<AdapterPart, SourceTensor>;
}

/** The tensors of each layer. */
function layersOf({ tensors }: OpenModel, name: string, fail: Fail): Map<string, Found> {
  const layers = new Map<string, Found>();
  for (const tensor of tensors) {
    const kind = strangeAdapter(tensor.name);
    if (kind !== undefined) {
      const message = `adapter ${quoted(name)}: it is ${kind}, as the tensor ${quoted(tensor.name)} shows, and only LoRA is merged here`;
      throw new ScalepointError('UNKNOWN_FORMAT', message, { tensor: tensor.name, byteOffset: tensor.byteOffset });
    }
    const found = adapterNameOf(tensor.name);
    if (found === undefined) return fail(`the tensor ${quoted(tensor.name)} is not a matrix of LoRA`, tensor);
    const { module, part, isPeft } = found;
    const layer = layers.get(module) ?? { module, isPeft, parts: new Map<AdapterPart, SourceTensor>() };
    layers.set(module, layer);
    const before = layer.parts.get(part);
    if (before !== undefined)
      fail(`the tensors ${quoted(before.name)} and ${quoted(tensor.name)} have the same place`, tensor);
    layer.parts.set(part, tensor);
  }
  return layers;
}

type FileBeside = (name: string) => Promise<Uint8Array<ArrayBuffer> | undefined>;

/** Gives the settings of a layer of PEFT: those of the file beside the adapter, or of its model in the metadata. */
async function readSettings(
  { metadata }: OpenModel,
  file: FileBeside,
  fail: Fail,
): Promise<(module: string) => Settings | undefined> {
  const config = await file(adapterConfig);
  if (config !== undefined) {
    const fields = fieldsIn(new TextDecoder().decode(config), adapterConfig, fail);
    const settings = settingsOf(fields, adapterConfig, fail);
    return () => settings;
  }
  const packed = metadata[diffusersKey];
  if (typeof packed !== 'string') return () => undefined;
  const ofModels = fieldsIn(packed, diffusersKey, fail);
  const modelOf = (name: string) => name.slice(0, name.indexOf('.') + 1);
  const fields = grouped(Object.entries(ofModels), ([key]) => modelOf(key));
  const byModel = new Map<string, Settings | undefined>();
  return (module) => {
    const model = modelOf(module);
    if (byModel.has(model)) return byModel.get(model);
    const own = model === '' ? Object.entries(ofModels) : fields.get(model);
    const settings =
      own &&
      settingsOf(Object.fromEntries(own.map(([key, value]) => [key.slice(model.length), value])), diffusersKey, fail);
    byModel.set(model, settings);
    return settings;
  };
}

/** Reads the number in a tensor. */
async function alphaIn(
  { name, shape, dtype, bytes, byteOffset, file }: SourceTensor,
  readers: readonly ReturnType<typeof readNeighbors>[],
): Promise<number | undefined> {
  const read = readers[file];
  if (read === undefined) throw new Error(`the tensor ${name} lies in no file`);
  if (bytes > 8 || shape.some((dimension) => dimension !== 1)) return undefined;
  const value = floatAt((await read(byteOffset, byteOffset + bytes)).slice(), dtype);
  return value !== undefined && Number.isFinite(value) ? value : undefined;
}

/** The two matrices of a layer as the file has them. */
function pairIn({ module, parts }: Found, fail: Fail): { readonly down: SourceTensor; readonly up: SourceTensor } {
  const isEmbedding = parts.has('embeddingA') || parts.has('embeddingB');
  const [down, up] = isEmbedding
    ? [parts.get('embeddingB'), parts.get('embeddingA')]
    : [parts.get('down'), parts.get('up')];
  if (down !== undefined && up !== undefined && !(isEmbedding && (parts.has('down') || parts.has('up'))))
    return { down, up };
  const [first] = parts.values();
  return fail(
    `the layer ${quoted(module)} has not just two matrices, as the tensor ${quoted(first?.name ?? '')} shows`,
    first,
  );
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
  const fail: Fail = (message, tensor) => {
    throw new ScalepointError('BAD_FILE', `adapter ${quoted(name)}: ${message}`, {
      tensor: tensor?.name,
      byteOffset: tensor?.byteOffset,
    });
  };
  const found = [...layersOf(opened, name, fail).values()];
  if (found.length === 0) fail('it has no matrices');
  const settingsFor = found.some(({ isPeft }) => isPeft) ? await readSettings(opened, file, fail) : () => undefined;
  const readers = opened.files.map(readNeighbors);
  const layers: AdapterLayer[] = [];
  for (const layer of found) {
    const { module, isPeft, parts } = layer;
    const { down, up } = pairIn(layer, fail);
    const isEmbedding = parts.has('embeddingA');
    const settings = isPeft ? settingsFor(module) : undefined;
    if (settings === undefined && module.startsWith(peftPrefix))
      return fail(`it needs ${adapterConfig} beside it, which says by how much its matrices count`);
    const own = module.startsWith(peftPrefix) ? module.slice(peftPrefix.length) : module;
    // Find alpha. Without one, alpha / rank is 1.
    const rank = isEmbedding ? up.shape[0] : down.shape[0];
    const given = parts.get('alpha');
    const alpha = given === undefined ? (settings?.alphaOf(own) ?? rank ?? 1) : await alphaIn(given, readers);
    if (given !== undefined && alpha === undefined)
      fail(
        `the tensor ${quoted(given.name)} (${given.dtype} [${given.shape.join(', ')}]) is not a finite number`,
        given,
      );
    const turned = isEmbedding || settings?.turned === true;
    const root = given === undefined && settings?.root === true;
    // The stored transposes of a layer [inputs, outputs] change their roles.
    const pair = turned && !isEmbedding ? { down: up, up: down } : { down, up };
    layers.push({ module: own, ...pair, middle: parts.get('middle'), turned, alpha: alpha as number, root });
  }
  return { name, strength, layers };
}

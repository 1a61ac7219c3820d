/** Folders of language models, and their vision towers, to GGUF. Loaded with the first folder. */
import { rangeError, ScalepointError } from '../core/errors.js';
import { floatsIn } from '../formats/codecs/floats-in.js';
import { type ByteSource, quoted } from '../formats/files/bytes.js';
import type { LogicalTensor, OpenModel } from '../formats/format.js';
import { edited, nameKey } from '../formats/gguf/edits.js';
import type { GgufChoices } from '../formats/gguf/options.js';
import { planGguf } from '../formats/gguf/plan.js';
import { planResult, type ResultTensor } from '../formats/gguf/result.js';
import { reasons } from '../formats/reason.js';
import { codedLayoutOf, quantizedLayoutOf, sourceNotes } from '../formats/safetensors/layouts/registry.js';
import { tensorsAsFloats } from '../formats/safetensors/safetensors.js';
import type { WeightNames } from '../formats/weight-names.js';
import { readStatistics } from '../formats/weight-statistics.js';
import { type Carried, carryOutAll, type SourceWeight } from './carry-out.js';
import type { Beside, Converted } from './converter.js';
import { architectureNames } from './families/index.js';
import { type ConvertOptions, convertHuggingface, folderWeightNames } from './huggingface/convert.js';
import { convertTower, type TowerTarget } from './huggingface/vision/convert.js';
import type { Conversion, Folder } from './recipe.js';

/** The first architecture that a config.json names, if it is known. */
export function architectureIn(bytes: Uint8Array<ArrayBuffer>): string | undefined {
  try {
    const first = JSON.parse(new TextDecoder().decode(bytes))?.architectures?.[0];
    return typeof first === 'string' && architectureNames.includes(first) ? first : undefined;
  } catch {
    return undefined;
  }
}

/** The weights of a model. @param requantize false for an error about weights with codes */
async function readWeights(model: OpenModel, requantize: boolean): Promise<SourceWeight[]> {
  const tensors = await tensorsAsFloats(model, requantize);
  return tensors.map((tensor) => {
    const layout = codedLayoutOf(tensor.form);
    return { tensor, dtype: layout?.floats(tensor.form) ?? tensor.type, isCoded: layout !== undefined };
  });
}

/** Bytes that are compared at a time. */
const comparedBytes = 1 << 22;

/** A model as a folder. */
function folderOf(
  model: OpenModel,
  weights: readonly SourceWeight[],
  beside: Beside,
  name: string | undefined,
): Folder {
  const metadata = model.metadata as Readonly<Record<string, string>>;
  const tensors = weights.map(({ tensor, dtype }) => ({ name: tensor.name, dtype, shape: tensor.shape }));
  const isCoded = weights.some(({ tensor }) => quantizedLayoutOf(tensor.form) !== undefined);
  return {
    name,
    tensors,
    metadata,
    isCoded,
    file: (path) => beside.file(path),
    async floats(wanted) {
      const tensor = model.tensors.find((one) => one.name === wanted);
      if (tensor === undefined || (tensor.dtype !== 'F32' && tensor.dtype !== 'F16' && tensor.dtype !== 'BF16'))
        return undefined;
      const file = model.files[tensor.file] as ByteSource;
      return floatsIn(await file.read(tensor.byteOffset, tensor.byteOffset + tensor.bytes), tensor.dtype);
    },
    async areEqual(a, b) {
      const [x, y] = [a, b].map((one) => model.tensors.find((tensor) => tensor.name === one));
      if (x === undefined || y === undefined) return undefined;
      if (x.dtype !== y.dtype || x.bytes !== y.bytes) return false;
      for (let at = 0; at < x.bytes; at += comparedBytes) {
        const end = Math.min(x.bytes, at + comparedBytes);
        const [first, second] = await Promise.all(
          [x, y].map((one) => (model.files[one.file] as ByteSource).read(one.byteOffset + at, one.byteOffset + end)),
        );
        if (first?.some((byte, i) => byte !== second?.[i])) return false;
      }
      return true;
    },
  };
}

/** The contents of the GGUF file that a folder becomes. */
type CarriedFolder = Carried & Pick<Conversion, 'architecture' | 'types' | 'notes'>;

/** Conversions of open models, by their names and options. Plans for a size are made of one model with each type. */
const known = new WeakMap<OpenModel, Map<string, Promise<CarriedFolder>>>();

/** A language model or its vision tower, as config.json and the files beside it describe them. */
export async function convertFolder(
  model: OpenModel,
  beside: Beside,
  choices: ConvertOptions & Partial<Pick<GgufChoices, 'to' | 'metadata' | 'requantize' | 'mmproj'>>,
): Promise<Converted> {
  const { missingBytes = 'refuse', preTokenizer, metadata = {}, requantize = false } = choices;
  // A given name takes the place of the folder's, as with --model-name of llama.cpp's converter. Other edits move to the end, as in ggml.
  const { [nameKey]: given, ...others } = metadata;
  const isNamed = typeof given === 'string' && given !== '';
  const name = isNamed ? given : beside.folder;
  const conversions = known.get(model) ?? new Map<string, Promise<CarriedFolder>>();
  known.set(model, conversions);
  const tower = choices.mmproj === true ? ((choices.to ?? 'F32') as TowerTarget) : undefined;
  const isAdapter = choices.to === 'lora-gguf';
  const key = JSON.stringify([name ?? null, missingBytes, preTokenizer ?? null, requantize, tower, isAdapter]);
  const carryOut = async (): Promise<CarriedFolder> => {
    const weights = await readWeights(model, requantize || isAdapter);
    const folder = folderOf(model, weights, beside, name);
    if (isAdapter) {
      if (model.adapters === undefined) throw rangeError('lora', { kind: 'required' }, undefined);
      const [whole] = model.adapters.replaced;
      if (whole !== undefined) {
        const message = `tensor ${quoted(whole)}: it replaces one of the model, and a file of llama.cpp holds matrices of LoRA alone; merge the adapter`;
        throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: whole });
      }
      const { convertAdapter } = await import('./adapter-to-gguf.js');
      const adapter = await convertAdapter(folder, weights);
      return { ...adapter.conversion, ...carryOutAll(adapter.weights, adapter.conversion) };
    }
    const options = { missingBytes, preTokenizer };
    const conversion = await (tower === undefined ? convertHuggingface(folder, options) : convertTower(folder, tower));
    const { architecture, types } = conversion;
    const notes = [...sourceNotes(weights.map(({ tensor }) => tensor)), ...conversion.notes];
    return { architecture, types, notes, ...carryOutAll(weights, conversion) };
  };
  const carried = conversions.get(key) ?? carryOut();
  conversions.set(key, carried);
  const { architecture, notes, types, view, sources } = await carried;
  return {
    architecture,
    contents: { view, sources },
    tensors: sources.flatMap((source) => (source instanceof Uint8Array ? [] : [source])),
    async plan(given, partsOf, readOptionFile) {
      const gguf = given as GgufChoices;
      const own = isNamed ? { ...gguf, metadata: others } : gguf;
      if (types === undefined) {
        const plan = planGguf(view, own, partsOf, { sources, statistics: await readStatistics(gguf, readOptionFile) });
        return { ...plan, notes: [...notes, ...plan.notes] };
      }
      // The types and the order of a vision tower are those of llama.cpp's converter.
      const results = view.tensors.map(({ name, shape, dtype }, index): ResultTensor => {
        const type = types.get(name) as string;
        const from = { source: sources[index] as LogicalTensor, index };
        return { name, shape, type, from, ...(type === dtype ? { kept: reasons.sameType } : {}) };
      });
      const { metadata: edits, fixAlignment } = own;
      const plan = planResult(edited(view.pairs, view, edits), results, partsOf, { choices: { fixAlignment } });
      return { ...plan, mergesAdapters: !isAdapter, notes: [...notes, ...plan.notes] };
    },
  };
}

/** The names that tensors of a folder have in GGUF; undefined if it cannot be converted. */
export async function folderNames(model: OpenModel, beside: Beside): Promise<WeightNames | undefined> {
  try {
    return await folderWeightNames(folderOf(model, await readWeights(model, true), beside, undefined));
  } catch (error) {
    // Statistics of other models may have the names of the tensors themselves.
    if (error instanceof ScalepointError) return undefined;
    throw error;
  }
}

/** safetensors to GGUF: checkpoints of diffusion models, and folders of language models. */
import { ScalepointError } from '../core/errors.js';
import { quoted } from '../files/bytes.js';
import type { OpenModel } from '../formats/format.js';
import { nameKey } from '../formats/gguf/edits.js';
import type { GgufChoices } from '../formats/gguf/options.js';
import { planGguf } from '../formats/gguf/plan.js';
import { readStatistics } from '../formats/read-statistics.js';
import { lowRankLayout } from '../formats/safetensors/layouts/low-rank.js';
import { codedLayoutOf, quantizedLayoutOf } from '../formats/safetensors/layouts/registry.js';
import { sourceNotes } from '../formats/safetensors/layouts/source-note.js';
import { tensorsAsFloats } from '../formats/safetensors/quantized.js';
import type { SourceWeight } from './carry-out.js';
import type { Beside, Converted, Converter } from './converter.js';
import { detectDiffusion, diffusersLayout, diffusionReaders, isDiffusion } from './diffusion/detect.js';
import { diffusionReasonText } from './diffusion/reasons.js';
import type { ConvertOptions } from './huggingface/convert.js';
import { towerArchitecture, towerReaders } from './huggingface/vision/readers.js';
import type { TowerTarget } from './on-demand.js';
import type { Folder } from './recipe.js';

/** The conversions, loaded when one is needed first. */
const loadConversions = () => import('./on-demand.js');

/** Names of tensors of adapters, such as LoRA, which are not models themselves. */
const adapter = /[._]lora[._](a|b|up|down)\b|\.hada_w|\.lokr_w/i;

function checkKind({ tensors }: OpenModel): void {
  const found = tensors.find(({ name }) => adapter.test(name));
  if (found === undefined) return;
  throw new ScalepointError(
    'UNKNOWN_FORMAT',
    `the file is an adapter (LoRA), as the tensor ${quoted(found.name)} shows; merge it into its model first`,
    { tensor: found.name },
  );
}

/** The first architecture that a config.json names. */
async function architectureIn(bytes: Uint8Array<ArrayBuffer>): Promise<string | undefined> {
  const { architectureNames } = await loadConversions();
  try {
    const first = JSON.parse(new TextDecoder().decode(bytes))?.architectures?.[0];
    return typeof first === 'string' && architectureNames.includes(first) ? first : undefined;
  } catch {
    return undefined;
  }
}

/** The weights of a model. @param requantize false for an error about weights with codes */
async function weightsOf(model: OpenModel, requantize: boolean): Promise<SourceWeight[]> {
  const tensors = await tensorsAsFloats(model, requantize);
  return tensors.map((tensor) => {
    const layout = codedLayoutOf(tensor.form);
    return { tensor, dtype: layout?.floats(tensor.form) ?? tensor.type, isCoded: layout !== undefined };
  });
}

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
  return { name, tensors, metadata, isCoded, file: (path) => beside.file(path) };
}

/** The contents of the GGUF file that a folder becomes. */
async function carriedOut(
  model: OpenModel,
  beside: Beside,
  name: string | undefined,
  requantize: boolean,
  options: ConvertOptions,
  tower: TowerTarget | undefined,
) {
  const { carryOutAll, convertHuggingface, convertTower } = await loadConversions();
  const weights = await weightsOf(model, requantize);
  const folder = folderOf(model, weights, beside, name);
  const conversion = await (tower === undefined ? convertHuggingface(folder, options) : convertTower(folder, tower));
  const { architecture, notes, types } = conversion;
  const before = sourceNotes(weights.map(({ tensor }) => tensor));
  return { architecture, types, notes: [...before, ...notes], ...carryOutAll(weights, conversion) };
}

/** Conversions of open models, by their names and options. Plans for a size are made of one model with each type. */
const known = new WeakMap<OpenModel, Map<string, ReturnType<typeof carriedOut>>>();

/** A language model or its vision tower, as config.json and the files beside it describe them. */
async function convertFolder(
  model: OpenModel,
  beside: Beside,
  choices: ConvertOptions & Partial<Pick<GgufChoices, 'to' | 'metadata' | 'requantize' | 'mmproj'>>,
): Promise<Converted | undefined> {
  if ((await beside.file('config.json')) === undefined) return undefined;
  const { missingBytes = 'refuse', metadata = {}, requantize = false } = choices;
  // A given name takes the place of the folder's, as with --model-name of llama.cpp's converter. Other edits move to the end, as in ggml.
  const { [nameKey]: given, ...others } = metadata;
  const isNamed = typeof given === 'string' && given !== '';
  const name = isNamed ? given : beside.folder;
  const conversions = known.get(model) ?? new Map<string, ReturnType<typeof carriedOut>>();
  known.set(model, conversions);
  const tower = choices.mmproj === true ? ((choices.to ?? 'F32') as TowerTarget) : undefined;
  const key = JSON.stringify([name ?? null, missingBytes, requantize, tower]);
  const carried = conversions.get(key) ?? carriedOut(model, beside, name, requantize, { missingBytes }, tower);
  conversions.set(key, carried);
  const { architecture, notes, types, view, sources } = await carried;
  return {
    architecture,
    contents: { view, sources },
    tensors: sources.flatMap((source) => (source instanceof Uint8Array ? [] : [source])),
    async plan(given, partsOf, readOptionFile) {
      const gguf = given as GgufChoices;
      const own = isNamed ? { ...gguf, metadata: others } : gguf;
      if (types !== undefined) return (await loadConversions()).planTower({ view, sources }, types, own, partsOf);
      const statistics = await readStatistics(gguf, readOptionFile);
      const plan = planGguf(view, own, partsOf, sources, statistics);
      return { ...plan, notes: [...notes, ...plan.notes] };
    },
  };
}

export const toGguf: Converter = {
  from: ['safetensors', 'pytorch'],
  result: 'gguf',
  about:
    'A folder with config.json and tokenizer also becomes GGUF, as llama.cpp converts and quantizes it; a checkpoint of a diffusion model ' +
    'does by the rules of the tools of ComfyUI-GGUF.',
  condition: 'a diffusion model of a known kind, or has its config.json beside it',
  examples: ['FOLDER --to Q4_K_M', 'flux1-dev.safetensors --to Q4_K_S'],

  reasonText: diffusionReasonText,

  readers(architecture, file) {
    if (architecture === towerArchitecture) return towerReaders(file);
    return isDiffusion(architecture) ? diffusionReaders(file) : undefined;
  },

  async weightNames(model, beside) {
    if ((await beside.file('config.json')) === undefined) return undefined;
    const { weightNames } = await loadConversions();
    try {
      return await weightNames(folderOf(model, await weightsOf(model, true), beside, undefined));
    } catch (error) {
      // Statistics of other models may have the names of the tensors themselves.
      if (error instanceof ScalepointError) return undefined;
      throw error;
    }
  },

  async detect({ tensors }, beside) {
    const diffusion = detectDiffusion(tensors)?.name;
    if (diffusion !== undefined || tensors.some(({ name }) => adapter.test(name))) return diffusion;
    const config = await beside.file('config.json');
    return config === undefined ? undefined : architectureIn(config);
  },

  async convert(model, beside, choices) {
    checkKind(model);
    if ((choices as GgufChoices).mmproj === true) return convertFolder(model, beside, choices);
    const diffusion = detectDiffusion(model.tensors);
    if (diffusion !== undefined) {
      const { convertDiffusion } = await loadConversions();
      const tools = {
        codedLayoutOf,
        quantizedLayoutOf,
        adapted: lowRankLayout,
        notesOn: sourceNotes,
        asFloats: tensorsAsFloats,
      };
      return convertDiffusion(model, diffusion, tools);
    }
    const diffusers = diffusersLayout(model.tensors);
    if (diffusers !== undefined) {
      throw new ScalepointError(
        'UNKNOWN_FORMAT',
        `the file holds ${diffusers} in the layout of diffusers, which no program reads from GGUF; ` +
          'load it in ComfyUI and save it with the node ModelSave first',
      );
    }
    return convertFolder(model, beside, choices);
  },
};

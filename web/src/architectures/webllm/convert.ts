/** Converts a folder of a language model to a model of MLC, for one of WebLLM's prebuilt libraries. */

import { ScalepointError } from '../../core/errors.js';
import { noteOf } from '../../core/note.js';
import type { CastForm } from '../../formats/codecs/cast.js';
import { elementsOf, largestCount } from '../../formats/codecs/elements.js';
import { type MlcForm, mlcGroup } from '../../formats/codecs/mlc.js';
import { quoted, quotedNames } from '../../formats/files/bytes.js';
import { badTensor } from '../../formats/files/errors.js';
import type { FilePlan, LogicalTensor, OpenModel, PartsOf, PlannedTensor } from '../../formats/format.js';
import { type ModelFile, modelFiles, type Parameter } from '../../formats/mlc/layout.js';
import type { MlcChoices } from '../../formats/mlc/options.js';
import { type MlcTarget, quantizationOf } from '../../formats/mlc/targets.js';
import { reasons } from '../../formats/reason.js';
import { sourceNotes } from '../../formats/safetensors/layouts/registry.js';
import { tensorsAsFloats } from '../../formats/safetensors/safetensors.js';
import { keptTensor } from '../../formats/tensors.js';
import type { WeightNames } from '../../formats/weight-names.js';
import { readStatistics, WeightStatistics } from '../../formats/weight-statistics.js';
import { dimensionsText } from '../carry-out.js';
import type { Beside, Converted } from '../converter.js';
import { defaultsOf, webllmFamilies } from '../families/index.js';
import { Config, readRope } from '../huggingface/config.js';
import { incomplete, unsupportedConfig } from '../huggingface/errors.js';
import { refuseAdapter } from '../huggingface/files.js';
import { arrayMember, decodeText, type Json, member, parseObject } from '../huggingface/json.js';
import { chatConfig, type ModelTexts, tokenizerFiles } from './chat-config.js';
import { librariesOf, type ModelNumbers, type NeededParameter, webllmParameters } from './families.js';
import { webllmPlace } from './readers.js';
import { chooseTemplate } from './templates.js';

/** Tensors that folders may have and MLC leaves out. */
const unused = /\.rotary_emb\.inv_freq$/;

// ------------------------------------------------------------------------------------------------------------------------ library

/** The numbers of a config.json that libraries depend on. */
function readModelNumbers(config: Config): ModelNumbers {
  const hidden = config.whole('hidden_size');
  const heads = config.whole('num_attention_heads');
  const rope = readRope(config);
  const factor = member(rope.settings, 'factor');
  // Phi's scaling has two names.
  const type = rope.type === 'su' ? 'longrope' : (rope.type ?? 'none');
  return {
    hidden_size: hidden,
    intermediate_size: config.whole('intermediate_size'),
    num_hidden_layers: config.whole('num_hidden_layers'),
    num_attention_heads: heads,
    num_key_value_heads: config.whole('num_key_value_heads', heads),
    head_dim: config.whole('head_dim', Math.floor(hidden / heads)),
    vocab_size: config.whole('vocab_size'),
    rms_norm_eps: config.positive('rms_norm_eps'),
    rope_theta: rope.theta ?? 10000,
    rope_scaling: rope.type === 'llama3' ? `llama3 ${factor}` : type,
    tie_word_embeddings: config.maybeFlag('tie_word_embeddings') ?? false,
  };
}

/** The family and the library of a model. @throws ScalepointError `UNKNOWN_FORMAT` that says what would fit */
function libraryFor(keys: Json, config: Config, to: MlcTarget) {
  const architecture = arrayMember(keys, 'architectures')[0];
  const family = webllmFamilies.get(architecture as string);
  if (family === undefined) {
    const name = typeof architecture === 'string' ? quoted(architecture) : 'without a name';
    return unsupportedConfig(
      `WebLLM has no prebuilt library for the architecture ${name}; it has libraries for ${[...webllmFamilies.keys()].join(', ')}`,
    );
  }
  const numbers = readModelNumbers(config);
  const own = librariesOf(family).filter(({ lacks }) => lacks?.includes(to) !== true);
  const rated = own
    .map((library) => {
      const names = Object.keys(library.numbers) as (keyof ModelNumbers)[];
      const differences = names.flatMap((name) => {
        if (name === 'vocab_size' && family.anyVocabulary === true) return [];
        const [stated, wanted] = [numbers[name], library.numbers[name]];
        return stated === wanted ? [] : [`${name} ${stated} in place of ${wanted}`];
      });
      return { library, differences };
    })
    .sort((a, b) => a.differences.length - b.differences.length);
  const [best] = rated;
  if (best === undefined) return unsupportedConfig(`WebLLM has no prebuilt library of ${to} for ${architecture}`);
  if (best.differences.length > 0) {
    unsupportedConfig(
      `WebLLM has no prebuilt library for these sizes; it has libraries for fine-tunes of ${own.map(({ model }) => model).join(', ')}; ` +
        `the closest, ${best.library.model}, differs in ${best.differences.join(', ')}`,
    );
  }
  // Check the settings that libraries are compiled with.
  for (const [name, values] of Object.entries(family.fixed)) {
    const value = config.stated(name) ?? values[0];
    if (!values.includes(value))
      unsupportedConfig(`${name} is ${JSON.stringify(value)}; WebLLM's library has ${JSON.stringify(values[0])}`);
  }
  return { family, library: best.library, numbers };
}

// ------------------------------------------------------------------------------------------------------------------------- weights

/** Plans the tensors of parameters, and says which of them each parameter holds. */
function plannedParameters(
  needed: readonly NeededParameter[],
  tensors: readonly LogicalTensor[],
  { to, search }: MlcChoices,
  partsOf: PartsOf,
  known: WeightStatistics,
  names: WeightNames | undefined,
): { readonly planned: PlannedTensor[]; readonly parameters: Parameter[] } {
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const { floats } = quantizationOf(to);
  const codes: MlcForm = search === 'best' ? { codec: 'mlc', floats, search } : { codec: 'mlc', floats };
  // Floats of float32 models are stored as bfloat16.
  const cast: CastForm = { codec: 'cast', to: floats === 'F16' ? 'F16' : 'BF16' };
  const planned: PlannedTensor[] = [];
  const parameters = needed.map(({ module, kind, name, tensors: parts, add }): Parameter => {
    const indices = parts.map((part) => {
      const source = byName.get(part.name) ?? badTensor(part.name, `it is missing; ${module} is made of it`);
      const { shape, form, type } = source;
      const [stated, wanted] = [dimensionsText(shape), dimensionsText(part.shape)];
      if (stated !== wanted) badTensor(part.name, `its shape is ${stated}, and config.json wants ${wanted}`);
      if (kind === 'weight' && (shape.at(-1) ?? 1) % mlcGroup !== 0)
        badTensor(part.name, `its rows are no multiple of ${mlcGroup}`);
      if (form.codec === 'copy') {
        const message = `tensor ${quoted(part.name)}: ${type} cannot be converted`;
        throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: part.name });
      }
      if (kind === 'weight') {
        const weight = { name: part.name, columns: shape.at(-1) ?? 1, names: names?.get(part.name) };
        const importance = known.importanceOf(weight);
        const feedback = known.feedbackOf(weight, importance !== undefined);
        const own = importance === undefined ? codes : { ...codes, importance };
        const moments = importance === undefined ? undefined : known.momentsOf(weight);
        return planned.push({ source, form: own, parts: partsOf(shape, own), feedback, moments }) - 1;
      }
      const [{ tensor }] = source.parts as [LogicalTensor['parts'][number]];
      if (type === cast.to && add === undefined) return planned.push(keptTensor(tensor, reasons.sameType)) - 1;
      const read = add === undefined ? source : { ...source, form: { ...form, add } };
      return planned.push({ source: read, form: cast, parts: partsOf(shape, cast) }) - 1;
    });
    const coded = [
      { name: 'q_weight', role: 'data' },
      { name: 'q_scale', role: 'scale' },
    ];
    return { module, tensors: indices, stored: kind === 'weight' ? coded : [{ name, role: 'data' }] };
  });
  return { planned, parameters };
}

// --------------------------------------------------------------------------------------------------------------------------- texts

/** Reads the files beside the weights. */
async function readFolderTexts(
  beside: Beside,
  keys: Json,
  numbers: ModelNumbers,
): Promise<{ texts: ModelTexts; files: ModelFile[]; chat: string | undefined }> {
  const files: ModelFile[] = [];
  for (const name of tokenizerFiles) {
    const bytes = await beside.file(name);
    if (bytes !== undefined) files.push({ name, bytes });
  }
  const bytesOf = (name: string) => files.find((file) => file.name === name)?.bytes;
  if (bytesOf('tokenizer.json') === undefined && bytesOf('tokenizer.model') === undefined)
    incomplete('tokenizer.json', 'the folder has neither it nor tokenizer.model', 'tokenizer.json');
  const object = async (name: string) => {
    const bytes = bytesOf(name) ?? (await beside.file(name));
    return bytes && parseObject(name, bytes);
  };
  const [tokenizer, generation] = [await object('tokenizer.json'), await object('generation_config.json')];
  // Find the chat template; of several, the default one.
  const template = await beside.file('chat_template.jinja');
  const settings = await object('tokenizer_config.json');
  const stated = member(settings, 'chat_template');
  const named = arrayMember(settings, 'chat_template') as readonly Json[];
  const found = named.find((one) => member(one, 'name') === 'default') ?? named[0];
  const text = typeof stated === 'string' ? stated : member(found, 'template');
  const chat = template === undefined ? text : decodeText('chat_template.jinja', template);
  return {
    texts: { numbers, config: keys, generation, tokenizer, files: files.map(({ name }) => name) },
    files,
    chat: typeof chat === 'string' ? chat : undefined,
  };
}

// ------------------------------------------------------------------------------------------------------------------------ converting

/** Converts a folder; undefined without a config.json. */
export async function convertWebllm(
  model: OpenModel,
  beside: Beside,
  { to, requantize = false }: MlcChoices,
): Promise<Converted | undefined> {
  const bytes = await beside.file('config.json');
  if (bytes === undefined) return undefined;
  await refuseAdapter(beside);
  const keys = parseObject('config.json', bytes);
  const config = new Config(keys, defaultsOf, largestCount(model.tensors));
  const { family, library, numbers } = libraryFor(keys, config, to);
  const tensors = await tensorsAsFloats(model, requantize);
  const needed = [...webllmParameters(family, numbers)];
  // Refuse tensors that the library has no parameter for.
  const used = new Set(needed.flatMap((parameter) => parameter.tensors.map(({ name }) => name)));
  const isLeftOut = (name: string) => unused.test(name) || (numbers.tie_word_embeddings && name === 'lm_head.weight');
  const left = tensors.map(({ name }) => name).filter((name) => !used.has(name) && !isLeftOut(name));
  if (left[0] !== undefined) {
    const message = `WebLLM's library has no parameters for these tensors: ${quotedNames(left)}`;
    throw new ScalepointError('BAD_FILE', message, { tensor: left[0] });
  }
  const { texts, files, chat } = await readFolderTexts(beside, keys, numbers);
  const [template, notes] = chooseTemplate(chat, library);
  const { quantization } = quantizationOf(to);
  const json = chatConfig(family, { context: library.context, template }, quantization, texts);
  const others = [
    { name: 'mlc-chat-config.json', bytes: new TextEncoder().encode(`${JSON.stringify(json, undefined, 2)}\n`) },
    ...files,
  ];
  // The name in `prebuiltAppConfig` of the model whose library the result uses.
  const named = `${library.model}-${quantization}-MLC`;
  const name = `${beside.folder ?? 'model'}-${quantization}-MLC`;
  // Say how WebLLM's list of models names the result.
  const address = `https://HOST/${name}`;
  const text =
    `WebLLM runs this with the library of ${named}. Serve the files from ${webllmPlace(name)}, and add { model: '${address}', model_id: ` +
    `'${name}', model_lib: prebuiltAppConfig.model_list.find((m) => m.model_id === '${named}').model_lib } to the model_list of its ` +
    'AppConfig';
  const record = { model: address, model_id: name, model_lib_of: named };
  const libraryNote = noteOf('webllmLibrary', { library: named, record }, text);
  return {
    architecture: named,
    tensors,
    async plan(choices, partsOf, readOptionFile): Promise<FilePlan> {
      const own = choices as MlcChoices;
      const statistics = await readStatistics(own, readOptionFile);
      const isGiven = statistics.importance !== undefined;
      const names = isGiven ? await (await import('../folder-to-gguf.js')).folderNames(model, beside) : undefined;
      const known = new WeightStatistics(statistics, own);
      // Parameters are in the order of the folder: that of the first tensor of each.
      const places = new Map(tensors.map(({ name }, i) => [name, i]));
      const placeOf = (parameter: NeededParameter) =>
        Math.min(...parameter.tensors.map(({ name }) => places.get(name) ?? Number.POSITIVE_INFINITY));
      const placed = needed.map((parameter) => ({ parameter, place: placeOf(parameter) }));
      placed.sort((a, b) => a.place - b.place || 0);
      const sorted = placed.map(({ parameter }) => parameter);
      const { planned, parameters } = plannedParameters(sorted, tensors, own, partsOf, known, names);
      if (isGiven && !planned.some(({ form }) => form.importance !== undefined)) {
        const message = 'the statistics have no entry for any weight of it: they are those of another model';
        throw new ScalepointError('BAD_FILE', message);
      }
      const elements = planned.reduce((sum, { source }) => sum + elementsOf(source.shape), 0);
      return {
        format: 'mlc',
        files: modelFiles(parameters, planned, elements, others),
        tensors: planned,
        notes: [...sourceNotes(tensors), ...notes, ...known.notes(), libraryNote],
        sidecars: [],
        moments: statistics.moments?.file,
      };
    },
  };
}

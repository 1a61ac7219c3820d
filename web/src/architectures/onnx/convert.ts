/** Converts a folder of a language model to a folder for transformers.js: writes its graph, and takes its weights. */
import { ScalepointError } from '../../core/errors.js';
import { type Note, noteOf } from '../../core/note.js';
import { largestCount } from '../../formats/codecs/elements.js';
import { quoted, quotedNames } from '../../formats/files/bytes.js';
import { badTensor } from '../../formats/files/errors.js';
import type { FilePlan, LogicalTensor, OpenModel, OutputFile } from '../../formats/format.js';
import { openMade } from '../../formats/onnx/file/model.js';
import type { OnnxChoices } from '../../formats/onnx/options.js';
import { planWithFiles } from '../../formats/onnx/plan.js';
import { choicesByTarget, type FolderFacts, folderFacts } from '../../formats/onnx/targets.js';
import { sourceNotes } from '../../formats/safetensors/layouts/registry.js';
import { tensorsAsFloats } from '../../formats/safetensors/safetensors.js';
import { dimensionsText } from '../carry-out.js';
import type { Beside, Converted } from '../converter.js';
import { defaultsOf, onnxGraphs } from '../families/index.js';
import { withPrefix } from '../families/rows.js';
import { Config } from '../huggingface/config.js';
import { incomplete, unsupported } from '../huggingface/errors.js';
import { refuseAdapter } from '../huggingface/files.js';
import { arrayMember, type Json, objectMember, parseObject } from '../huggingface/json.js';
import { cacheKeys, decoderGraph } from './decoder.js';
import { encoderGraph } from './encoder.js';
import { readSentence } from './sentence.js';

/** Tensors that folders may have and graphs compute. */
const unused = /\.rotary_emb\.inv_freq$|\.position_ids$/;

/** Names of tensors of heads of encoders. */
const headNames =
  /(^|\.)pooler\.|^(cls|classifier|pre_classifier|qa_outputs|lm_head|vocab_\w+|generator_\w+|discriminator_\w+|head|decoder)\./;

/** The note about heads that the graph leaves out. */
function headNotes(names: readonly string[], architecture: string): Note[] {
  if (names.length === 0) return [];
  const text = `left out, as ${architecture} does not compute them: ${quotedNames(names)}`;
  return [noteOf('headsLeftOut', { tensors: names }, text)];
}

/** Files that are copied, beside config.json. */
const copiedFiles: readonly string[] = [
  'generation_config.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
  'vocab.json',
  'merges.txt',
  'chat_template.jinja',
  'modules.json',
  'config_sentence_transformers.json',
];

/** A file of a result with known bytes. */
const textFile = (name: string, bytes: Uint8Array<ArrayBuffer>): OutputFile => ({
  suffix: `/${name}`,
  size: bytes.length,
  segments: [{ at: 0, bytes }],
});

/** The tensors that the graph reads, by name. @throws ScalepointError `BAD_FILE`, `UNSUPPORTED_DTYPE` */
function weightsFor(
  needed: ReadonlyMap<string, readonly number[]>,
  tensors: readonly LogicalTensor[],
  nameOf: (tensor: LogicalTensor) => string,
  isLeftOut: (name: string) => boolean,
): ReadonlyMap<string, LogicalTensor> {
  const byName = new Map(tensors.map((tensor) => [nameOf(tensor), tensor]));
  const found = new Map<string, LogicalTensor>();
  for (const [name, shape] of needed) {
    const tensor = byName.get(name) ?? badTensor(name, 'it is missing');
    if (dimensionsText(tensor.shape) !== dimensionsText(shape))
      badTensor(name, `its shape is ${dimensionsText(tensor.shape)}, and config.json wants ${dimensionsText(shape)}`);
    if (tensor.form.codec === 'copy') {
      const message = `tensor ${quoted(name)}: ${tensor.type} cannot be converted`;
      throw new ScalepointError('UNSUPPORTED_DTYPE', message, { tensor: name });
    }
    found.set(name, tensor);
  }
  const left = tensors.map(nameOf).filter((name) => !needed.has(name) && !isLeftOut(name));
  if (left[0] !== undefined) {
    const message = `the graph of this architecture does not read these tensors: ${quotedNames(left)}`;
    throw new ScalepointError('BAD_FILE', message, { tensor: left[0] });
  }
  return found;
}

/** Converts a folder; undefined without a config.json. */
export async function convertOnnx(
  model: OpenModel,
  beside: Beside,
  { requantize = false, profile = 'plain' }: OnnxChoices,
): Promise<Converted | undefined> {
  const bytes = await beside.file('config.json');
  if (bytes === undefined) return undefined;
  await refuseAdapter(beside);
  const keys = parseObject('config.json', bytes);
  const config = new Config(keys, defaultsOf, largestCount(model.tensors));
  const [architecture] = arrayMember(keys, 'architectures');
  const facts = onnxGraphs.get(architecture as string);
  if (facts === undefined) {
    const name = typeof architecture === 'string' ? quoted(architecture) : 'without a name';
    const known = [...onnxGraphs.keys()].join(', ');
    return unsupported('config.json', `no graph is known for the architecture ${name}; graphs are known for ${known}`);
  }
  const tensors = await tensorsAsFloats(model, requantize);
  const isDecoder = facts.kind === 'decoder';
  const nameOf = ({ name }: LogicalTensor) => (isDecoder ? withPrefix(name) : name);
  const shapes = new Map(tensors.map((tensor) => [nameOf(tensor), tensor.shape]));
  const sentence = await readSentence(beside);
  if (!isDecoder && profile === 'fused')
    unsupported(
      'config.json',
      `${architecture} is an encoder, whose graph is the same in every profile; leave the profile out`,
    );
  const graph = isDecoder
    ? decoderGraph(
        config,
        facts,
        shapes,
        profile,
        sentence ?? (/Model$/.test(architecture as string) ? null : undefined),
      )
    : encoderGraph(config, facts, shapes, architecture as string, sentence);
  const isTied = !graph.weights.has('lm_head.weight');
  // Heads of other tasks, and the second copy of a table.
  const heads = tensors.filter(({ name }) => !isDecoder && headNames.test(name) && !graph.weights.has(name));
  const isLeftOut = (name: string) =>
    unused.test(name) || (isDecoder ? isTied && name === 'lm_head.weight' : headNames.test(name));
  const made = await openMade(graph.bytes(), weightsFor(graph.weights, tensors, nameOf, isLeftOut), model);
  // Constants of the graph are read from a file behind those of the folder.
  Object.assign(model, { files: made.files });
  const files: OutputFile[] = [];
  for (const name of [...copiedFiles, ...(sentence?.files ?? [])]) {
    const found = await beside.file(name);
    if (found !== undefined) files.push(textFile(name, found));
  }
  if (!files.some(({ suffix }) => suffix === '/tokenizer.json'))
    incomplete('tokenizer.json', 'the folder lacks it, and transformers.js reads no other tokenizer', 'tokenizer.json');
  return {
    architecture: facts.modelType,
    tensors,
    async plan(choices, partsOf, readOptionFile) {
      const several = choicesByTarget(choices as OnnxChoices);
      const wanted = several.map(({ to }) => folderFacts(to) as FolderFacts);
      // The type without which transformers.js would look for another one.
      const { dtype } = wanted.find(({ target }) => target !== 'q8-blocks') ?? (wanted[0] as FolderFacts);
      // Statistics of the folder have the names of its GGUF file.
      const weightNames = async () => (await import('../folder-to-gguf.js')).folderNames(model, beside);
      const external: Record<string, number> = {};
      const types: Record<string, unknown> = {};
      const plans: FilePlan[] = [];
      const models: OutputFile[] = [];
      let planned = 0;
      for (const [i, { target, stem }] of wanted.entries()) {
        const { requantize: _, ...rest } = several[i] as OnnxChoices;
        // Without codes every weight is kept, as float32.
        const asked = target === undefined ? { to: 'q8-blocks', rules: [{ match: /^/, keep: true }] } : { to: target };
        const name = `${stem}.onnx`;
        const all = { ...rest, ...asked } as OnnxChoices;
        const plan = await planWithFiles(made, all, partsOf, name, readOptionFile, weightNames);
        // The tensors of all models are one list.
        const before = planned;
        for (const { suffix, segments, ...file } of plan.files) {
          const own = segments.map((one) => ('tensor' in one ? { ...one, tensor: one.tensor + before } : one));
          models.push({ ...file, suffix: `/onnx/${name}${suffix}`, segments: own });
        }
        planned += plan.tensors.length;
        if (plan.files.length > 1) external[name] = plan.files.length - 1;
        Object.assign(types, plan.sidecars.find(({ option }) => option === 'config')?.value.kv_cache_dtype);
        plans.push(plan);
      }
      // config.json: what transformers.js needs beside the keys of the folder, whose weights are no codes any more.
      const { quantization_config: _codes, ...stated } = keys;
      const settings: Json = {
        ...objectMember(keys, 'transformers.js_config'),
        dtype,
        ...(Object.keys(external).length > 0 && { use_external_data_format: external }),
        ...(Object.keys(types).length > 0 && { kv_cache_dtype: types }),
      };
      const own: Json = {
        model_type: facts.modelType,
        ...(isDecoder ? cacheKeys(config) : {}),
        ...stated,
        'transformers.js_config': settings,
      };
      const text = new TextEncoder().encode(`${JSON.stringify(own, undefined, 2)}\n`);
      const left = heads.map(({ name }) => name);
      const notes = [...sourceNotes(tensors), ...headNotes(left, architecture as string)];
      for (const plan of plans) notes.push(...plan.notes);
      // The first type may take no statistics.
      const moments = plans.find((plan) => plan.moments !== undefined)?.moments;
      return {
        ...(plans[0] as FilePlan),
        ...(moments && { moments }),
        refusesNonFinite: plans.some(({ refusesNonFinite = false }) => refusesNonFinite),
        format: 'onnx-folder',
        files: [...models, textFile('config.json', text), ...files],
        tensors: plans.flatMap((plan) => plan.tensors),
        // Each note once.
        notes: [...new Map(notes.map((note) => [note.text, note])).values()],
        sidecars: [],
      };
    },
  };
}

/** GGUF files as folders of Hugging Face with safetensors. Loaded with the first one. */
import { ScalepointError } from '../core/errors.js';
import { type Note, noteOf } from '../core/note.js';
import { mention } from '../core/option-problem.js';
import type { CastType } from '../formats/codecs/cast.js';
import { elementsOf } from '../formats/codecs/elements.js';
import { quoted } from '../formats/files/bytes.js';
import type { FilePlan, LogicalTensor, OpenModel, OutputFile } from '../formats/format.js';
import type { GgufModel } from '../formats/gguf/gguf.js';
import { arrayOf } from '../formats/gguf/pairs.js';
import { mergeConfig } from '../formats/safetensors/config.js';
import type { SafetensorsChoices } from '../formats/safetensors/layouts/layout.js';
import { codedLayoutOf, targetRows } from '../formats/safetensors/layouts/registry.js';
import { planTensors } from '../formats/safetensors/safetensors.js';
import type { Converted } from './converter.js';
import { knownModels } from './families/index.js';
import type { Json } from './huggingface/json.js';
import type { FileFacts } from './huggingface/outward-config.js';
import { type OutwardFolder, outwardFolder } from './outward.js';
import { hasTokenizerJson, tokenizerJson } from './tokenizer-json.js';

/** Names of the float types in config.json. */
const floatNames: Readonly<Record<CastType, string>> = { F32: 'float32', F16: 'float16', BF16: 'bfloat16' };

/** The type of most elements of matrices. */
function mainFloats(tensors: readonly LogicalTensor[]): CastType {
  const counts = new Map<CastType, number>();
  for (const { form, type, shape } of tensors) {
    if (shape.length < 2) continue;
    const own = codedLayoutOf(form)?.floats(form) ?? (type as CastType);
    counts.set(own, (counts.get(own) ?? 0) + elementsOf(shape));
  }
  return [...counts].sort(([, a], [, b]) => b - a)[0]?.[0] ?? 'F32';
}

const encoder = new TextEncoder();

const besideFile = (name: string, value: object): OutputFile => {
  const bytes = encoder.encode(`${JSON.stringify(value, null, 2)}\n`);
  return { suffix: name, isBeside: true, size: bytes.length, segments: [{ at: 0, bytes }] };
};

/** The files of the tokenizer, and a note about those that cannot be made. */
function tokenizerFiles({ header }: GgufModel): { files: OutputFile[]; notes: Note[] } {
  const key = (name: string) => header.metadata[`tokenizer.${name}`];
  if (!hasTokenizerJson(header)) {
    const kind = key('ggml.model');
    const text =
      `tokenizer.json is missing: the vocabulary ${quoted(String(kind ?? 'none'))} with the pre-tokenizer ${quoted(String(key('ggml.pre') ?? 'none'))} ` +
      'cannot be written exactly; take the files of the tokenizer from the folder of the original model';
    return { files: [], notes: [noteOf('tokenizerMissing', {}, text)] };
  }
  const tokens = (arrayOf(header, 'tokenizer.ggml.tokens') ?? []) as string[];
  const tokenOf = (role: string) => {
    const id = key(`ggml.${role}_token_id`);
    return typeof id === 'number' ? { id, text: tokens[id] } : undefined;
  };
  // Say which tokens stand around a text.
  const [first, last] = [
    key('ggml.add_bos_token') === true ? tokenOf('bos') : undefined,
    key('ggml.add_eos_token') === true ? tokenOf('eos') : undefined,
  ];
  const special = (token: typeof first) =>
    token?.text === undefined ? [] : [{ SpecialToken: { id: token.text, type_id: 0 } }];
  const around = (id: string) => [...special(first), { Sequence: { id, type_id: 0 } }, ...special(last)];
  const named = [first, last].flatMap((token) =>
    token?.text === undefined ? [] : [[token.text, { id: token.text, ids: [token.id], tokens: [token.text] }] as const],
  );
  const post_processor = {
    type: 'TemplateProcessing',
    single: around('A'),
    pair: [...around('A'), ...around('B')],
    special_tokens: Object.fromEntries(named),
  };
  const settings = {
    tokenizer_class: 'PreTrainedTokenizerFast',
    ...Object.fromEntries(
      (
        [
          ['bos_token', 'bos'],
          ['eos_token', 'eos'],
          ['unk_token', 'unknown'],
          ['pad_token', 'padding'],
        ] as const
      ).flatMap(([name, role]) => {
        const text = tokenOf(role)?.text;
        return text === undefined ? [] : [[name, text]];
      }),
    ),
    ...(key('ggml.add_bos_token') === undefined ? {} : { add_bos_token: key('ggml.add_bos_token') }),
    ...(key('ggml.add_eos_token') === undefined ? {} : { add_eos_token: key('ggml.add_eos_token') }),
    clean_up_tokenization_spaces: false,
    ...(typeof key('chat_template') === 'string' ? { chat_template: key('chat_template') } : {}),
  };
  const json = tokenizerJson(header) as Json;
  return {
    files: [
      besideFile('tokenizer.json', named.length === 0 ? json : { ...json, post_processor }),
      besideFile('tokenizer_config.json', settings),
    ],
    notes: [],
  };
}

/** The folders of open files, by their takers. A plan for a size is made of one file with each type. */
const known = new WeakMap<OpenModel, Map<FileFacts['takers'], Promise<OutwardFolder>>>();

/** A file as safetensors, with the files of its folder. @throws ScalepointError `UNKNOWN_FORMAT`, `UNSUPPORTED_DTYPE` */
export async function convertOutward(
  model: OpenModel,
  { requantize = false, to = 'bfloat16' }: Partial<SafetensorsChoices>,
): Promise<Converted> {
  const gguf = model as GgufModel;
  // Loaders of codes take the experts one by one, and elements of blocks cannot change places.
  const { kind, cast } = targetRows.get(to) ?? {};
  const takers = cast !== undefined ? undefined : kind === 'mlx' ? 'MLX' : 'others';
  const folders = known.get(model) ?? new Map<typeof takers, Promise<OutwardFolder>>();
  known.set(model, folders);
  const folder = folders.get(takers) ?? outwardFolder(gguf, takers);
  folders.set(takers, folder);
  const { className, config, tensors, names } = await folder;
  const coded = tensors.find(({ form }) => codedLayoutOf(form) !== undefined);
  if (coded !== undefined && !requantize) {
    const tensor = coded.parts[0]?.tensor.name ?? coded.name;
    const effect = 'starts from the values of the codes, which adds to their errors';
    throw new ScalepointError(
      'UNSUPPORTED_DTYPE',
      `tensor ${quoted(tensor)}: it is quantized already (${coded.type})`,
      {
        tensor,
        hint: { kind: 'try', option: mention('requantize', true), effect },
      },
    );
  }
  return {
    architecture: className,
    tensors,
    async plan(given, partsOf, readOptionFile, output): Promise<FilePlan> {
      const choices = given as SafetensorsChoices;
      const floats = targetRows.get(choices.to)?.cast ?? mainFloats(tensors);
      const own = { ...config, torch_dtype: floatNames[floats] };
      const context = {
        partsOf,
        output,
        readOptionFile,
        weightNames: async () => names,
        knownModels: async () => knownModels,
      };
      const json = async (name: string) => (name === 'config.json' ? own : undefined);
      const plan = await planTensors(tensors, { format: 'pt' }, choices, context, json);
      // The entries of codes stand in the config.json that is written.
      const entry = plan.sidecars.find(({ option }) => option === 'config');
      const whole = entry === undefined ? own : mergeConfig(own, entry.value, entry.also);
      const { files, notes } = tokenizerFiles(gguf);
      return {
        ...plan,
        files: [...plan.files, besideFile('config.json', whole), ...files],
        sidecars: plan.sidecars.filter(({ option }) => option !== 'config'),
        notes: [...plan.notes, ...notes],
      };
    },
  };
}

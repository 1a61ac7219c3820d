/**
 * Converts the vision tower of a folder to the contents of the GGUF file that llama.cpp takes as --mmproj.
 * Reference: github.com/ggml-org/llama.cpp, conversion/base.py at 720d7fa (MmprojModel) and at 00bd27a.
 */

import { show } from '../../../core/show.js';
import { largestCount } from '../../../formats/codecs/elements.js';
import { isCount } from '../../../formats/files/json.js';
import type { GgufKey } from '../../../formats/gguf/pairs.js';
import { towerArchitecture } from '../../../formats/gguf/signature.js';
import { fileTypes } from '../../../formats/gguf/targets.js';
import { defaultsOf } from '../../families/index.js';
import type { Conversion, Folder, Recipe } from '../../recipe.js';
import { Config } from '../config.js';
import { checkFolder } from '../convert.js';
import { badConfig, badFolderFile, unsupportedConfig } from '../errors.js';
import { arrayMember, type Json, member, objectMember, parseObject } from '../json.js';
import { recipes } from '../tensors.js';
import { type Pictures, towerKinds } from './towers.js';

const file = 'config.json';

/** Targets of llama.cpp's converter for towers. */
export type TowerTarget = 'F32' | 'F16' | 'BF16' | 'Q8_0';

/** A converted tower. */
export interface TowerConversion extends Conversion {
  readonly types: ReadonlyMap<string, string>;
}

/** Files about the preparation of pictures. Reference: github.com/ggml-org/llama.cpp, conversion/base.py at 720d7fa. */
const pictureFiles = ['preprocessor_config.json', 'processor_config.json'] as const;

/** Object of each file whose members count like those around it. */
const pictureObjects = ['media_proc_cfg', 'image_processor'] as const;

function readColors(name: string, value: unknown): readonly number[] | undefined {
  if (value === undefined) return undefined;
  if (Array.isArray(value) && value.length === 3 && value.every(Number.isFinite)) return value as number[];
  return badFolderFile(pictureFiles[0], `${name} has to be an array of 3 numbers, got ${show(value)}`);
}

function wholeSize(name: string, value: unknown): number | undefined {
  if (value === undefined || (isCount(value, 1) && value < 2 ** 31)) return value;
  return badFolderFile(pictureFiles[0], `${name} has to be a whole number of at least 1, got ${show(value)}`);
}

/** Reads the files. Members of the second one count more. */
async function readPictures(folder: Folder): Promise<Pictures> {
  let all: Json = {};
  for (const [i, name] of pictureFiles.entries()) {
    const bytes = await folder.file(name);
    if (bytes === undefined) continue;
    const own = parseObject(name, bytes);
    all = { ...all, ...own, ...objectMember(own, pictureObjects[i] as string) };
  }
  return {
    mean: readColors('image_mean', member(all, 'image_mean')),
    deviation: readColors('image_std', member(all, 'image_std')),
    tokens: wholeSize('image_seq_length', member(all, 'image_seq_length')),
    longestEdge: wholeSize('size.longest_edge', member(objectMember(all, 'size'), 'longest_edge')),
  };
}

/**
 * Converts a vision tower.
 * @throws ScalepointError `UNKNOWN_FORMAT` for a tower that is not known, `BAD_FILE`
 */
export async function convertTower(folder: Folder, to: TowerTarget): Promise<TowerConversion> {
  const bytes = await folder.file(file);
  if (bytes === undefined) return badConfig('the folder has none');
  const keys = parseObject(file, bytes);
  await checkFolder(folder, keys);
  // Find the kind of the tower.
  const architecture = arrayMember(keys, 'architectures')[0];
  const kind =
    typeof architecture === 'string' && Object.hasOwn(towerKinds, architecture) ? towerKinds[architecture] : undefined;
  const settings = objectMember(keys, 'vision_config');
  if (kind === undefined) {
    const sound = settings === undefined && objectMember(keys, 'audio_config') !== undefined;
    const what = sound
      ? 'towers for sound are not converted'
      : `the vision tower of ${show(architecture)} is not known`;
    const list = Object.keys(towerKinds).join(', ');
    return unsupportedConfig(`${what}; known are those of ${list}. llama.cpp's convert_hf_to_gguf.py knows more`);
  }
  if (settings === undefined) return badConfig('vision_config is missing, which describes the vision tower');
  const type = member(settings, 'model_type');
  if (type !== undefined && !kind.types.includes(type as string))
    unsupportedConfig(
      `vision_config.model_type is ${show(type)}; with ${architecture as string} it can be ${kind.types[0]}`,
    );
  const pictures = await readPictures(folder);
  const { text_config: _, ...others } = keys;
  const most = largestCount(folder.tensors);
  const vision = new Config(settings, () => kind.defaults, most, 'vision_config');
  const text = new Config(keys, defaultsOf, most);
  const tower = kind.read({ vision, top: new Config(others, undefined, most), text, pictures });
  const { sizes, heads, table } = tower;
  if (sizes.hidden % heads !== 0)
    badConfig(`vision_config: ${sizes.hidden} elements are not a multiple of ${heads} heads`);
  // The tables of towers state their shapes in numbers.
  const { layers, hidden, feedForward } = sizes;
  const all = recipes(folder.tensors, {
    table,
    sizes: {
      ...{ layers, hidden, vocabulary: 0, feedForward, heads, keyHeads: heads, head: hidden / heads },
      ...{ queries: hidden, keys: hidden, together: 3 * hidden },
    },
    architecture: towerArchitecture,
    assumed: vision.assumed,
  });
  const typeOf = ({ name, shape, sources: [from = ''] }: Recipe): string => {
    if (shape.length <= 1) return 'F32';
    const own = tower.forced?.(from);
    if (own !== undefined) return own;
    if (name.includes('.patch_embd.weight')) return to === 'F16' ? 'F16' : 'F32';
    if (name === 'v.position_embd.weight' || !name.endsWith('.weight')) return 'F32';
    return to === 'Q8_0' && (shape.at(-1) ?? 1) % 32 !== 0 ? 'F16' : to;
  };
  // Types follow from `typeOf` alone.
  const tensors = all.map(({ float32: _, ...recipe }): Recipe => recipe);
  // Collect the metadata in the converter's order.
  const { name = '' } = folder;
  const u32 = (key: string, value: number): GgufKey => ({ name: `clip.vision.${key}`, type: 'u32', value });
  const [from] = pictureFiles;
  const colors = (key: 'image_mean' | 'image_std', value: readonly number[] | undefined): GgufKey => {
    if (value === undefined) badFolderFile(from, `${key} is missing; copy ${from} of the model into the folder`);
    return { name: `clip.vision.${key}`, type: 'f32[]', value };
  };
  return {
    architecture: towerArchitecture,
    keys: [
      { name: 'general.architecture', type: 'string', value: towerArchitecture },
      { name: 'general.type', type: 'string', value: 'mmproj' },
      ...(name === '' ? [] : [{ name: 'general.name', type: 'string', value: name } as const]),
      { name: 'general.file_type', type: 'u32', value: fileTypes[to].id },
      { name: 'clip.has_vision_encoder', type: 'bool', value: true },
      u32('projection_dim', sizes.text),
      u32('image_size', tower.image),
      u32('patch_size', sizes.patch),
      u32('embedding_length', hidden),
      u32('feed_forward_length', tower.statedFeedForward ?? feedForward),
      u32('block_count', layers),
      u32('attention.head_count', heads),
      colors('image_mean', pictures.mean ?? kind.colors?.mean),
      colors('image_std', pictures.deviation ?? kind.colors?.deviation),
      ...tower.keys,
      { name: 'general.quantization_version', type: 'u32', value: 2 },
    ],
    tensors,
    notes: [],
    types: new Map(tensors.map((recipe) => [recipe.name, typeOf(recipe)])),
  };
}

/** config.json of a language model, from which transformers.js 3 knows the type of caches. */
import { ScalepointError } from '../../core/errors.js';
import type { Sidecar } from '../options.js';
import { checkConfig, configSidecar } from '../safetensors/config.js';

type Fields = Readonly<Record<string, unknown>>;

const entry = 'transformers.js_config';

/** The object of a member, or an empty one. @throws ScalepointError `BAD_FILE` */
function objectAt(fields: Fields, name: string): Fields {
  const value = fields[name] ?? {};
  if (typeof value === 'object' && !Array.isArray(value)) return value as Fields;
  throw new ScalepointError('BAD_FILE', `config: ${name} is no object`);
}

/** Settings of transformers.js, or of one device, with types of caches by dtype; the same object if they have them. */
function withTypes(fields: Fields, types: Fields): Fields {
  // A text is the type of all dtypes. Without a type it is float32.
  const { kv_cache_dtype: stated } = fields;
  const before = typeof stated === 'string' ? {} : objectAt(fields, 'kv_cache_dtype');
  const isThere = Object.keys(types).every((dtype) => stated === types[dtype] || before[dtype] === types[dtype]);
  return isThere ? fields : { ...fields, kv_cache_dtype: { ...before, ...types } };
}

/**
 * A config.json with the types of caches, as transformers.js 3 reads them: those of a device, if it has any, come before the others.
 * Reference: the package @huggingface/transformers 3.0.0 and 3.8.1, src/models.js, getSession. Version 4.3.1 reads types from the model.
 * @returns `content` itself if it has them
 */
function mergeCacheTypes(content: unknown, { kv_cache_dtype: types = {} }: Fields): Record<string, unknown> {
  checkConfig(content);
  const own = objectAt(content as Fields, entry);
  let made = withTypes(own, types as Fields);
  for (const [device, before] of Object.entries(objectAt(own, 'device_config') as Readonly<Record<string, Fields>>)) {
    const after = before?.kv_cache_dtype ? withTypes(before, types as Fields) : before;
    if (after !== before) made = { ...made, device_config: { ...(made.device_config as Fields), [device]: after } };
  }
  return (made === own ? content : { ...(content as Fields), [entry]: made }) as Record<string, unknown>;
}

const { about: _, ...alike } = configSidecar;

/** config.json in the folder of a model for transformers.js, whose models lie in a folder onnx. */
export const transformersSidecar: Sidecar = {
  ...alike,
  planned: 'transformersConfig',
  entry: 'kv_cache_dtype',
  isCompleted: true,
  inParentOf: 'onnx',
  merge: mergeCacheTypes,
  // Entries of other results stay.
  without: () => undefined,
  fits: () => false,
  nameFor: () => 'config.json',
};

/** The type of caches that a config.json states for a dtype of transformers.js 3; undefined if it states none, which means float32. */
export function cacheTypeIn(config: Fields, dtype: string): string | undefined {
  const types = (config[entry] as Fields | null | undefined)?.kv_cache_dtype;
  const type = typeof types === 'string' ? types : (types as Fields | null | undefined)?.[dtype];
  return typeof type === 'string' ? type : undefined;
}

/**
 * Edits of the metadata of a GGUF file, like --override-kv of llama-quantize. Tensors do not change.
 * Reference: github.com/ggml-org/llama.cpp, tools/quantize/quantize.cpp at 03161a4.
 */
import { rangeError } from '../../core/errors.js';
import { ofType } from '../../core/option-problem.js';
import { type GgufPair, type ValueType, type ValueTypeName, valueTypes } from './contents.js';
import type { GgufHeader } from './header.js';
import { pairOf } from './pairs.js';

/** Values of the metadata to write, by their keys: texts, truth values, whole numbers and fractions. */
export type MetadataEdits = Readonly<
  Record<
    string,
    | string
    | boolean
    | {
        /** A whole number from 0 to 2^32 - 1, stored as u32. */
        readonly int: number;
      }
    | {
        /** Rounded to float32, and stored as f32. */
        readonly float: number;
      }
  >
>;

/** The value of a key to write. */
export type MetadataEdit = MetadataEdits[string];

/** Key of a model's name. */
export const nameKey = 'general.name';
/** Key of a model's chat template. */
export const templateKey = 'tokenizer.chat_template';

/**
 * The pairs with the edits. Edited pairs move to the end, as in ggml.
 * @throws RangeError if a key has a value of another kind
 */
export function edited(
  pairs: readonly GgufPair[],
  { pairs: before }: Pick<GgufHeader, 'pairs'>,
  edits: MetadataEdits = {},
): GgufPair[] {
  const known = new Map(before.map((pair) => [pair.key, pair]));
  const made = Object.entries(edits).map(([name, edit]) => {
    let pair: GgufPair;
    if (typeof edit === 'string') pair = pairOf({ name, type: 'string', value: edit });
    else if (typeof edit === 'boolean') pair = pairOf({ name, type: 'bool', value: edit });
    else if ('int' in edit) pair = pairOf({ name, type: 'u32', value: edit.int });
    else pair = pairOf({ name, type: 'f32', value: edit.float });
    const replaced = known.get(name);
    const type = replaced && storedType(replaced);
    // All integers are of one kind, and all fractions.
    const kindOf = (type: string) => type.replace(/^[ui]\d+$/, 'int').replace(/^f\d+$/, 'float');
    if (type !== undefined && kindOf(type) !== kindOf(storedType(pair))) {
      throw rangeError(`metadata[${JSON.stringify(name)}]`, ofType(type), edit, { kind: 'as', option: 'file' });
    }
    return pair;
  });
  return [...pairs.filter(({ key }) => !Object.hasOwn(edits, key)), ...made];
}

/** Type of a pair's value. */
function storedType({ bytes }: GgufPair): ValueTypeName {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const number = view.getUint32(8 + Number(view.getBigUint64(0, true)), true);
  return (valueTypes[number] as ValueType).name;
}

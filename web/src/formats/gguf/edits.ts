/**
 * Edits of the metadata of a GGUF file, like --override-kv of llama-quantize. Tensors do not change.
 * Reference: github.com/ggml-org/llama.cpp, tools/quantize/quantize.cpp at 03161a4.
 */
import { rangeError, typeError } from '../../core/errors.js';
import { type Expected, type Hint, ofType, whole } from '../../core/option-problem.js';
import { amended, option, type Words } from '../../core/schema.js';
import { alignmentKey, type GgufPair, type ValueType, type ValueTypeName, valueTypes } from './contents.js';
import type { GgufHeader } from './header.js';
import { pairOf, splitKeys } from './pairs.js';

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

type MetadataEdit = MetadataEdits[string];

/** Key of a model's name. */
export const nameKey = 'general.name';
const templateKey = 'tokenizer.chat_template';

/** Keys that follow from the layout of the file. */
const ownKeys: readonly string[] = [alignmentKey, ...splitKeys];

/** ggml keeps keys in 128 bytes where it overrides them. */
const mostKeyBytes = 127;
const mostInt = 2 ** 32 - 1;

const byLayout: Hint = { kind: 'because', message: 'it follows from the layout of the file' };

/** Valid values of a key, for errors. */
const editForm: Expected = {
  kind: 'anyOf',
  of: [ofType('string', 'boolean'), { kind: 'object', keys: ['int'] }, { kind: 'object', keys: ['float'] }],
};

function checkEdit(edit: unknown, path: string): void {
  if (typeof edit === 'boolean') return;
  if (typeof edit === 'string') {
    // A lone surrogate would be stored as another character.
    if (!/\p{Surrogate}/u.test(edit)) return;
    throw rangeError(path, ofType('text of whole characters'), edit);
  }
  const { int, float, ...rest } = (typeof edit === 'object' && edit !== null ? edit : { edit }) as Record<
    string,
    unknown
  >;
  const isOne = (int === undefined) !== (float === undefined) && Object.keys(rest).length === 0;
  if (!isOne) throw typeError(path, editForm, edit);
  if (int !== undefined && !(Number.isInteger(int) && (int as number) >= 0 && (int as number) <= mostInt)) {
    throw rangeError(`${path}.int`, whole(0, mostInt), int);
  }
  if (float !== undefined && !(typeof float === 'number' && Number.isFinite(Math.fround(float)))) {
    throw rangeError(`${path}.float`, { kind: 'number', finite: true }, float);
  }
}

// ------------------------------------------------------------------------------------------------------------------- command line

const overrides = ['llama.context_length=int:8192', 'llama.rope.freq_base=float:1e4', 'KEY=bool:true', 'KEY=str:TEXT'];

/** The option for edits of the metadata. */
export const metadata = amended(
  option<MetadataEdits>(
    (value, name) => {
      if (typeof value !== 'object' || value === null || Array.isArray(value)) {
        throw typeError(name, ofType('object'), value);
      }
      for (const [key, edit] of Object.entries(value)) {
        const path = `${name}[${JSON.stringify(key)}]`;
        const bytes = new TextEncoder().encode(key).length;
        if (bytes === 0 || bytes > mostKeyBytes || key.includes('\0')) {
          throw rangeError(path, { kind: 'number', min: 1, max: mostKeyBytes, unit: 'bytes' }, bytes);
        }
        if (ownKeys.includes(key)) throw rangeError(path, { kind: 'absent' }, edit, byLayout);
        checkEdit(edit, path);
      }
    },
    {
      name: 'override-kv',
      value: 'KEY=TYPE:VALUE',
      multiple: true,
      about: 'set a key of the metadata, TYPE is int, float, bool or str; can be repeated',
    },
    { name: 'name', value: 'TEXT', about: `the name of the model, ${nameKey}` },
    { name: 'chat-template', value: 'FILE', isText: true, about: `${templateKey}, from a file` },
  ),
  {
    read({ 'override-kv': words, name, 'chat-template': template }: Words) {
      const edits: (readonly [key: string, value: MetadataEdit])[] = [];
      for (const word of Array.isArray(words) ? (words as readonly string[]) : []) {
        const [, key, type = '', text = ''] = /^([^=]+)=(\w+):(.*)$/s.exec(word) ?? [];
        if (key === undefined || !['int', 'float', 'bool', 'str'].includes(type)) {
          throw rangeError('--override-kv', { kind: 'text', form: 'KEY=TYPE:VALUE', examples: overrides }, word);
        }
        let edit: MetadataEdit | undefined;
        if (type === 'str') edit = text;
        else if (type === 'bool' && /^(true|false)$/.test(text)) edit = text === 'true';
        else if (type === 'int' && /^\d{1,15}$/.test(text)) edit = { int: Number(text) };
        else if (type === 'float' && /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text)) edit = { float: Number(text) };
        if (edit === undefined) throw rangeError('--override-kv', ofType(type), word);
        edits.push([key, edit]);
      }
      if (name !== undefined) edits.push([nameKey, String(name)]);
      if (template !== undefined) edits.push([templateKey, String(template)]);
      const keys = edits.map(([key]) => key);
      const twice = keys.find((key, i) => keys.indexOf(key) < i);
      if (twice !== undefined) throw rangeError('--override-kv', { kind: 'distinct' }, twice);
      return Object.fromEntries(edits);
    },
  },
);

// -------------------------------------------------------------------------------------------------------------------------- pairs

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

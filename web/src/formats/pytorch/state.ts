/** Finds the tensors of a model in the value that torch.save stored: a dictionary of them, perhaps within a checkpoint. */
import { ScalepointError } from '../../core/errors.js';
import { quoted, quotedNames } from '../../files/bytes.js';
import { isKind } from './pickle.js';
import type { DictValue, PickleValue, TensorValue } from './values.js';

/** The tensors of a model. */
export interface State {
  readonly tensors: ReadonlyMap<string, TensorValue>;
  /** Keys of the dictionaries that lead to it. */
  readonly path: readonly string[];
  /** Other keys in these dictionaries, whose values are left out. */
  readonly leftOut: readonly string[];
}

/** Keys under which checkpoints keep the state of a model, the surest first. */
const usualKeys: readonly string[] = [
  'state_dict',
  'model_state_dict',
  'module',
  'model',
  'params_ema',
  'params',
  'net',
  'generator',
  'weights',
];

/** Dictionaries are looked for in this depth. */
const mostDepth = 4;

interface Found {
  readonly dict: DictValue;
  readonly path: readonly string[];
  readonly leftOut: readonly string[];
}

function bad(message: string): never {
  throw new ScalepointError('BAD_FILE', message, { byteOffset: 0 });
}

const keyText = (key: PickleValue) => (typeof key === 'string' ? key : `(${typeof key})`);

/**
 * Finds the dictionary of tensors in a dictionary; undefined if it holds no tensors.
 * @param known results by depth, because a value may occur many times
 */
function foundIn(dict: DictValue, depth: number, known: Map<DictValue, Found | undefined>[]): Found | undefined {
  const results = known[depth] ?? new Map<DictValue, Found | undefined>();
  known[depth] = results;
  if (results.has(dict)) return results.get(dict);
  results.set(dict, undefined);
  const found = searched(dict, depth, known);
  results.set(dict, found);
  return found;
}

function searched(dict: DictValue, depth: number, known: Map<DictValue, Found | undefined>[]): Found | undefined {
  const inner = new Map<PickleValue, Found>();
  if (depth < mostDepth) {
    for (const [key, value] of dict.entries) {
      const found = isKind(value, 'dict') ? foundIn(value, depth + 1, known) : undefined;
      if (found !== undefined) inner.set(key, found);
    }
  }
  const others = (taken: PickleValue) => [...dict.entries.keys()].filter((key) => key !== taken).map(keyText);
  const within = (key: PickleValue) => {
    const { dict: own, path, leftOut } = inner.get(key) as Found;
    return { dict: own, path: [keyText(key), ...path], leftOut: [...others(key), ...leftOut] };
  };
  const usual = usualKeys.find((key) => inner.has(key));
  if (usual !== undefined) return within(usual);
  const names = [...dict.entries].filter(([, value]) => isKind(value, 'tensor'));
  if (names.length > 0) {
    const leftOut = [...dict.entries].filter(([, value]) => !isKind(value, 'tensor')).map(([key]) => keyText(key));
    return { dict, path: [], leftOut };
  }
  if (inner.size > 1) {
    const keys = [...inner.keys()].map(keyText);
    bad(`the file holds several dictionaries of tensors, ${quotedNames(keys)}; save one of them alone`);
  }
  const [only] = inner.keys();
  return only === undefined ? undefined : within(only);
}

/**
 * The tensors in a value.
 * @param name of a tensor that was saved alone
 * @throws ScalepointError `BAD_FILE` if there are no tensors, several dictionaries of them, or names that are not texts
 */
export function stateOf(root: PickleValue, name: string): State {
  if (isKind(root, 'tensor')) return { tensors: new Map([[name, root]]), path: [], leftOut: [] };
  const found = isKind(root, 'dict') ? foundIn(root, 0, []) : undefined;
  if (found === undefined) bad('the file holds no dictionary of tensors, such as a state_dict');
  const tensors = new Map<string, TensorValue>();
  for (const [key, value] of found.dict.entries) {
    if (!isKind(value, 'tensor')) continue;
    if (typeof key !== 'string') bad('the name of a tensor is not a text');
    if (key === '__metadata__') bad(`a tensor is called ${quoted(key)}, which no tensor of a result can be`);
    tensors.set(key, value);
  }
  return { tensors, path: found.path, leftOut: found.leftOut };
}

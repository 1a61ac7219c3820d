/** Finds the tensors of a model in the value that torch.save stored: a dictionary of them, perhaps within a checkpoint. */
import { quoted, quotedNames } from '../files/bytes.js';
import { badFile } from '../files/errors.js';
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

/** Keys of the state of a training, which is left out where a checkpoint has a model besides. */
const trainingKeys = /^(optim|(lr_?)?sched|(grad_?)?scaler)/i;

/** Dictionaries are looked for in this depth. */
const mostDepth = 4;

interface Found {
  readonly dict: DictValue;
  /** The key under which a dictionary in it holds the tensors, and what is there; undefined if it holds them itself. */
  readonly within?: { readonly key: string; readonly found: Found };
  /** Keys of dictionaries of tensors of which none goes first. An error only if no other dictionary is chosen before. */
  readonly several?: readonly string[];
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
  const inner = new Map<string, Found>();
  if (depth < mostDepth) {
    for (const [key, value] of dict.entries) {
      // Numbers are those of parameters in the state of an optimizer.
      if (typeof key !== 'string' || !isKind(value, 'dict')) continue;
      const found = foundIn(value, depth + 1, known);
      if (found !== undefined) inner.set(key, found);
    }
  }
  const within = (key: string): Found => {
    const found = inner.get(key) as Found;
    return { dict, within: { key, found }, ...(found.several === undefined ? {} : { several: found.several }) };
  };
  const chosen = (): Found | undefined => {
    const usual = usualKeys.find((key) => inner.has(key));
    if (usual !== undefined) return within(usual);
    if ([...dict.entries].some(([key, value]) => typeof key === 'string' && isKind(value, 'tensor'))) return { dict };
    const keys = [...inner.keys()];
    const models = keys.filter((key) => !trainingKeys.test(key));
    const candidates = models.length > 0 ? models : keys;
    if (candidates.length > 1) return { dict, several: candidates };
    const [only] = candidates;
    return only === undefined ? undefined : within(only);
  };
  const found = chosen();
  results.set(dict, found);
  return found;
}

/**
 * The tensors in a value.
 * @param name of a tensor that was saved alone
 * @throws ScalepointError `BAD_FILE` if there are no tensors, several dictionaries of them, or names that are not texts
 */
export function stateOf(root: PickleValue, name: string): State {
  if (isKind(root, 'tensor')) return { tensors: new Map([[name, root]]), path: [], leftOut: [] };
  const found = isKind(root, 'dict') ? foundIn(root, 0, []) : undefined;
  if (found === undefined) badFile('the file holds no dictionary of tensors, such as a state_dict', 0);
  const { several } = found;
  if (several !== undefined)
    badFile(`the file holds several dictionaries of tensors, ${quotedNames(several)}; save one of them alone`, 0);

  // Go down to the tensors, and collect other keys on the way.
  const path: string[] = [];
  const leftOut: string[] = [];
  let at = found;
  for (; at.within !== undefined; at = at.within.found) {
    const { key: taken } = at.within;
    path.push(taken);
    for (const key of at.dict.entries.keys()) if (key !== taken) leftOut.push(keyText(key));
  }
  const tensors = new Map<string, TensorValue>();
  for (const [key, value] of at.dict.entries) {
    if (!isKind(value, 'tensor')) {
      leftOut.push(keyText(key));
      continue;
    }
    if (typeof key !== 'string') badFile('the name of a tensor is not a text', 0);
    if (key === '__metadata__') badFile(`a tensor is called ${quoted(key)}, which no tensor of a result can be`, 0);
    tensors.set(key, value);
  }
  return { tensors, path, leftOut };
}

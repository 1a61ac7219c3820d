/** Compares codes in the layout of compressed-tensors with their configuration. */

import { show } from '../../../../core/show.js';
import type { CompressedForm } from '../../../codecs/compressed-tensors.js';
import type { Finding, LogicalTensor } from '../../../format.js';
import { isFields } from '../../stored-model.js';
import { noteFound, problemFound } from '../findings.js';
import type { Fields } from '../layout.js';
import { groupsOf, listOf, ModuleLists } from './groups.js';

/** A tensor that holds codes. */
interface Coded extends LogicalTensor {
  readonly form: CompressedForm;
}

/** Findings for a group that contradicts a weight. */
function differences({ name, shape, form }: Coded, weights: Fields, format: unknown): Finding[] {
  const { type, bits, symmetric, groupSize, packed } = form;
  const found: Finding[] = [];
  const add = (key: string, stated: unknown, actual: unknown, text: string) =>
    found.push(problemFound('configDiffers', `config.json says ${text}`, { tensor: name, key, stated, actual }));
  const expect = (key: string, actual: unknown) => {
    const stated = weights[key];
    if (stated !== actual) add(key, stated, actual, `${key} ${show(stated)}, but it is ${show(actual)}`);
  };
  expect('num_bits', bits);
  expect('type', type);
  expect('symmetric', symmetric);
  // A group of a whole row equals one scale per row.
  const whole = groupSize === undefined && weights.group_size === shape[1];
  if (groupSize !== undefined) expect('group_size', groupSize);
  else if (weights.strategy === 'group' && !whole) expect('strategy', 'channel');
  if (typeof format === 'string' && (format === 'pack-quantized') !== packed) {
    const are = packed ? 'packed' : 'not packed';
    add('format', format, are, `format ${show(format)}, but the codes are ${are}`);
  }
  return found;
}

/** Compares weights with the `quantization_config` that describes them. */
export function verifyCompressed(coded: readonly LogicalTensor[], quantization: Fields): Finding[] {
  const { ignore, format } = quantization;
  const groupOf = groupsOf(quantization);
  const ignored = new ModuleLists([listOf(ignore)]);
  return coded.flatMap((tensor): Finding[] => {
    const { name } = tensor;
    if (!name.endsWith('.weight')) {
      return [
        noteFound('notNameable', 'config.json cannot refer to it: its name does not end in .weight', { tensor: name }),
      ];
    }
    const module = name.slice(0, -'.weight'.length);
    if (ignored.find(module) >= 0) {
      return [problemFound('ignored', 'config.json says that it holds no codes (ignore)', { tensor: name })];
    }
    const group = groupOf(module);
    if (group === undefined) return [problemFound('noGroup', 'no group of config.json names it', { tensor: name })];
    const weights = isFields(group.weights) ? group.weights : {};
    return differences(tensor as Coded, weights, group.format ?? format);
  });
}

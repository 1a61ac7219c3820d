/** Steps of a tokenizer.json's normalizer or pre-tokenizer. */
import { show } from '../../core/show.js';
import { unsupported } from './errors.js';
import { arrayMember, isObject, type Json, member } from './json.js';

/** Sequences in each other that are read. Real files have two. */
const mostDepth = 8;

/** The list of a sequence's members, and the word for one of them. */
const words = { normalizers: 'normalizer', pretokenizers: 'pre-tokenizer' } as const;

/** Steps of a normalizer or pre-tokenizer, nested sequences laid flat. @throws ScalepointError `UNKNOWN_FORMAT` */
export function flatSteps(entry: unknown, list: keyof typeof words, depth = 0): readonly Json[] {
  if (entry === undefined) return [];
  if (!isObject(entry)) return unsupported('tokenizer.json', `the ${words[list]} ${show(entry)} is not known`);
  if (depth > mostDepth)
    return unsupported('tokenizer.json', `${list} are nested too deeply: more than ${mostDepth} sequences`);
  if (member(entry, 'type') !== 'Sequence') return [entry];
  return arrayMember(entry, list).flatMap((one) => flatSteps(one, list, depth + 1));
}

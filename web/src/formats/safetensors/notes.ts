/** Notes about options that would convert weights which a safetensors result keeps. */
import { grouped } from '../../core/groups.js';
import { type Note, noteOf } from '../../core/note.js';
import { mention, type OptionMention } from '../../core/option-problem.js';
import type { LogicalTensor, PlannedTensor } from '../format.js';
import type { Reason } from '../reason.js';
import { safetensorsTargets, targetRow } from './targets.js';

/** A kept weight that an option or a rule would convert. */
export interface LeftWeight {
  readonly source: LogicalTensor;
  /** Size as floats. */
  readonly bytes: number;
  readonly reason: Reason;
  /** Remedy: another size of groups alone, `include: 'all'`, or a rule. */
  readonly by: 'groups' | 'include' | 'rule';
  /** Groups that do not divide its rows. */
  readonly groups: UncutGroups | undefined;
}

/** Groups that do not divide the rows of a weight. */
export interface UncutGroups {
  /** Path of the granularity that sets them. */
  readonly path: string;
  readonly size: number;
  /** True if the target has no other choice than groups. */
  readonly isFixed: boolean;
}

/** Number of elements in a row. */
const columnsOfLeft = ({ source }: LeftWeight) => source.shape.at(-1) as number;

/** The note about weights that stay floats. @param why words behind their number @param remedy what converts them */
function leftNote(
  kind: string,
  left: readonly LeftWeight[],
  why: string,
  remedy: readonly (string | OptionMention)[],
  data: object = {},
): Note {
  const stay = left.length === 1 ? '1 weight stays' : `${left.length} weights stay`;
  return noteOf(kind, { tensors: left.map(({ source }) => source.name), ...data }, stay + why, ...remedy);
}

/** An option that converts weights, with one for their groups if these do not divide all rows. */
function remedyFor(option: OptionMention | undefined, left: readonly LeftWeight[]): (string | OptionMention)[] {
  const options = option === undefined ? [] : [option];
  const uncut = left.flatMap((one) =>
    one.groups === undefined ? [] : [{ ...one.groups, columns: columnsOfLeft(one) }],
  );
  const [first] = uncut;
  if (first !== undefined) {
    const most = uncut.reduce((largest, { size }) => Math.max(largest, size), 0);
    const usual = new Set(safetensorsTargets.flatMap((to) => targetRow(to)?.groupSizes ?? []));
    const groupSize = [...usual]
      .sort((a, b) => b - a)
      .find((size) => size < most && uncut.every(({ columns }) => columns % size === 0));
    // Some loaders know no rows without groups.
    if (groupSize !== undefined) options.push(mention(first.path, { kind: 'per-group', groupSize }));
    else if (!uncut.some(({ isFixed }) => isFixed)) options.push(mention(first.path, { kind: 'per-channel' }));
  }
  if (options.length === 0) return [];
  const all = options.flatMap((one, i) => (i === 0 ? [one] : [' and ', one]));
  return ['; ', ...all, ` ${options.length > 1 ? 'convert' : 'converts'} ${left.length === 1 ? 'it' : 'them'}`];
}

const bytesOfAll = (list: readonly { readonly bytes: number }[]) => list.reduce((sum, { bytes }) => sum + bytes, 0);

/** Notes about options that would convert kept weights. */
export function notesOnLeft(converted: readonly PlannedTensor[], left: readonly LeftWeight[], to: string): Note[] {
  const rows = left.filter(({ by }) => by === 'groups');
  const ruled = left.filter(({ by }) => by === 'rule');
  const doubles = ruled.filter(({ reason }) => reason.kind === 'dtype');
  const named = ruled.filter(({ reason }) => reason.kind !== 'dtype');
  const others = left.filter(({ by }) => by === 'include');
  const notes = [...grouped(rows, ({ groups }) => groups?.path).values()].map((some) => {
    const columns = [...new Set(some.map(columnsOfLeft))];
    const groupSizes = [...new Set(some.flatMap(({ groups }) => groups?.size ?? []))];
    const few = columns.length > 3 ? `${columns.slice(0, 3).join(', ')} and others` : columns.join(', ');
    const why = `: rows of ${few} cannot be divided into groups of ${groupSizes.join(' or ')}`;
    return leftNote('leftRows', some, why, remedyFor(undefined, some), { columns, groupSizes });
  });
  const rule = mention('rules[].to', to);
  if (doubles.length > 0) notes.push(leftNote('leftDoubles', doubles, ', as float64', remedyFor(rule, doubles)));
  // Ignore a few small ones among many, such as the first layer of a vision transformer.
  const convertedBytes = () =>
    bytesOfAll(converted.flatMap(({ source: { parts } }) => parts.map(({ tensor }) => tensor)));
  if (others.length > 0 && bytesOfAll(others) > convertedBytes()) {
    const remedy = remedyFor(mention('include', 'all'), others);
    const readers = ', for programs that read the file with Scalepoint';
    notes.push(leftNote('leftLayers', others, ': loaders decode linear layers only', [...remedy, readers]));
  }
  // Most models keep such weights on purpose. Name the remedy only if there is nothing else.
  if (named.length > 0 && converted.length + rows.length + doubles.length + others.length === 0)
    notes.push(leftNote('leftByName', named, ', because of their names', remedyFor(rule, named)));
  return notes;
}

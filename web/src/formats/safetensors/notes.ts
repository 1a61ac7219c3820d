/** Notes about options that would convert weights which a safetensors result keeps. */
import { grouped } from '../../core/groups.js';
import { type Note, noteOf } from '../../core/note.js';
import { mention, type OptionMention } from '../../core/option-problem.js';
import type { LogicalTensor, PlannedTensor } from '../format.js';
import type { Reason } from '../reason.js';
import { usualGroupSizes } from './targets.js';

/** A kept weight that an option or a rule would convert. */
export interface Left {
  readonly source: LogicalTensor;
  /** Size as floats. */
  readonly bytes: number;
  readonly reason: Reason;
  /** Remedy: another size of groups alone, `include: 'all'`, or a rule. */
  readonly by: 'groups' | 'include' | 'rule';
  /** Path of the granularity whose groups do not divide its rows; undefined if they do. */
  readonly groups:
    | {
        readonly path: string;
        readonly size: number;
        /** True if the target has no other choice than groups. */
        readonly isFixed: boolean;
      }
    | undefined;
}

const weights = (n: number) => `${n} ${n === 1 ? 'weight' : 'weights'}`;

const stay = (n: number) => `${weights(n)} ${n === 1 ? 'stays' : 'stay'}`;

const them = (n: number) => (n === 1 ? 'it' : 'them');

const namesOf = (list: readonly { readonly source: LogicalTensor }[]) => list.map(({ source }) => source.name);

const bytesOf = (list: readonly { readonly bytes: number }[]) => list.reduce((sum, { bytes }) => sum + bytes, 0);

/** Number of elements in a row. */
const columnsOf = ({ source }: Left) => source.shape.at(-1) as number;

/** Option that converts rows that groups do not divide; empty if groups divide all of them. */
function otherGroups(left: readonly Left[]): OptionMention[] {
  const groups = left.flatMap((one) => (one.groups === undefined ? [] : [{ ...one.groups, columns: columnsOf(one) }]));
  const [first] = groups;
  if (first === undefined) return [];
  const most = groups.reduce((largest, { size }) => Math.max(largest, size), 0);
  const fits = (size: number) => size < most && groups.every(({ columns }) => columns % size === 0);
  const groupSize = usualGroupSizes.find(fits);
  if (groupSize !== undefined) return [mention(first.path, { kind: 'per-group', groupSize })];
  // Some loaders know no rows without groups.
  return groups.some(({ isFixed }) => isFixed) ? [] : [mention(first.path, { kind: 'per-channel' })];
}

/** An option that converts weights, with one for their groups if that is needed as well. */
function remedy(option: OptionMention, left: readonly Left[]): (string | OptionMention)[] {
  const groups = otherGroups(left);
  const verb = groups.length > 0 ? 'convert' : 'converts';
  return [option, ...groups.flatMap((one) => [' and ', one]), ` ${verb} ${them(left.length)}`];
}

/** The first few numbers of a list, as text. */
function firstFew(numbers: readonly number[]): string {
  return numbers.length > 3 ? `${numbers.slice(0, 3).join(', ')} and others` : numbers.join(', ');
}

/** The note about rows that groups of one option do not divide. */
function rowsNote(left: readonly Left[]): Note {
  const columns = [...new Set(left.map(columnsOf))];
  const groupSizes = [...new Set(left.flatMap(({ groups }) => groups?.size ?? []))];
  const why = `rows of ${firstFew(columns)} cannot be divided into groups of ${groupSizes.join(' or ')}`;
  const options = otherGroups(left);
  return noteOf(
    'leftRows',
    { tensors: namesOf(left), columns, groupSizes },
    `${stay(left.length)}: ${why}`,
    ...(options.length === 0 ? [] : ['; ', ...options, ` converts ${them(left.length)}`]),
  );
}

/** The note about weights that only a rule converts. @param why the words of the reason */
function rulesNote(kind: string, why: string, to: string, left: readonly Left[]): Note {
  return noteOf(
    kind,
    { tensors: namesOf(left) },
    `${stay(left.length)}, ${why}; `,
    ...remedy(mention('rules[].to', to), left),
  );
}

/** The note about weights of layers that are not linear. */
function otherLayersNote(left: readonly Left[]): Note {
  return noteOf(
    'leftLayers',
    { tensors: namesOf(left) },
    `${stay(left.length)}: loaders decode linear layers only; `,
    ...remedy(mention('include', 'all'), left),
    ', for programs that read the file with Scalepoint',
  );
}

/** Notes about options that would convert kept weights. */
export function notesOnLeft(converted: readonly PlannedTensor[], left: readonly Left[], to: string): Note[] {
  const rows = left.filter(({ by }) => by === 'groups');
  const isDouble = ({ reason }: Left) => reason.kind === 'dtype';
  const ruled = left.filter(({ by }) => by === 'rule');
  const doubles = ruled.filter(isDouble);
  const named = ruled.filter((one) => !isDouble(one));
  const others = left.filter(({ by }) => by === 'include');
  // Ignore a few small ones among many, such as the first layer of a vision transformer.
  const convertedBytes = () =>
    bytesOf(converted.map(({ source: { parts } }) => ({ bytes: bytesOf(parts.map(({ tensor }) => tensor)) })));
  return [
    ...[...grouped(rows, ({ groups }) => groups?.path).values()].map(rowsNote),
    ...(doubles.length > 0 ? [rulesNote('leftDoubles', 'as float64', to, doubles)] : []),
    ...(others.length > 0 && bytesOf(others) > convertedBytes() ? [otherLayersNote(others)] : []),
    // Most models keep such weights on purpose. Name the remedy only if there is nothing else.
    ...(named.length > 0 && converted.length + rows.length + doubles.length + others.length === 0
      ? [rulesNote('leftByName', 'because of their names', to, named)]
      : []),
  ];
}

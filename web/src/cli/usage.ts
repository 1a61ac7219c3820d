/** The texts of --help: as wide as the terminal, from 40 to 80 columns. Commands, their flags and the formats say what is in them. */
import { type FormatInfo, formats, orList } from '../tooling.js';
import { type CommandFlag, type FlagGroup, optionTables } from './flags.js';
import { type Command, type Commands, groupsOf } from './parse.js';
import { terminalColumns } from './text.js';

/** Columns of a line. */
function lineWidth(): number {
  return Math.max(40, Math.min(80, terminalColumns(process.stdout)));
}

/** Words in lines of that width, all of which begin with some spaces. */
function wrapped(text: string, indent = 0): string[] {
  const width = lineWidth();
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && indent + line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line].map((part) => ' '.repeat(indent) + part);
}

/** The column where explanations begin, and the columns that they need. */
const column = 24;
const leastAbout = 32;

/** A term and its explanation. */
function explained(term: string, about: string, at = column): string[] {
  // In a narrow terminal, explanations stand below.
  if (lineWidth() < at + leastAbout) return [term, ...wrapped(about, 6)];
  const lines = wrapped(about, at);
  if (term.length > at - 2) return [term, ...lines];
  return [term.padEnd(at) + (lines[0] as string).trimStart(), ...lines.slice(1)];
}

/** The lines of a flag. @param all true for its whole text */
function flagLines(name: string, flag: CommandFlag, all: boolean): string[] {
  const { short, value, about, usual, rest, lists } = flag;
  const term = `  ${short === undefined ? '' : `-${short}, `}--${name}${value === undefined ? '' : ` ${value}`}`;
  if (!all && usual !== true) return explained(term, (typeof usual === 'function' ? usual() : usual) ?? about);
  const values = all ? (lists?.() ?? []) : [];
  return [
    ...explained(term, about + (rest?.() ?? '')),
    ...values.flatMap((list) => explained(`      ${list.title}`, list.values.join(' '), 26)),
  ];
}

/** The lines of flags, without --help itself. @param all false for those of most command lines alone */
function groupLines({ title, flags }: FlagGroup, all: boolean): string[] {
  const shown = Object.entries(flags).filter(([name, { usual }]) =>
    all ? name !== 'help' && name !== 'help-all' : usual !== undefined,
  );
  if (shown.length === 0) return [];
  return ['', ...(title === undefined ? [] : [title]), ...shown.flatMap(([name, flag]) => flagLines(name, flag, all))];
}

const joinLines = (lines: readonly string[]) => `${lines.join('\n')}\n`;

/** The help without a command. */
export function overview(commands: Commands): string {
  const extensions = formats.flatMap(({ extensions: all }) => all);
  return joinLines([
    'scalepoint: make models smaller',
    '',
    ...Object.entries(commands).flatMap(([name, { line, about }]) =>
      explained(`  scalepoint ${line?.() ?? name}`, about, 48),
    ),
    '',
    ...wrapped(
      `FILE is a ${orList(extensions)} file; its content decides, not its name. It may be a folder that holds a model, ` +
        'a URL, a model of the Hugging Face hub as hf:OWNER/NAME or hf:OWNER/NAME:Q8_0, or - for standard input. For a model in several files, name the index or, for GGUF, the first file. OUT may be - for ' +
        'standard output.',
    ),
    ...wrapped(
      'scalepoint help COMMAND explains a command, and --help-all all of its options; scalepoint --version prints version and build.',
    ),
  ]);
}

/** True for a command whose help has more than a screen shows. */
export const isLong = (command: Command): boolean =>
  groupsOf(command).some(({ flags }) => Object.hasOwn(flags, 'help-all'));

/** The help of a command. @param all true for all flags, false for those that a screen shows */
export function helpText(command: Command, all: boolean): string {
  const { usage, text, exits: [done, failed] = ['done', 'failed'], footnotes, examples } = command;
  const isWhole = all || !isLong(command);
  return joinLines([
    ...usage.map((line) => `scalepoint ${line}`),
    '',
    ...wrapped(text(isWhole)),
    ...groupsOf(command).flatMap((group) => groupLines(group, isWhole)),
    '',
    ...(isWhole ? (footnotes?.() ?? []) : []).flatMap((note) => wrapped(note)),
    ...wrapped(`Exit code: 0 ${done}, 1 ${failed}, 2 wrong usage, 130 interrupted.`),
    '',
    'Examples',
    ...examples(isWhole).map((example) => `  scalepoint ${example}`),
  ]);
}

// ----------------------------------------------------------------------------------------------------------------------- examples

/** A name for a file of a format, or one of its other endings. Files of some formats have one name. */
export function exampleFile({ extensions: [usual = ''] }: Pick<FormatInfo, 'extensions'>, stem = 'model'): string {
  return usual.startsWith('.') ? stem + usual : usual;
}

/** The format that examples are of, and its first target. */
export function exampleFormat(): { readonly file: string; readonly to: string } {
  const [{ formats: first }] = optionTables() as [ReturnType<typeof optionTables>[number]];
  return { file: exampleFile(first[0]), to: first[0].targets[0]?.name ?? '' };
}

/** The formats whose results are of the same format. */
export const plainFormats = (): readonly FormatInfo[] => formats.filter(({ name, result }) => name === result);

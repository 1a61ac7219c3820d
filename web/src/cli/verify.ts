/** The command `verify`. */
import { stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { inspectModel, type VerifyReport, verifyModel } from '../model.js';
import {
  type Finding,
  type FormatInfo,
  formats,
  hubFileOf,
  readHubText,
  type Sidecar,
  type Words,
} from '../tooling.js';
import { type CommandFlag, type ValuesOf, verifyFlags } from './flags.js';
import { sidecarFlags } from './format-flags.js';
import { type Input, withInput } from './input.js';
import { makeCommand, positionalFiles } from './parse.js';
import { abortOnSignal, about, effort, peakBytes, printJson, progressLine } from './process.js';
import { readText } from './side-file.js';
import { pathBeside } from './sidecars.js';
import { complain, countText, formatBytes, nameText, painter, printable, printLines } from './text.js';
import { exampleFile, plainFormats } from './usage.js';
import { wrongFlag } from './wording.js';

/** An option about a file beside a model, and the flag that names that file. */
interface SidecarFlag {
  readonly option: string;
  readonly flag: string;
  readonly sidecar: Sidecar;
}

/** The files that belong beside models of a format, and that can be named. */
function namedSidecars({ options: { entries } }: FormatInfo): SidecarFlag[] {
  return Object.entries(entries).flatMap(([option, { sidecar, flags }]) =>
    sidecar === undefined ? [] : flags.slice(0, 1).map(({ name }) => ({ option, flag: name, sidecar })),
  );
}

/** Reads all of a file and prints its problems. */
export const verify = makeCommand({
  about: 'read all of a model, find damage',
  line: () => 'verify FILE',
  usage: ['verify FILE [options]'],
  text: () =>
    'Reads all of a model and reports problems: sizes, offsets or types in the header that do not fit; scales that are NaN or ' +
    'infinite; padding bits that are set; codes, scales and zero points that do not match; files that an index names and ' +
    'that are missing; a wrong configuration beside the model. NaN among floats is a note.',
  flags() {
    const about = 'the configuration to check; by default the file beside FILE';
    const named = Object.entries(sidecarFlags()).map(([name, one]): [string, CommandFlag] => [name, { ...one, about }]);
    return { ...Object.fromEntries(named), ...verifyFlags };
  },
  exits: ['no problems', 'problems'],
  examples: () => [
    ...plainFormats().map((format) => `verify ${exampleFile(format)}`),
    "verify . --json | jq '.problems[].text'",
  ],
  async carryOut({ values, words, positionals }) {
    const [text] = positionalFiles(positionals, ['FILE'], 'verify');
    const { quiet = false } = values;
    const signal = abortOnSignal('interrupted');
    return withInput(
      text,
      async (input) => {
        const beside = await findBeside(input, words, signal);
        const contents: Record<string, unknown> = {};
        for (const { option, path, sidecar, read } of beside) {
          contents[option] = await about(path, async () => {
            const json = await read();
            // Throws for a file that is not JSON of this kind.
            sidecar.parse(json);
            return JSON.parse(json);
          });
        }
        const progress = progressLine(quiet);
        const report = await about(input.name, () =>
          verifyModel(input.file, { ...contents, signal, onProgress: progress.update }),
        ).finally(progress.clear);
        const paths = formats
          .flatMap(namedSidecars)
          .map(({ option }) => [option, beside.find((one) => one.option === option)?.path ?? null] as const);
        return showFindings(input.name, Object.fromEntries(paths), report, { ...values, quiet });
      },
      signal,
    );
  },
});

/** An existing file beside a model. */
interface SidecarFile {
  readonly option: string;
  readonly path: string;
  readonly sidecar: Sidecar;
  read(): Promise<string>;
}

/** The files beside a model: those that flags name, or those with the usual names. @throws UsageError */
async function findBeside({ name, file, isPath }: Input, words: Words, signal: AbortSignal): Promise<SidecarFile[]> {
  const info = await about(name, () => inspectModel(file, { signal }));
  const format = formats.find((known) => known.name === info.format) as FormatInfo;
  const all = namedSidecars(format);
  for (const other of formats.filter((known) => known !== format)) {
    for (const { flag } of namedSidecars(other)) {
      if (words[flag] === undefined || all.some((one) => one.flag === flag)) continue;
      throw wrongFlag(flag, { kind: 'onlyFor', files: `${other.label} files` });
    }
  }
  // The name of a model in several files, as if it were one file.
  const { extensions } = format;
  const hub = hubFileOf(file);
  const base = hub?.name ?? basename(name);
  const index = extensions.find((extension) => extension.endsWith('.json') && base.toLowerCase().endsWith(extension));
  const whole = index === undefined ? base : `${base.slice(0, -index.length)}${extensions[0]}`;
  const found: SidecarFile[] = [];
  for (const { option, flag, sidecar } of all) {
    const given = words[flag];
    const pushPath = (path: string) => found.push({ option, path, sidecar, read: () => readText(path) });
    if (given !== undefined) pushPath(String(given));
    else if (isPath) {
      const path = pathBeside(name, sidecar, sidecar.nameFor(whole));
      if ((await stat(path).catch(() => undefined))?.isFile()) pushPath(path);
    } else {
      const above = hub?.folder === sidecar.inParentOf ? '../' : '';
      const beside = hub?.beside(above + sidecar.nameFor(whole));
      if (beside !== undefined) found.push({ option, path: beside.address, sidecar, read: () => readHubText(beside) });
    }
  }
  return found;
}

/** Most findings in a text. */
const mostFindings = 20;

function listedFindings(title: string, findings: readonly Finding[]): string[] {
  const lines = findings.slice(0, mostFindings).map(({ text, tensor, file, byteOffset }) => {
    const where = byteOffset === undefined ? '' : ` (byte ${byteOffset})`;
    const subject = tensor === undefined ? '' : `tensor ${nameText(JSON.stringify(tensor))}: `;
    return `${title}: ${file === undefined ? '' : `${printable(file)}: `}${subject}${printable(text)}${where}`;
  });
  const more = findings.length - lines.length;
  return more > 0 ? [...lines, `${title}: ${more.toLocaleString('en')} more, --json lists them`] : lines;
}

/** Prints problems and notes. Returns the exit code. */
function showFindings(
  file: string,
  sidecars: Readonly<Record<string, string | null>>,
  report: VerifyReport,
  { json, quiet, verbose }: Pick<ValuesOf<typeof verifyFlags>, 'json' | 'quiet' | 'verbose'>,
): number {
  const { format, bytes, files, tensors, problems, notes } = report;
  const verdict = problems.length === 0 ? 'no problems found' : `${countText(problems.length, 'problem')} found`;
  if (json) {
    const failure = problems.length === 0 ? {} : { error: { code: 'BAD_FILE', message: verdict } };
    printJson({ file, ...sidecars, ...report, peakBytes: peakBytes(), ...failure });
  } else if (!quiet) {
    const paint = painter(process.stdout);
    const summary = [
      format,
      ...(files.length > 1 ? [countText(files.length, 'file')] : []),
      countText(tensors, 'tensor'),
    ];
    const checked = Object.values(sidecars).flatMap((path) => (path === null ? [] : [printable(path)]));
    const lines = [
      `${paint('bold', printable(file))}: ${[...summary, formatBytes(bytes)].join(', ')}`,
      ...checked.map((path) => `compared with ${path}`),
      ...listedFindings('note', notes),
      ...listedFindings('problem', problems),
      ...(verbose ? [effort()] : []),
      paint(problems.length === 0 ? 'green' : 'red', verdict),
    ];
    printLines(lines);
  }
  if (problems.length === 0) return 0;
  complain(`${file}: ${verdict}`);
  return 1;
}

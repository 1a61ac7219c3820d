/** The command `verify`. */
import { stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { inspectModel, type VerifyReport, verifyModel } from '../model.js';
import { type Finding, type FormatInfo, formats, type Sidecar, type Words } from '../tooling.js';
import { verifyFlags } from './flags.js';
import { type Input, withInput } from './input.js';
import { filesOf, parseArguments } from './parse.js';
import { abortOnSignal, about, effort, peakBytes, printJson, progressLine } from './process.js';
import { readText } from './side-file.js';
import { pathBeside } from './sidecars.js';
import { counted, formatBytes, nameText, painter, printable, printLines } from './text.js';
import { verifyUsage } from './usage.js';
import { wrongFlag } from './wording.js';

/** An option about a file beside a model, and the flag that names that file. */
interface SidecarFlag {
  readonly option: string;
  readonly flag: string;
  readonly sidecar: Sidecar;
}

/** The files that belong beside models of a format. */
function sidecarsIn({ options: { entries } }: FormatInfo): SidecarFlag[] {
  return Object.entries(entries).flatMap(
    ([
      option,
      {
        sidecar,
        flags: [flag],
      },
    ]) => (sidecar === undefined || flag === undefined ? [] : [{ option, flag: flag.name, sidecar }]),
  );
}

/** Reads all of a file and prints its problems. Returns the exit code. */
export async function verify(args: string[]): Promise<number> {
  const flags = formats().flatMap(sidecarsIn);
  const own = Object.fromEntries(flags.map(({ flag }) => [flag, { type: 'string' }] as const));
  const { values, positionals } = parseArguments(args, { ...own, ...verifyFlags });
  if (values.help) {
    process.stdout.write(verifyUsage());
    return 0;
  }
  const [text] = filesOf(positionals, ['FILE'], 'verify') as [string];
  const signal = abortOnSignal('interrupted');
  const wanted = values as Words;
  return withInput(
    text,
    async (input) => {
      const beside = await besideOf(input, wanted, signal);
      const contents: Record<string, unknown> = {};
      for (const one of beside) contents[one.option] = await about(one.path, () => readJson(one));
      const progress = progressLine(wanted.quiet === true);
      const report = await about(input.name, () =>
        verifyModel(input.file, { ...contents, signal, onProgress: progress.update }),
      ).finally(progress.clear);
      const paths = Object.fromEntries(flags.map(({ option }) => [option, pathIn(beside, option)]));
      return show(input.name, paths, report, wanted);
    },
    signal,
  );
}

/** An existing file beside a model. */
interface SidecarFile {
  readonly option: string;
  readonly path: string;
  readonly sidecar: Sidecar;
}

const pathIn = (beside: readonly SidecarFile[], option: string) =>
  beside.find((one) => one.option === option)?.path ?? null;

/** The files beside a model: those that flags name, or those with the usual names. @throws UsageError */
async function besideOf({ name, file, isPath }: Input, words: Words, signal: AbortSignal): Promise<SidecarFile[]> {
  const info = await about(name, () => inspectModel(file, { signal }));
  const format = formats().find((known) => known.name === info.format) as FormatInfo;
  const all = sidecarsIn(format);
  for (const other of formats().filter((known) => known !== format)) {
    for (const { flag } of sidecarsIn(other)) {
      if (words[flag] === undefined || all.some((one) => one.flag === flag)) continue;
      throw wrongFlag(flag, { kind: 'onlyFor', files: `${other.label} files` });
    }
  }
  const found: SidecarFile[] = [];
  for (const { option, flag, sidecar } of all) {
    const given = words[flag];
    if (given !== undefined) found.push({ option, path: String(given), sidecar });
    else if (isPath) {
      const path = pathBeside(name, sidecar, sidecar.nameFor(nameWithoutIndex(basename(name), format)));
      if ((await stat(path).catch(() => undefined))?.isFile()) found.push({ option, path, sidecar });
    }
  }
  return found;
}

/** Name of a model in several files, as if it were one file. */
function nameWithoutIndex(name: string, { extensions }: FormatInfo): string {
  const index = extensions.find((extension) => extension.endsWith('.json') && name.toLowerCase().endsWith(extension));
  return index === undefined ? name : `${name.slice(0, -index.length)}${extensions[0]}`;
}

/** The object in a JSON file. @throws ScalepointError `BAD_FILE` */
async function readJson({ path, sidecar }: SidecarFile): Promise<unknown> {
  const text = await readText(path);
  // Throws for a file that is not JSON of this kind.
  sidecar.parse(text);
  return JSON.parse(text);
}

/** Most findings in a text. */
const mostFindings = 20;

function findingText({ text, tensor, file, byteOffset }: Finding): string {
  const where = byteOffset === undefined ? '' : ` (byte ${byteOffset})`;
  const what = tensor === undefined ? '' : `tensor ${nameText(JSON.stringify(tensor))}: `;
  return `${file === undefined ? '' : `${printable(file)}: `}${what}${printable(text)}${where}`;
}

function listedFindings(title: string, findings: readonly Finding[]): string[] {
  const lines = findings.slice(0, mostFindings).map((finding) => `${title}: ${findingText(finding)}`);
  const more = findings.length - lines.length;
  return more > 0 ? [...lines, `${title}: ${more.toLocaleString('en')} more, --json lists them`] : lines;
}

/** Prints problems and notes. Returns the exit code. */
function show(
  file: string,
  sidecars: Readonly<Record<string, string | null>>,
  report: VerifyReport,
  words: Words,
): number {
  const { format, bytes, files, tensors, problems, notes } = report;
  const verdict = problems.length === 0 ? 'no problems found' : `${counted(problems.length, 'problem')} found`;
  if (words.json) {
    const failure = problems.length === 0 ? {} : { error: { code: 'BAD_FILE', message: verdict } };
    printJson({ file, ...sidecars, ...report, peakBytes: peakBytes(), ...failure });
  } else if (!words.quiet) {
    const paint = painter(process.stdout);
    const summary = [format, ...(files.length > 1 ? [counted(files.length, 'file')] : []), counted(tensors, 'tensor')];
    const checked = Object.values(sidecars).flatMap((path) => (path === null ? [] : [printable(path)]));
    const lines = [
      `${paint('bold', printable(file))}: ${[...summary, formatBytes(bytes)].join(', ')}`,
      ...checked.map((path) => `compared with ${path}`),
      ...listedFindings('note', notes),
      ...listedFindings('problem', problems),
      ...(words.verbose ? [effort()] : []),
      paint(problems.length === 0 ? 'green' : 'red', verdict),
    ];
    printLines(lines);
  }
  if (problems.length === 0) return 0;
  process.stderr.write(`${painter(process.stderr)('red', 'scalepoint:')} ${printable(file)}: ${verdict}\n`);
  return 1;
}

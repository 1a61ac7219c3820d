/** The command `plan`: shows what `quantize` would make. */
import { formats } from '../tooling.js';
import { planFlags } from './flags.js';
import { formatGroups } from './format-flags.js';
import { namedFilesOf, outputOf, pathsOf, shortened, standardOutput } from './output.js';
import { checkFilesApart } from './overlap.js';
import { effort, peakBytes, progressLine } from './process.js';
import {
  checkLine,
  checkSavesApart,
  makeQuantizeCommand,
  named,
  planRequest,
  type QuantizeLine,
  type ResultRequest,
  remark,
  remarkNotes,
  remarkOnLeft,
  withRequests,
  writtenFiles,
  writtenSaves,
} from './request.js';
import { planSidecar, readSidecars, type SidecarPlace, sidecarPath } from './sidecars.js';
import { checkSavedFree, fitJson, savedLine, savePlan, saveRules } from './sizes.js';
import { planText } from './tables.js';
import { countText, printLines } from './text.js';
import { exampleFormat } from './usage.js';
import { wrongFlag } from './wording.js';

/** Prints the plan of a command line. Returns the exit code. */
export async function dryRun(line: QuantizeLine, command: string): Promise<number> {
  const { 'min-output': bound } = line.words;
  if (bound !== undefined) {
    const hint = { kind: 'because', message: 'a plan runs no models' } as const;
    throw wrongFlag('min-output', { kind: 'absent' }, bound, hint);
  }
  return withRequests(line, checkLine(line, command), async (requests, documents) => {
    const plans: object[] = [];
    for (const request of requests) plans.push(...(await showPlan(line, request)));
    documents.push(...plans);
  });
}

export const plan = makeQuantizeCommand({
  about: 'show the plan: types and sizes',
  line: () => `plan FILE --to ${exampleFormat().to}`,
  usage: ['plan FILE --to TYPE [options]'],
  text: () =>
    'Shows the result that scalepoint quantize would make with the same options: the type of every tensor, the reason why one ' +
    'is kept, and the exact size. Reads headers only, except with --target-size or --target-bpw.',
  groups: () => [{ flags: planFlags }, ...formatGroups((_, { sidecar }) => sidecar === undefined)],
  examples() {
    // A plan has no errors, so examples with a limit for them are left out.
    const some = formats.flatMap(({ examples }) => examples.findLast((one) => !one.includes('--min-sqnr')) ?? []);
    const { file, to } = exampleFormat();
    return [...some.map((example) => `plan ${example}`), `plan ${file} --to ${to} --json | jq .totals.bytesAfter`];
  },
  carryOut: (line) => dryRun(line, 'plan'),
});

/** Prints a plan. Returns its JSON documents, if any. */
async function showPlan(line: QuantizeLine, request: ResultRequest): Promise<object[]> {
  const { values } = line;
  const { input, sidecars } = request;
  const force = values.force ?? false;
  await checkSavesApart(line, request);
  await checkSavedFree(values, force);
  const progress = progressLine(values.quiet ?? false);
  const planned = await planRequest(line, request, { onProgress: progress.update }).finally(progress.clear);
  const hasName = input.fileName !== undefined || request.asked !== undefined;
  const output = hasName ? outputOf(input, request.asked, named(planned, values)) : null;
  if (writtenSaves(line).length > 0) {
    await checkFilesApart(await writtenFiles(line, request, planned, output ?? standardOutput), input, line);
    await saveRules(values, planned.options.rules ?? [], force);
    await savePlan(values, planned, force);
  }
  const isFile = output !== null && output !== standardOutput;
  const places: SidecarPlace[] = [];
  for (const one of isFile ? sidecars : []) {
    if (one.sidecar.isCompleted) {
      for (const ready of await readSidecars([one], request.plan, input))
        places.push(await planSidecar(output as string, ready, planned, input, force));
    } else {
      const sidecar = { ...one, value: undefined, print: one.sidecar.print };
      places.push({ sidecar, path: sidecarPath(output as string, one, planned) });
    }
  }
  const documents: object[] = [];
  if (values.json) {
    const members = planned as unknown as Readonly<Record<string, unknown>>;
    // Absent members become null, except those of a few targets.
    const keys = sidecars.flatMap(({ sidecar: { planned: key, isWhole } }) =>
      isWhole && !(key in members) ? [] : key,
    );
    const additions = Object.fromEntries(keys.map((key) => [key, members[key] ?? null]));
    const files = output === null ? planned.files : namedFilesOf(planned, output);
    const rest = { files, ...additions, ...fitJson(planned.fit), peakBytes: peakBytes() };
    documents.push({ file: input.name, output, ...planned, ...rest });
  } else if (!values.quiet) {
    const written = isFile ? places.flatMap(({ path }) => path ?? []) : [];
    const paths = isFile ? pathsOf(output, planned) : [];
    const sizes = planned.files.map(({ bytes }) => countText(bytes, 'byte'));
    const several = paths.length > 1 ? shortened(paths.map((path, i) => `${path}: ${sizes[i]}`)) : [];
    const main = paths.length === 1 ? (paths[0] as string) : isFile ? countText(paths.length, 'file') : output;
    const lines = [...planText(input.name, main, planned, [...several, ...written]), ...savedLine(values)];
    if (values.verbose) lines.push(effort());
    printLines(lines);
  }
  if (!values.quiet) {
    remark(input.remark === undefined ? [] : [input.remark]);
    remarkNotes(planned.notes, planned.options.rules);
    remarkOnLeft(places);
  }
  return documents;
}

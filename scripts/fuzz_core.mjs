// `npm run fuzz:core`: has libFuzzer search for inputs that lead the C++ core outside of its memory, or break what tests/fuzz/cpp expects.
//
//   npm run fuzz:core -- [--seconds 60] [--only codecs]      for each family of inputs, or one
//
// Begins with the seeds in tests/fuzz/cpp/seeds, and with what earlier runs found, in build/fuzz/corpus. Both kinds of lanes have to give the
// same results for all of it. Needs Clang. An input that fails is kept in build/fuzz, and its program and name end the run.

import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { explain, mustRun, root, run, StepError, step } from './steps.mjs';

/** The families of inputs: the targets in tests/fuzz/cpp. */
export const families = ['arrays', 'codecs', 'layers', 'search', 'tiles'];

/** Settings of libFuzzer: no input may take 2 GB, or come to no end, also on a busy machine. */
export const limits = ['-timeout=600', '-rss_limit_mb=2048', '-max_len=2048', '-len_control=0'];

/** Writes the seeds of a family, one line of base64 each, as files for libFuzzer. @param {string} family @param {string} folder */
export function writeSeeds(family, folder) {
  mkdirSync(folder, { recursive: true });
  const lines = readFileSync(join(root, `tests/fuzz/cpp/seeds/${family}.txt`), 'utf8').split('\n');
  for (const [i, line] of lines.entries())
    if (line !== '') writeFileSync(join(folder, `seed-${i}`), Buffer.from(line, 'base64'));
}

/** The digest of all results that a target prints at its end. @param {string} output */
export const digestIn = (output) => /^digest: .*$/m.exec(output)?.[0];

/** @param {string} program @param {string[]} args @returns {Promise<string>} its output */
async function fuzz(program, args) {
  const { code, output } = await run(`build/fuzz/${program}`, ['-artifact_prefix=build/fuzz/', ...limits, ...args]);
  if (code !== 0)
    throw new StepError(`${program} ended with exit code ${code}`, output.split('\n').slice(-80).join('\n'));
  return output;
}

/** @param {string} corpus a folder with inputs @param {string} family @throws StepError naming the first input with other results */
async function compareLanes(corpus, family) {
  const resultsOf = (/** @type {string} */ path) =>
    Promise.all(
      ['scalar', 'simd'].map(async (tier) => digestIn(await fuzz(`fuzz_${family}_${tier}`, ['-runs=0', path]))),
    );
  const differ = async (/** @type {string} */ path) => new Set(await resultsOf(path)).size !== 1;
  if (!(await differ(corpus))) return;
  for (const name of readdirSync(corpus))
    if (await differ(join(corpus, name)))
      throw new StepError(`fuzz_${family}: the lanes give other results for ${join(corpus, name)}`);
}

/** @param {{ seconds: number, some: string[] }} options */
async function search({ seconds, some }) {
  const settings = ['-DSCALEPOINT_BUILD_TESTS=ON', '-DSCALEPOINT_FUZZ_COVERAGE=ON'];
  await step('compile', async () => {
    await mustRun('cmake', ['-S', '.', '-B', 'build/fuzz', '-G', 'Ninja', ...settings]);
    const parallel = String(availableParallelism());
    await mustRun('cmake', ['--build', 'build/fuzz', '--target', 'scalepoint_fuzzers', '--parallel', parallel]);
  });
  for (const family of some) {
    await step(family, async (say) => {
      const corpus = join(root, 'build/fuzz/corpus', family);
      if (!existsSync(corpus)) mkdirSync(corpus, { recursive: true });
      writeSeeds(family, corpus);
      const output = await fuzz(`fuzz_${family}_simd`, [`-max_total_time=${seconds}`, corpus]);
      await compareLanes(corpus, family);
      say(`${/^#\d+\s+DONE.*$/m.exec(output)?.[0] ?? ''}: no input failed`);
    });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({ options: { seconds: { type: 'string', default: '60' }, only: { type: 'string' } } });
  const seconds = Number(values.seconds);
  const some = families.filter((family) => values.only === undefined || family === values.only);
  if (!(seconds >= 1) || some.length === 0) {
    console.error(`Usage: npm run fuzz:core -- [--seconds N] [--only ${families.join('|')}]`);
    process.exit(2);
  }
  try {
    await search({ seconds, some });
  } catch (error) {
    explain(error);
    process.exitCode = 1;
  }
}

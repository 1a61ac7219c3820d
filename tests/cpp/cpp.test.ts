// The C++ tests, as tests of Vitest: builds them, runs each executable, and repeats what its report says.
import { execFile } from 'node:child_process';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
const filter = process.env.GTEST_FILTER;

/** Most milliseconds of a program. */
const timeout = 20 * 60_000;

/** Runs a program in the root of the project. An error holds all of its output. */
async function run(program: string, args: string[], variables: Record<string, string> = {}): Promise<string> {
  const options = { cwd: root, timeout, maxBuffer: 1 << 26, env: { ...process.env, ...variables } };
  return promisify(execFile)(program, args, options).then(
    ({ stdout }) => stdout,
    ({ message, stdout, stderr }) => Promise.reject(new Error(`${message}\n${stdout}${stderr}`)),
  );
}

/** The report of GoogleTest, as far as it is read here. */
interface Report {
  testsuites: { name: string; testsuite: { name: string; result: string; failures?: { failure: string }[] }[] }[];
}

await run('cmake', ['-S', '.', '-B', 'build/native', '-G', 'Ninja', '-DSCALEPOINT_BUILD_TESTS=ON']);
await run('cmake', ['--build', 'build/native', '--target', 'scalepoint_tests']);
const list = JSON.parse(await run('ctest', ['--test-dir', 'build/native', '--show-only=json-v1'])) as {
  tests: { command: [string] }[];
};

for (const { command } of list.tests) {
  const [program] = command;
  const path = `${root}/build/test/${basename(program)}.json`;
  rmSync(path, { force: true });
  // The tests allocate often. Stacks of all allocations take a quarter of the time of some tests, and memory that is used
  // again only after 256 MB of other memory is new to the caches of the processor. Set ASAN_OPTIONS=malloc_context_size=30
  // to see where memory came from.
  const memory = `malloc_context_size=1:quarantine_size_mb=16:${process.env.ASAN_OPTIONS ?? ''}`;
  const variables = { GTEST_OUTPUT: `json:${path}`, GTEST_COLOR: 'no', GTEST_BRIEF: '1', ASAN_OPTIONS: memory };
  const error = await run(program, [], variables).then(
    () => undefined,
    (reason: Error) => reason,
  );
  // A program that crashed leaves no report.
  const { testsuites }: Report = existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : { testsuites: [] };
  describe(basename(program), () => {
    for (const suite of testsuites) {
      for (const { name, result, failures = [] } of suite.testsuite) {
        it.skipIf(result !== 'COMPLETED')(`${suite.name}.${name}`, () =>
          expect(failures.map(({ failure }) => failure).join('\n')).toBe(''),
        );
      }
    }
    // Crashes, leaks, and programs without tests.
    it('comes to its end', () => {
      expect(error?.message).toBeUndefined();
      if (filter === undefined) expect(testsuites.length).toBeGreaterThan(0);
    });
  });
}

it('has executables to run', () => expect(list.tests).not.toEqual([]));

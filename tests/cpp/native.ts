// The C++ tests, as tests of Vitest: builds an executable, runs it, and repeats its report.
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';

export const root = fileURLToPath(new URL('../..', import.meta.url));
const filter = process.env.GTEST_FILTER;

/** Most milliseconds of a program. */
const timeout = 20 * 60_000;

/** Runs a program in the root of the project. An error holds all of its output. */
export async function run(
  program: string,
  args: string[],
  variables: Record<string, string> = {},
): Promise<{ stdout: string; stderr: string }> {
  const options = { cwd: root, timeout, maxBuffer: 1 << 26, env: { ...process.env, ...variables } };
  return promisify(execFile)(program, args, options).catch(({ message, stdout, stderr }) =>
    Promise.reject(new Error(`${message}\n${stdout}${stderr}`)),
  );
}

/** The report of GoogleTest, as far as it is read here. */
interface Report {
  testsuites: { name: string; testsuite: { name: string; result: string; failures?: { failure: string }[] }[] }[];
}

/** True if a process of this machine has that number. */
function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** Builds a target. Ninja must not run twice in one folder, so files of tests take turns. */
export async function build(target: string): Promise<void> {
  const lock = `${root}/build/test/native.lock`;
  mkdirSync(`${root}/build/test`, { recursive: true });
  for (;;) {
    try {
      writeFileSync(lock, String(process.pid), { flag: 'wx' });
      break;
    } catch {
      // Its process may have been killed.
      if (existsSync(lock) && !isRunning(Number(readFileSync(lock, 'utf8')))) rmSync(lock, { force: true });
      await setTimeout(100);
    }
  }
  try {
    await run('cmake', ['-S', '.', '-B', 'build/native', '-G', 'Ninja', '-DSCALEPOINT_BUILD_TESTS=ON']);
    await run('cmake', ['--build', 'build/native', '--target', target]);
  } finally {
    rmSync(lock, { force: true });
  }
}

/** Builds and runs an executable of GoogleTest, and makes a test of each of its tests. */
export async function repeatTests(target: string): Promise<void> {
  await build(target);
  const path = `${root}/build/test/${target}.json`;
  rmSync(path, { force: true });
  // The tests allocate often. Stacks of all allocations take a quarter of the time of some tests, and memory that is used
  // again only after 256 MB of other memory is new to the caches of the processor. Set ASAN_OPTIONS=malloc_context_size=30
  // to see where memory came from.
  const memory = `malloc_context_size=1:quarantine_size_mb=16:${process.env.ASAN_OPTIONS ?? ''}`;
  const variables = { GTEST_OUTPUT: `json:${path}`, GTEST_COLOR: 'no', GTEST_BRIEF: '1', ASAN_OPTIONS: memory };
  const error = await run(`build/native/${target}`, [], variables).then(
    () => undefined,
    (reason: Error) => reason,
  );
  // A program that crashed leaves no report.
  const { testsuites }: Report = existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : { testsuites: [] };
  describe(target, () => {
    for (const suite of testsuites) {
      for (const { name, result, failures = [] } of suite.testsuite) {
        // The filter leaves the others out.
        if (result !== 'COMPLETED' && filter !== undefined) continue;
        it(`${suite.name}.${name}`, () => {
          expect(failures.map(({ failure }) => failure).join('\n')).toBe('');
          expect(result).toBe('COMPLETED');
        });
      }
    }
    // Crashes, leaks, and programs without tests.
    it('comes to its end', () => {
      expect(error?.message).toBeUndefined();
      if (filter === undefined) expect(testsuites.length).toBeGreaterThan(0);
    });
  });
}

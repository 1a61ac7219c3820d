// Runs a script of package.json that is named `check:…`.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
const { scripts } = JSON.parse(readFileSync(`${root}/package.json`, 'utf8')) as { scripts: Record<string, string> };

/** The names of all checks. */
export const checks = Object.keys(scripts).filter((name) => name.startsWith('check:'));

/** Checks that take long, and find nothing wrong in what the package does. */
export const longChecks = ['check:arrows', 'check:unused', 'check:size'];

/** Runs a check, which has to succeed. */
export async function check(name: string): Promise<void> {
  // Have the compiler of TypeScript, a program in Go, collect garbage less often, which takes a third of its time.
  const options = { cwd: root, env: { ...process.env, NO_COLOR: '1', FORCE_COLOR: '0', GOGC: '400' } };
  const run = promisify(execFile)('npm', ['run', '--silent', name], options);
  const output = await run.catch(({ message, stdout, stderr }) => {
    throw new Error(`${message}\n${stdout}${stderr}`);
  });
  // A check that read no file proves nothing.
  expect(output.stdout).not.toMatch(/\b0 (modules|dependencies|files)\b/);
}

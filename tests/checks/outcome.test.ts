// The last line of `npm test`, and what it remembers of files, hold while files come and go and when something breaks the run off.
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { digestOf, filesAt } from '../../scripts/stamps.mjs';
import { root } from '../../scripts/steps.mjs';

const folder = mkdtempSync(join(tmpdir(), 'scalepoint-outcome-'));
afterAll(() => rmSync(folder, { recursive: true }));

describe('the files of a project', () => {
  it('are those that are there', () => {
    writeFileSync(join(folder, 'a.ts'), 'a');
    // As editors lock a file.
    symlinkSync('nobody@nowhere.1', join(folder, '.#a.ts'));
    const path = relative(root, folder);
    expect(filesAt([path, 'no/such/file'])).toEqual([join(path, 'a.ts')]);
  });

  it('may go before they are read', () => {
    const paths = ['gone', 'empty'].map((name) => relative(root, join(folder, name)));
    writeFileSync(join(folder, 'empty'), '');
    const [gone, empty] = paths.map((path) => digestOf([path]));
    expect(gone).toBe(digestOf(paths.slice(0, 1)));
    writeFileSync(join(folder, 'gone'), '');
    expect(digestOf(paths.slice(0, 1))).not.toBe(gone);
    expect(digestOf(paths.slice(1))).toBe(empty);
  });
});

describe('the last line', () => {
  /** Runs code that has an outcome. Gives its exit code and its last line. */
  const run = (code: string) =>
    new Promise<{ code: number | null; line: string | undefined }>((resolve) => {
      const script = `import { Outcome } from ${JSON.stringify(join(root, 'scripts/counts.mjs'))};
        const outcome = new Outcome();
        const counts = (passed, failed, skipped) => ({ passed, failed, skipped });
        ${code}`;
      const child = execFile(process.execPath, ['--input-type=module', '-e', script], (_, stdout) =>
        resolve({ code: child.exitCode, line: stdout.trimEnd().split('\n').at(-1) }),
      );
    });

  it.each([
    ['says what the run came to', 'outcome.finish(counts(7, 0, 1))', 0, '7 passed, 0 failed'],
    ['counts failures', 'outcome.add(counts(3, 2, 0)); outcome.finish(counts(3, 2, 0))', 1, '3 passed, 2 failed'],
    ['counts no run', '', 1, '0 passed, 1 failed'],
    // Vitest does this after an error that no test caused.
    ['keeps what passed before an exit', 'outcome.add(counts(3, 0, 1)); process.exit()', 1, '3 passed, 1 failed'],
    ['keeps it after an error', 'outcome.add(counts(3, 0, 1)); throw new Error()', 1, '3 passed, 1 failed'],
    [
      'keeps it in a wait without end',
      'outcome.add(counts(3, 0, 1)); await new Promise(() => {})',
      1,
      '3 passed, 1 failed',
    ],
  ])('%s', async (_, script, code, line) => {
    expect(await run(script)).toEqual({ code, line });
  });
});

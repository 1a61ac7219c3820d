// The core as a library: a program outside of the project builds with its sources, and with what these install. Its functions run in
// several threads.
import { execFile } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
const consumer = `${root}/tests/cpp/consumer`;
const built = `${root}/build/library`;

/** Runs a program. An error holds all of its output. */
const run = (program: string, ...args: string[]): Promise<string> =>
  promisify(execFile)(program, args, { cwd: root, maxBuffer: 1 << 26 }).then(
    ({ stdout }) => stdout,
    ({ message, stdout, stderr }) => Promise.reject(new Error(`${message}\n${stdout}${stderr}`)),
  );

const answer = '-127 -33 0 50 127 times 0.100\n';

describe('a program that uses the core', { timeout: 600_000 }, () => {
  beforeAll(async () => {
    rmSync(`${built}/installed`, { recursive: true, force: true });
    // The project's own -O3 takes several times as long to compile.
    const settings = [`-DSCALEPOINT_FOLDER=${root}`, '-DSCALEPOINT_INSTALL=ON', '-DCMAKE_CXX_FLAGS_RELEASE=-O0'];
    await run('cmake', '-S', consumer, '-B', `${built}/sources`, '-G', 'Ninja', ...settings);
    await run('cmake', '--build', `${built}/sources`);
    await run('cmake', '--install', `${built}/sources`, '--prefix', `${built}/installed`);
  }, 600_000);

  it('is the example of the README', () => {
    const readme = readFileSync(`${root}/README.md`, 'utf8');
    expect(readme).toContain(`\`\`\`cpp\n${readFileSync(`${consumer}/main.cpp`, 'utf8')}\`\`\``);
  });

  it('takes it from its sources', async () => {
    expect(await run(`${built}/sources/consumer`)).toBe(answer);
  });

  it('shares nothing with others that calls change, besides tables that are made once', async () => {
    const symbols = await run('nm', '--format=sysv', '-C', `${built}/sources/scalepoint/libscalepoint.a`);
    const found: string[] = [];
    let object = '';
    for (const line of symbols.split('\n')) {
      object = /\[(.*)\]:$/.exec(line)?.[1] ?? object;
      const [name = '', , , , , , section = ''] = line.split('|');
      // Constants that hold addresses lie in .data.rel.ro.
      if (/^\.t?(data|bss)/.test(section) && !section.startsWith('.data.rel.ro'))
        found.push(`${object} ${name.trim()}`);
    }
    // Points and neighbors of grids are made by static constants, whose guards let threads wait.
    expect(found).toContain('iq_grids.cpp.o scalepoint::loops::(anonymous namespace)::points');
    expect(found.filter((name) => !name.startsWith('iq_grids.cpp.o '))).toEqual([]);
  });

  it('takes it installed', async () => {
    const found = `-DCMAKE_PREFIX_PATH=${built}/installed`;
    await run('cmake', '-S', consumer, '-B', `${built}/found`, '-G', 'Ninja', '--fresh', found);
    await run('cmake', '--build', `${built}/found`);
    expect(await run(`${built}/found/consumer`)).toBe(answer);
  });
});

it('is optimized, unchecked, and needs nothing else by default', async () => {
  const without = ['GTest', 'Threads'].map((name) => `-DCMAKE_DISABLE_FIND_PACKAGE_${name}=ON`);
  await run('cmake', '-S', '.', '-B', `${built}/alone`, '-G', 'Ninja', '--fresh', ...without);
  const rules = readFileSync(`${built}/alone/build.ninja`, 'utf8');
  expect(rules).toMatch(/^ {2}FLAGS = .*-O3 -DNDEBUG/m);
  expect(rules).not.toMatch(/fsanitize|gtest|simde/i);
});

it('gives the same results in several threads, and the thread sanitizer finds nothing', {
  timeout: 600_000,
}, async () => {
  await run('cmake', '-S', '.', '-B', 'build/threads', '-G', 'Ninja', '-DSCALEPOINT_BUILD_TESTS=ON');
  await run('cmake', '--build', 'build/threads', '--target', 'scalepoint_threads');
  // A filter of `npm test` is for other programs.
  expect(await run('build/threads/scalepoint_threads', '--gtest_filter=*')).toMatch(/^\[ {2}PASSED {2}\] 2 tests\.$/m);
});

// The benchmark as a module, as a command and as a page. The tests check that there are times and ratios, not how large they are. So whole
// runs have a clock that is 20 times as fast: each contestant then runs for a 20th of the usual time.
import { execFile, spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright';
import { type BenchRow, benchParts, race, runBench } from 'scalepoint/bench';
import { afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { hangLimit, pageOptions } from '../../../scripts/chromium.mjs';
import { serve } from '../../../scripts/serve.mjs';

const path = (name: string) => fileURLToPath(new URL(`../../../${name}`, import.meta.url));
const small = { quick: true, size: 1024, width: 64 };

/** Browsers round their clocks, so this one also goes on by a microsecond at each look: no time is 0. */
const fast =
  'const now = performance.now.bind(performance); let last = 0; performance.now = () => (last = Math.max(20 * now(), last + 1e-3));';

/** Makes the clock of this process fast until the mocks are restored. */
function speedUp(): void {
  const now = performance.now.bind(performance);
  vi.spyOn(performance, 'now').mockImplementation(() => 20 * now());
}

function expectRows(rows: readonly BenchRow[]): void {
  expect(new Set(rows.map((row) => row.part))).toEqual(new Set(benchParts));
  expect(rows.filter((row) => row.part === 'layers')).toHaveLength(10);
  for (const row of rows) {
    expect(row.milliseconds).toBeGreaterThan(0);
    expect(row.rate).toBeGreaterThan(0);
    for (const ratio of [row.limit, row.plain]) if (ratio !== undefined) expect(ratio).toBeGreaterThan(0);
  }
}

describe('runBench', () => {
  beforeEach(speedUp);
  afterEach(() => {
    vi.restoreAllMocks();
  });

  it('reports each row when it is measured, and returns all rows', async () => {
    const seen: BenchRow[] = [];
    const { rows, tier, version } = await runBench({ ...small, onRow: (row) => seen.push(row) });
    expectRows(rows);
    expect(seen).toEqual(rows);
    expect(tier).toBe('simd');
    expect(version).toMatch(/^\d+\.\d+\.\d+/);
  });

  it('measures a single part, with the scalar build', async () => {
    const { rows, tier } = await runBench({ ...small, only: 'layers', load: { simd: 'off' } });
    expect(rows).toHaveLength(10);
    expect(tier).toBe('scalar');
  });

  it('stops when the signal aborts', async () => {
    const controller = new AbortController();
    const run = runBench({ ...small, signal: controller.signal, onRow: () => controller.abort(new Error('enough')) });
    await expect(run).rejects.toThrow('enough');
  });

  it('names the wrong option in its error', async () => {
    for (const [options, name] of [
      [{ size: 100 }, 'size'],
      [{ size: 2 ** 40 }, 'size'],
      [{ width: 33 }, 'width'],
      [{ only: 'models' }, 'only'],
    ] as const) {
      await expect(runBench(options as never)).rejects.toThrow(RangeError);
      await expect(runBench(options as never)).rejects.toThrow(new RegExp(`^${name}: `));
    }
    await expect(runBench({ speed: 1 } as never)).rejects.toThrow(TypeError);
    await expect(runBench({ quick: 1 } as never)).rejects.toThrow(TypeError);
  });
});

describe('race', () => {
  /** A clock that only the contestants move, so that their times are exact. */
  let now = 0;
  beforeEach(() => {
    now = 0;
    vi.spyOn(performance, 'now').mockImplementation(() => now);
  });
  afterEach(() => {
    vi.restoreAllMocks();
  });

  it('awaits promises and measures their time', async () => {
    const wait = (ms: number) => async () => {
      await new Promise((resolve) => setTimeout(resolve));
      now += ms;
    };
    const ms = await race({ slow: wait(30), quick: wait(2) }, { rounds: 3, warmupMs: 0 });
    expect(ms).toEqual({ slow: 30, quick: 2 });
  });

  it('gives the fastest of the rounds', async () => {
    const times = [5, 5, 5, 9, 4, 100, 6, 7];
    const run = () => {
      now += times.shift() as number;
    };
    // Three calls are made before any counts.
    expect(await race({ run }, { rounds: 5, warmupMs: 0 })).toEqual({ run: 4 });
    expect(times).toEqual([]);
  });

  it('warms contestants up before it times them', async () => {
    let calls = 0;
    const run = () => {
      calls++;
      now += 5;
    };
    await race({ run }, { rounds: 1, warmupMs: 400 });
    expect(calls).toBe(400 / 5 + 1);
  });
});

// ----------------------------------------------------------------------------------------------------------------- the command

function run(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    const clock = ['--import', `data:text/javascript,${fast}`];
    execFile(process.execPath, [...clock, path('dist/cli.js'), 'bench', ...args], (error, stdout, stderr) => {
      resolve({ code: typeof error?.code === 'number' ? error.code : 0, stdout, stderr });
    });
  });
}
const tiny = ['--quick', '--size', '1024', '--width', '64'];

describe('scalepoint bench', () => {
  it('prints a table that fits a terminal', async () => {
    const { code, stdout, stderr } = await run(...tiny);
    expect([code, stderr]).toEqual([0, '']);
    for (const words of ['quantize', 'to Q4_K', 'W8A8', '64 x 64, 32 rows', 'one thread'])
      expect(stdout).toContain(words);
    const rows = stdout.split('\n').filter((line) => / x$/.test(line));
    expect(rows.length).toBeGreaterThan(8);
    for (const line of rows) expect(line.length).toBeLessThanOrEqual(80);
  });

  it('prints only JSON with --json', async () => {
    const { code, stdout, stderr } = await run(...tiny, '--json', '--only', 'blocks');
    expect([code, stderr]).toEqual([0, '']);
    const { rows, tier, engine } = JSON.parse(stdout) as { rows: BenchRow[]; tier: string; engine: string };
    expect(rows).toHaveLength(24);
    expect([tier, engine]).toEqual(['simd', `Node ${process.versions.node}`]);
  });

  it('says that it was interrupted', async () => {
    const child = spawn(process.execPath, [path('dist/cli.js'), 'bench', ...tiny]);
    let stderr = '';
    child.stderr.on('data', (text) => {
      stderr += text;
    });
    child.stdout.once('data', () => child.kill('SIGINT'));
    const code = await new Promise((resolve) => child.once('close', resolve));
    expect([code, stderr]).toEqual([130, 'scalepoint: interrupted before all was measured\n']);
  });

  it.each([
    [['--only', 'models'], '--only: expected arrays, blocks or layers'],
    [['--size', '100'], '--size: expected a multiple of 256'],
    [['--width', 'wide'], '--width: expected a whole number'],
    [['file.gguf'], 'bench takes no file'],
    [['--fast'], '--fast: unknown option'],
  ])('refuses %j', async (args, words) => {
    const { code, stdout, stderr } = await run(...args);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toContain(words);
    expect(stderr).toContain('see scalepoint bench --help');
  });

  it('has help of at most 80 columns', async () => {
    const { code, stdout } = await run('--help');
    expect(code).toBe(0);
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
  });
});

// -------------------------------------------------------------------------------------------------------------------- the page

describe('the page of the benchmark', () => {
  beforeAll(async () => {
    if (!existsSync(path('build/demo/speed/index.html'))) {
      const { build } = await import('vite');
      await build({ configFile: path('vite.config.ts'), logLevel: 'warn' });
    }
  });

  it('measures in a worker, stops, copies, and has no accessibility faults', async () => {
    const server = await serve({ folder: path('build/demo'), port: 0 });
    const browser = await chromium.launch(pageOptions);
    try {
      const context = await browser.newContext({
        viewport: { width: 360, height: 800 },
        permissions: ['clipboard-read', 'clipboard-write'],
        reducedMotion: 'reduce',
        // It would answer for the worker's script, which is replaced below.
        serviceWorkers: 'block',
      });
      const page = await context.newPage();
      page.setDefaultTimeout(hangLimit);
      const complaints: string[] = [];
      page.on('console', (message) => {
        if (!message.text().includes('blocked by Playwright')) complaints.push(message.text());
      });
      page.on('pageerror', (error) => complaints.push(error.message));
      page.on('request', (request) => {
        if (!request.url().startsWith(server.url)) complaints.push(`request to ${request.url()}`);
      });
      await page.goto(server.url);
      await page.click('nav a[href="speed/"]');
      await expect.poll(() => page.title()).toContain('How fast');
      // The headline is measured without being asked.
      await expect.poll(() => page.textContent('#ratio')).toMatch(/^≈?[\d.]+×$/);
      expect(await page.locator('.race-fill').count()).toBe(2);
      await page.click('#run');
      await page.waitForSelector('.bench-table tbody tr td');
      expect(await page.isDisabled('#run')).toBe(true);
      // The page shows progress during the run, so its main thread is not blocked.
      expect(await page.textContent('#status')).toMatch(/measured/);
      await page.click('#stop');
      expect(await page.textContent('#status')).toMatch(/^Stopped after \d+/);
      expect(await page.isEnabled('#run')).toBe(true);
      await page.click('#copy-json');
      const stopped = JSON.parse(await page.evaluate(() => navigator.clipboard.readText())) as { about: string };
      expect(stopped.about).toMatch(/^scalepoint \d.*, SIMD, one thread, /);
      // The run that was stopped had the usual clock.
      let workers = 0;
      await page.route(/assets\/worker-/, async (route) => {
        workers++;
        const response = await route.fetch();
        await route.fulfill({ response, body: `${fast}\n${await response.text()}` });
      });
      await page.focus('#run');
      await page.keyboard.press('Enter');
      await page.waitForFunction(() => document.querySelector('#status')?.textContent?.startsWith('Done'));
      expect(workers).toBe(1);
      expect(await page.$$eval('.bench-table tbody td:nth-child(2)', (cells) => cells.length)).toBe(42);
      await page.click('#copy-json');
      const { rows, about } = JSON.parse(await page.evaluate(() => navigator.clipboard.readText())) as {
        rows: BenchRow[];
        about: string;
      };
      expectRows(rows);
      expect(about).toContain('SIMD');
      await page.click('#copy-csv');
      const csv = await page.evaluate(() => navigator.clipboard.readText());
      expect(csv.trim().split('\n')).toHaveLength(43);
      await page.click('#copy-text');
      const text = await page.evaluate(() => navigator.clipboard.readText());
      // A heading, 42 rows, an empty line, and what was measured where.
      expect(text.trim().split('\n')).toHaveLength(45);
      expect(text).toMatch(/^operation +on +time/);
      await page.click('#copy-markdown');
      expect(await page.evaluate(() => navigator.clipboard.readText())).toMatch(/^\| operation \| on \|/);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(360);
      // The table fits too, so that no column is hidden.
      expect(await page.$eval('.scroll', (box) => box.scrollWidth - box.clientWidth)).toBeLessThanOrEqual(0);
      await page.waitForSelector('#toast', { state: 'hidden' });
      await page.evaluate(readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8'));
      const violations = await page.evaluate(async () => {
        type Axe = { run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> };
        const found = await (globalThis as unknown as { axe: Axe }).axe.run();
        return found.violations.map(
          ({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 100)).join(' ')}`,
        );
      });
      expect(violations).toEqual([]);
      expect(complaints).toEqual([]);
    } finally {
      await browser.close();
      await server.close();
    }
  });
});

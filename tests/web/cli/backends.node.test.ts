// compare --backend: the browser that it finds and starts, and the output.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { chmod, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { quantizeModel } from 'scalepoint/model';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { launchOptions } from '../../../scripts/chromium.mjs';
import { findBrowser } from '../../../web/src/cli/browser.js';
import { NativeBackend } from '../../../web/src/cli/native.js';
import { BrowserBackend } from '../../../web/src/cli/webgpu.js';
import * as onnx from '../formats/onnx/encoder.js';
import { path, run, useFolder } from './support.js';

useFolder();

const { executablePath: chromium } = launchOptions;
const runtimeFolder = dirname(createRequire(import.meta.url).resolve('onnxruntime-web'));

const model = onnx.model({
  nodes: [
    { op: 'MatMul', name: 'product', in: ['x', 'w'], out: ['p'] },
    { op: 'Relu', in: ['p'], out: ['y'] },
  ],
  initializers: [onnx.floatTensor('w', [64, 48])],
  inputs: [['x', [3, 64]]],
  outputs: [['y', [3, 48]]],
});
const job = {
  model: { bytes: model, externalData: [] },
  feeds: { x: { type: 'float32', dims: [3, 64], data: new Float32Array(192).fill(0.5) } },
  level: 'all',
  measures: false,
} as const;

async function putModels(): Promise<void> {
  await writeFile(path('a.onnx'), model);
  await writeFile(path('b.onnx'), await (await quantizeModel(model, { to: 'q8', workers: 0 })).bytes());
}

// ------------------------------------------------------------------------------------------------------------------------ browser

describe('the browser', () => {
  /** A system on which some programs exist. */
  const system = (platform: string, programs: readonly string[], env: Record<string, string> = {}) => ({
    platform,
    env,
    home: '/Users/me',
    isProgram: (name: string) => programs.includes(name),
  });

  it('is the first that is found on PATH, or where installers put it', () => {
    const env = { PATH: '/usr/local/bin:/usr/bin' };
    const both = ['/usr/bin/google-chrome', '/usr/bin/chromium'];
    expect(findBrowser(undefined, system('linux', both, env))).toBe('/usr/bin/chromium');
    expect(findBrowser(undefined, system('linux', ['/usr/bin/microsoft-edge'], env))).toBe('/usr/bin/microsoft-edge');
    const edge = '/Users/me/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge';
    expect(findBrowser(undefined, system('darwin', [edge], env))).toBe(edge);
    const chrome = 'C:\\Program Files\\Google\\Chrome\\Application\\chrome.exe';
    expect(findBrowser(undefined, system('win32', [chrome], { PROGRAMFILES: 'C:\\Program Files' }))).toBe(chrome);
  });

  it('is the one of --browser, or else that of CHROME_PATH', () => {
    const env = { PATH: '/usr/bin', CHROME_PATH: '/opt/chrome' };
    const programs = ['/usr/bin/chromium', '/opt/chrome', '/opt/other', '/usr/bin/brave'];
    expect(findBrowser(undefined, system('linux', programs, env))).toBe('/opt/chrome');
    expect(findBrowser('/opt/other', system('linux', programs, env))).toBe('/opt/other');
    expect(findBrowser('brave', system('linux', programs, env))).toBe('/usr/bin/brave');
  });

  it('is missed with advice', () => {
    const none = system('linux', [], { PATH: '/usr/bin' });
    expect(() => findBrowser(undefined, none)).toThrow(
      /no Chromium, Chrome or Edge was found; install one, or name it by --browser/,
    );
    expect(() => findBrowser('/opt/chrome', none)).toThrow('--browser names no program: "/opt/chrome"');
    expect(() => findBrowser(undefined, { ...none, env: { CHROME_PATH: '/x' } })).toThrow(
      /CHROME_PATH names no program/,
    );
    expect(() => findBrowser(undefined, none)).toThrow(expect.objectContaining({ code: 'BROWSER' }));
  });
});

describe.skipIf(process.platform !== 'linux')('a browser that fails', () => {
  let place = '';
  const { TMPDIR } = process.env;
  beforeEach(() => {
    place = mkdtempSync(join(tmpdir(), 'scalepoint-place-'));
    process.env.TMPDIR = place;
  });
  afterEach(() => {
    if (TMPDIR === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = TMPDIR;
    rmSync(place, { recursive: true, force: true });
  });

  /** Numbers of the processes that were started with a profile in the place, the first of each browser first. */
  const processes = (): number[] =>
    readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .filter((pid) => {
        try {
          return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(place);
        } catch {
          return false;
        }
      })
      .map(Number)
      .sort((a, b) => a - b);
  const expectNothingLeft = async () => {
    await expect.poll(processes).toEqual([]);
    expect(readdirSync(place)).toEqual([]);
  };

  it('does not start', async () => {
    const missing = new BrowserBackend(path('missing'), runtimeFolder);
    await expect(missing.run(job, undefined)).rejects.toMatchObject({
      code: 'BROWSER',
      message: expect.stringMatching(/^missing could not be started/),
    });
    await writeFile(path('ends'), '#!/bin/sh\necho "no display" >&2\nexit 7\n');
    await chmod(path('ends'), 0o755);
    const ends = new BrowserBackend(path('ends'), runtimeFolder);
    await expect(ends.run(job, undefined)).rejects.toMatchObject({
      code: 'BROWSER',
      message: 'ends ended with code 7: no display',
    });
    await expectNothingLeft();
  });

  it('opens no page in time', async () => {
    await writeFile(path('waits'), '#!/bin/sh\nexec sleep 60\n');
    await chmod(path('waits'), 0o755);
    const slow = new BrowserBackend(path('waits'), runtimeFolder, { start: 300 });
    await expect(slow.run(job, undefined)).rejects.toMatchObject({
      code: 'BROWSER',
      message: 'waits opened no page within 0.3 s',
    });
    await expectNothingLeft();
  });

  it('finds no runtime', async () => {
    const backend = new BrowserBackend(chromium, place);
    await expect(backend.run(job, undefined)).rejects.toMatchObject({
      code: 'RUNTIME',
      message: expect.stringMatching(/^onnxruntime-web cannot be loaded in chromium/),
    });
    await expectNothingLeft();
  });

  it('is killed, or the work is aborted', async () => {
    const backend = new BrowserBackend(chromium, runtimeFolder);
    const answer = await backend.run(job, undefined);
    expect(answer).toMatchObject({ kind: 'ran', adapter: { vendor: expect.any(String) } });
    process.kill(processes()[0] as number, 'SIGKILL');
    await expect.poll(() => processes().length).toBe(0);
    await expect(backend.run(job, undefined)).rejects.toMatchObject({ code: 'BROWSER' });
    await expectNothingLeft();
    // It starts again with the next job.
    const controller = new AbortController();
    const aborted = backend.run(job, controller.signal);
    await expect.poll(() => processes().length).toBeGreaterThan(0);
    controller.abort(new Error('enough'));
    await expect(aborted).rejects.toThrow('enough');
    await expectNothingLeft();
  });

  it('is left by Ctrl-C', async () => {
    await putModels();
    // The built package finds onnxruntime-web beside it.
    const program = fileURLToPath(new URL('../../../dist/cli.js', import.meta.url));
    const args = [program, 'compare', path('a.onnx'), path('b.onnx'), '--backend', 'webgpu', '--browser', chromium];
    const child = spawn(process.execPath, args, { stdio: 'ignore' });
    const exited = once(child, 'exit');
    await expect.poll(() => processes().length).toBeGreaterThan(0);
    child.kill('SIGINT');
    expect(await exited).toEqual([130, null]);
    await expectNothingLeft();
  });
});

// ----------------------------------------------------------------------------------------------------------------------- processes

describe('the process of onnxruntime-node', () => {
  it('fails with words', async () => {
    const missing = new NativeBackend(path('missing.js'));
    await expect(missing.run(job, undefined)).rejects.toMatchObject({
      code: 'RUNTIME',
      message: expect.stringMatching(/^onnxruntime-node cannot be loaded: /),
    });
    await writeFile(path('ends.mjs'), 'console.error("out of luck"); process.exit(9);\n');
    await expect(new NativeBackend(path('ends.mjs')).run(job, undefined)).rejects.toMatchObject({
      message: 'the process of onnxruntime-node ended with code 9: out of luck',
    });
    await writeFile(path('hangs.mjs'), 'await new Promise((done) => setTimeout(done, 60_000));\n');
    await expect(new NativeBackend(path('hangs.mjs'), 500).run(job, undefined)).rejects.toMatchObject({
      message: 'the process of onnxruntime-node gave no result within 0.5 s',
    });
    const signal = AbortSignal.timeout(300);
    await expect(new NativeBackend(path('hangs.mjs')).run(job, signal)).rejects.toMatchObject({ name: 'TimeoutError' });
  });
});

// -------------------------------------------------------------------------------------------------------------------- command line

describe('scalepoint compare --backend', () => {
  it('prints a table, and where nodes are off', async () => {
    await putModels();
    const { code, stdout } = await run(['compare', 'a.onnx', 'b.onnx', '--backend', 'wasm', '--layers'], {
      COLUMNS: '80',
    });
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /\nbackend +model +first +one run +SQNR dB +cosine +max error +own dB\nwasm +A .* exact +1\.000000 +0\n +B .*\n/,
    );
    expect(stdout).toMatch(
      /\nwasm: onnxruntime-web [\d.]+\nwasm, B: 1 of 2 values of nodes differ from those of A by more than rounding\n/,
    );
    expect(stdout).toMatch(/\nwasm, B: the first is p \(MatMul, node product\): off by \S+, rounding explains \S+\n/);
    for (const line of stdout.split('\n').filter((one) => / (A|B) /.test(one)))
      expect(line.length).toBeLessThanOrEqual(80);
    const json = JSON.parse((await run(['compare', 'a.onnx', 'b.onnx', '--backend', 'wasm', '--json'])).stdout);
    expect(json.backends).toMatchObject([
      {
        backend: 'wasm',
        a: { kind: 'ran', times: { runs: expect.any(Number) } },
        b: { kind: 'ran', outputs: [{ name: 'y' }] },
      },
    ]);
  });

  it('says what is wrong with its flags, and what is missing', async () => {
    await putModels();
    const compare = (...more: string[]) => run(['compare', 'a.onnx', 'b.onnx', ...more]);
    expect(await compare('--backend', 'gpu')).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/--backend: expected .*wasm/),
    });
    expect(await compare('--browser', 'x')).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/--browser goes with --backend webgpu/),
    });
    expect(await compare('--backend', 'wasm,webgpu', '--browser', path('none'))).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/--browser names no program/),
    });
    expect(await compare('--backend', 'node')).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/--backend node takes onnxruntime-node: npm install onnxruntime-node/),
    });
  });
});

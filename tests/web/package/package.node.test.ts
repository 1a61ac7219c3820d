// The package as a user gets it. It is packed, installed into an empty folder, and used there in every supported way.
import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type Browser, chromium } from 'playwright';
import { publint } from 'publint';
import { quantizeModel } from 'scalepoint/model';
import { build, createServer } from 'vite';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { hangLimit, pageOptions } from '../../../scripts/chromium.mjs';
import { serve } from '../../../scripts/serve.mjs';
import { samplePath } from '../../../scripts/site/digits.mjs';
import { anchorOf } from '../../../web/demo/guide/build.mjs';
import { environments } from '../../consumers/matrix.mjs';
import { closeBrowser, Place } from '../../consumers/place.mjs';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const bin = (name: string) => join(root, 'node_modules/.bin', name);
const folder = mkdtempSync(join(tmpdir(), 'scalepoint-package-'));
const consumer = join(folder, 'consumer');
const installed = join(consumer, 'node_modules/scalepoint');
let tarball = '';

const execute = promisify(execFile);
/** Runs a program and returns its output. If it fails, the error includes the output. */
async function run(program: string, args: string[], cwd = consumer): Promise<string> {
  const options = { cwd, env: { ...process.env, NO_COLOR: '1', FORCE_COLOR: '0' } };
  try {
    return (await execute(program, args, options)).stdout;
  } catch (error) {
    const { message, stdout } = error as Error & { stdout: string };
    throw new Error(`${message}\n${stdout}`);
  }
}

/** Writes a file of the consumer and returns its path. */
function write(path: string, text: string): string {
  const full = join(consumer, path);
  mkdirSync(dirname(full), { recursive: true });
  writeFileSync(full, text);
  return full;
}

/** Six numbers and their codes. absmax = 1.27 gives scale = 0.01, so the codes are the rounded numbers times 100. There are no ties. */
const numbers = [-1.27, -0.5, 0, 0.014, 0.3, 1.27];
const codes = [-127, -50, 0, 1, 30, 127];
/** Code that quantizes the numbers. It needs `load`. */
const quantizeThem = `load().then((sp) => Array.from(sp.quantize(new Float32Array(${JSON.stringify(numbers)})).data))`;

interface Manifest {
  version: string;
  exports: Record<string, string | Record<string, string>>;
  bin: Record<string, string>;
}
const manifestOf = (path: string) => JSON.parse(readFileSync(join(path, 'package.json'), 'utf8')) as Manifest;

beforeAll(async () => {
  if (!existsSync(join(root, 'dist/index.js'))) throw new Error('there is no dist/: build first, with npm run build');
  const packed = await run('npm', ['pack', '--ignore-scripts', '--json', '--pack-destination', folder], root);
  tarball = join(folder, (JSON.parse(packed) as { filename: string }[])[0]!.filename);
  write('package.json', JSON.stringify({ name: 'consumer', private: true, type: 'module' }));
  await run('npm', ['install', '--offline', '--no-audit', '--no-fund', tarball]);
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the packed package', () => {
  it('holds the built files, the guide, the reference, README, license and notes for contributors, and nothing else', async () => {
    const names = (await run('tar', ['-tzf', tarball])).trim().split('\n');
    const expected =
      /^package\/(dist\/|web\/demo\/guide\/\d\d-[\w-]+\.md$|build\/reference\/\w+\.md$|package\.json$|(README|CONTRIBUTING)\.md$|LICENSE$)/;
    expect(names.filter((name) => !expected.test(name))).toEqual([]);
    expect(names).toContain('package/dist/index.js');
    expect(names).toContain('package/LICENSE');
    expect(names).toContain('package/README.md');
    expect(names).toContain('package/build/reference/model.md');
  });

  it('has each file and heading that its README and its guide link to', () => {
    const guide = join('web/demo/guide');
    const pages = [
      'README.md',
      'CONTRIBUTING.md',
      ...readdirSync(join(installed, guide)).map((name) => join(guide, name)),
    ];
    expect(pages.length).toBeGreaterThan(10);
    const broken: string[] = [];
    let count = 0;
    for (const page of pages) {
      // Skip code, which may look like a link.
      const text = readFileSync(join(installed, page), 'utf8')
        .replace(/^```[\s\S]*?^```$/gm, '')
        .replace(/`[^`\n]*`/g, '');
      for (const [, to = ''] of text.matchAll(/\]\(([^)\s]*)\)/g)) {
        count++;
        const [name = '', id] = to.split('#');
        const file = join(installed, name === '' ? page : join(dirname(page), name));
        const headings = existsSync(file) ? [...readFileSync(file, 'utf8').matchAll(/^#+ (.*)$/gm)] : undefined;
        const ids = headings?.map(([, heading = '']) => anchorOf(heading));
        if (ids === undefined || (id !== undefined && !ids.includes(id))) broken.push(`${page}: ${to}`);
      }
    }
    expect(broken).toEqual([]);
    expect(count).toBeGreaterThan(30);
  });

  it('links to the pages of its site, if there is one', async () => {
    const copy = join(folder, 'addressed');
    const given = ['package.json', 'README.md'].map((name) => readFileSync(join(root, name), 'utf8'));
    const addressed = async (site: string, repository = '') => {
      mkdirSync(copy, { recursive: true });
      for (const name of ['package.json', 'README.md']) cpSync(join(root, name), join(copy, name));
      const github = { GITHUB_REPOSITORY: repository, GITHUB_SERVER_URL: 'https://github.com' };
      const env = { ...process.env, SCALEPOINT_SITE: site, ...github };
      await execute(process.execPath, [join(root, 'scripts/address_package.mjs'), copy], { env });
      return ['package.json', 'README.md'].map((name) => readFileSync(join(copy, name), 'utf8')) as [string, string];
    };
    expect(await addressed('')).toEqual(given);
    const [manifest, readme] = await addressed('https://a.test/b', 'me/b');
    expect(JSON.parse(manifest)).toEqual({
      ...JSON.parse(given[0]!),
      repository: { type: 'git', url: 'git+https://github.com/me/b.git' },
      bugs: { url: 'https://github.com/me/b/issues' },
      homepage: 'https://a.test/b/',
    });
    // The build wrote each of these pages, with the headings that links name.
    const links = [...readme.matchAll(/\]\(https:\/\/a\.test\/b\/([^)#]*)(?:#([^)]*))?\)/g)];
    expect(links.length).toBeGreaterThan(8);
    for (const [link, page = '', id] of links) {
      const html = readFileSync(join(root, 'build/demo', page, 'index.html'), 'utf8');
      if (id !== undefined) expect(html, link).toContain(`id="${id}"`);
    }
    const relative = [...readme.matchAll(/\]\((?!https?:|#)([^)]*)\)/g)].map(([, to]) => to);
    expect(relative.every((to) => to === 'CONTRIBUTING.md' || to === 'LICENSE')).toBe(true);
  });

  it('exports only files that it holds, with types first', () => {
    const { exports, bin: programs } = manifestOf(installed);
    expect(Object.keys(exports)).toEqual(
      expect.arrayContaining([
        '.',
        './model',
        ...['arrays', 'core'].flatMap((module) => [`./${module}-simd.wasm`, `./${module}-scalar.wasm`]),
      ]),
    );
    for (const [entry, target] of Object.entries(exports)) {
      const conditions = typeof target === 'string' ? { default: target } : target;
      if (entry !== './package.json') expect(Object.keys(conditions)).toEqual(['types', 'default']);
      for (const path of Object.values(conditions)) expect(existsSync(join(installed, path)), path).toBe(true);
    }
    expect(Object.keys(programs)).toEqual(['scalepoint']);
    for (const path of Object.values(programs))
      expect(readFileSync(join(installed, path), 'utf8')).toMatch(/^#!\/usr\/bin\/env node\n/);
  });

  it('has no dependencies and no install scripts', () => {
    const manifest = manifestOf(installed) as object as Record<string, Record<string, string> | undefined>;
    for (const field of ['dependencies', 'optionalDependencies', 'bundleDependencies']) {
      expect(Object.keys(manifest[field] ?? {}), field).toEqual([]);
    }
    // They push and run models and tokenize texts if they are there. npm installs no optional peer by itself.
    const peers = ['@huggingface/hub', '@huggingface/tokenizers', 'onnxruntime-web'];
    expect(Object.keys(manifest.peerDependencies ?? {})).toEqual(peers);
    expect(manifest.peerDependenciesMeta).toEqual(Object.fromEntries(peers.map((name) => [name, { optional: true }])));
    const scripts = Object.keys(manifest.scripts ?? {});
    expect(scripts.filter((name) => /^(pre|post)?install$|^(pre|post)?prepare$/.test(name))).toEqual([]);
    const lock = JSON.parse(readFileSync(join(consumer, 'package-lock.json'), 'utf8')) as { packages: object };
    expect(Object.keys(lock.packages)).toEqual(['', 'node_modules/scalepoint']);
  });

  it('can be read and debugged: lines and names, without maps', () => {
    const dist = join(installed, 'dist');
    const files = readdirSync(dist, { recursive: true, encoding: 'utf8' });
    expect(files.filter((name) => name.endsWith('.map'))).toEqual([]);
    const scripts = files.filter((name) => name.endsWith('.js'));
    for (const name of scripts) {
      const text = readFileSync(join(dist, name), 'utf8');
      // The tables of the benchmark and the glue of the core have long lines, but not whole files.
      expect(text.length / text.split('\n').length, name).toBeLessThan(500);
      expect(text, name).not.toContain('sourceMappingURL');
    }
    const code = scripts.map((name) => readFileSync(join(dist, name), 'utf8')).join('\n');
    for (const name of ['Scalepoint', 'SearchIndex', 'Layer', 'WorkerPool'])
      expect(code).toMatch(new RegExp(`class ${name}\\b|\\b${name} = class\\b`));
  });

  it('has stack traces that lead to the sources', async () => {
    write(
      'trace.mjs',
      `import { inspectModel } from 'scalepoint/model';
      import { inspectModel as inspectInline } from 'scalepoint/inline';
      for (const inspect of [inspectModel, inspectInline])
        await inspect(new Uint8Array(64)).catch(({ stack }) => console.log(stack));`,
    );
    const trace = await run('node', ['trace.mjs']);
    const frames = [...trace.matchAll(/at (?:async )?(?:new )?(\w+) \(.*\/scalepoint\/(dist\/[\w-]+\.js):(\d+):/g)];
    expect(new Set(frames.map(([, , file]) => file)).size).toBeGreaterThan(1);
    for (const [frame, name = '', file = '', line] of frames) {
      // The comment before the code of a module names its source.
      const before = readFileSync(join(installed, file), 'utf8').split('\n').slice(0, Number(line));
      const [, source] = before.reverse().flatMap((text) => /^\/\/ (web\/src\/.*\.ts)$/.exec(text) ?? []);
      expect(source, frame).toBeDefined();
      // A bundler adds a number to a name that several files define.
      expect(readFileSync(join(root, source!), 'utf8'), frame).toContain(name.replace(/\$\d+$/, ''));
    }
  });

  it('imports nothing in a form that bundlers are known to break', () => {
    const dist = join(installed, 'dist');
    for (const name of readdirSync(dist).filter((file) => /^(chunk-|index|model|bench).*\.js$/.test(file))) {
      // Vite 5 and 6 take what is destructured here for the names of the file, before `then` gives something else.
      expect(readFileSync(join(dist, name), 'utf8'), name).not.toMatch(/\{[^{}]*\} = await import\([^)]*\)\.then/);
    }
  });

  it('satisfies publint', async () => {
    const bytes = readFileSync(tarball);
    const { messages } = await publint({ pack: { tarball: Uint8Array.from(bytes).buffer }, strict: true });
    expect(messages).toEqual([]);
  });

  it('has types that resolve for ES modules', async () => {
    // attw exits with an error if there are problems.
    await run(bin('attw'), [tarball, '--profile', 'esm-only', '--no-definitely-typed', '--format', 'ascii']);
  });
});

describe('in Node, the installed package', () => {
  it('can be imported as an ES module', async () => {
    write(
      'a.mjs',
      `import { load } from 'scalepoint';\n${quantizeThem}.then((codes) => console.log(JSON.stringify(codes)));`,
    );
    expect(JSON.parse(await run('node', ['a.mjs']))).toEqual(codes);
  });

  it('can be required from CommonJS', async () => {
    write(
      'a.cjs',
      `const { load } = require('scalepoint');\n${quantizeThem}.then((codes) => console.log(JSON.stringify(codes)));`,
    );
    expect(JSON.parse(await run('node', ['--no-warnings', 'a.cjs']))).toEqual(codes);
  });

  it('gives the same codes in both builds of the core', async () => {
    const both = ['on', 'off'].map((simd) => quantizeThem.replace('load()', `load({ simd: '${simd}' })`));
    write(
      'b.mjs',
      `import { load } from 'scalepoint';\nconsole.log(JSON.stringify(await Promise.all([${both.join(', ')}])));`,
    );
    expect(JSON.parse(await run('node', ['b.mjs']))).toEqual([codes, codes]);
  });

  it('has no side effects when it is imported', async () => {
    const entries = Object.keys(manifestOf(installed).exports).filter((entry) => !/\.(wasm|json)$|worker$/.test(entry));
    write(
      'c.mjs',
      `const state = () => JSON.stringify([Reflect.ownKeys(globalThis).map(String), process.eventNames().map(String), process.getActiveResourcesInfo()]);
      const before = state();
      for (const entry of ${JSON.stringify(entries)}) await import('scalepoint' + entry.slice(1));
      if (state() !== before) throw new Error(state() + ' after ' + before);`,
    );
    expect(await run('node', ['c.mjs'])).toBe('');
  });

  it('does the work in the calling thread where the worker is missing, and notes it', async () => {
    cpSync(join(installed, 'dist'), join(consumer, 'alone'), { recursive: true });
    rmSync(join(consumer, 'alone/scalepoint-worker.js'));
    write(
      'alone.mjs',
      `import { quantizeModel } from './alone/model.js';
      const options = { to: 'int8', workers: 2 };
      const { report, bytes } = await quantizeModel(${JSON.stringify(samplePath)}, options);
      console.log(JSON.stringify([report.notes, (await bytes()).length]));`,
    );
    const [notes, length] = JSON.parse(await run('node', ['alone.mjs']));
    expect(notes).toMatchObject([
      {
        kind: 'noWorkers',
        text: expect.stringMatching(/^without workers.*: a worker failed: .*scalepoint-worker\.js/),
      },
    ]);
    expect(length).toBe((await (await quantizeModel(samplePath, { to: 'int8' })).bytes()).length);
  });

  it('has a command line', async () => {
    expect(await run('npx', ['--offline', 'scalepoint', '--version'])).toContain(manifestOf(installed).version);
    await run('npx', ['--offline', 'scalepoint', 'quantize', samplePath, '--to', 'int8', '-o', 'digits.safetensors']);
    const after = readFileSync(join(consumer, 'digits.safetensors'));
    expect(after.equals(await (await quantizeModel(samplePath, { to: 'int8' })).bytes())).toBe(true);
  });
});

describe('in the environments of the matrix that need no other package', () => {
  afterAll(closeBrowser);

  it('gives the same', async () => {
    const place = new Place();
    try {
      cpSync(installed, join(place.folder, 'node_modules/scalepoint'), { recursive: true });
      const [expected] = await place.results(place.run('node', ['print.js']));
      expect(expected).toEqual({ hash: expect.stringMatching(/^[0-9a-f]{1,8}$/), note: '' });
      const quick = environments.filter(({ packages }) => packages.length === 0);
      expect(quick.length).toBeGreaterThan(1);
      for (const { name, run } of quick) {
        for (const result of await run(place)) expect({ name, ...result }).toEqual({ name, ...expected });
      }
    } finally {
      place.remove();
    }
  });
});

describe('for TypeScript, the installed package', () => {
  const program = `
    import { load, type LinearQuantizedTensor } from 'scalepoint';
    import { inspectModel } from 'scalepoint/model';
    export async function use(x: Float32Array): Promise<number> {
      const sp = await load({ simd: 'auto' });
      const q: LinearQuantizedTensor = sp.quantize(x, { dtype: 'uint4', granularity: { kind: 'per-group', groupSize: 32 } });
      const y: Float32Array = sp.dequantize(q);
      // @ts-expect-error there is no such type
      sp.quantize(x, { dtype: 'int9' });
      const info = await inspectModel(new Blob([]));
      sp.dispose();
      return y.length + info.tensors.length;
    }`;
  const cases = [
    { module: 'nodenext', moduleResolution: 'nodenext' },
    { module: 'esnext', moduleResolution: 'bundler' },
  ];
  it.each(cases)('type-checks with moduleResolution $moduleResolution and skipLibCheck off', async (options) => {
    write('types/use.ts', program);
    const compilerOptions = {
      ...options,
      target: 'es2022',
      lib: ['es2022', 'dom'],
      types: [],
      strict: true,
      skipLibCheck: false,
      noEmit: true,
    };
    write('types/tsconfig.json', JSON.stringify({ compilerOptions, include: ['use.ts'] }));
    await run(bin('tsc'), ['-p', 'types/tsconfig.json']);
  });
});

describe('in a page, the installed package', () => {
  const page = join(consumer, 'page');
  const strictPolicy =
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'";
  let browser: Browser;

  /** Writes a page that quantizes on its main thread and in a worker, and that inspects a file that is not a model. */
  function writePage(folder: string, entry: string, modelEntry: string): void {
    write(`${folder}/index.html`, '<!doctype html><title>page</title><script type="module" src="./main.js"></script>');
    write(
      `${folder}/worker.js`,
      `import { load } from '${entry}';\n${quantizeThem}.then((codes) => postMessage(codes));`,
    );
    write(
      `${folder}/main.js`,
      `import { load } from '${entry}';
      import { inspectModel } from '${modelEntry}';
      const worker = new Worker(new URL('./worker.js', import.meta.url), { type: 'module' });
      const fromWorker = new Promise((done, fail) => {
        worker.onmessage = ({ data }) => done(data);
        worker.onerror = (event) => fail(new Error(event.message));
      });
      const noModel = inspectModel(new Blob(['hello'])).catch((error) => error.code);
      globalThis.answer = Promise.all([${quantizeThem}, fromWorker, noModel]);`,
    );
  }
  const expected = [codes, codes, 'UNKNOWN_FORMAT'];

  beforeAll(async () => {
    writePage('page', 'scalepoint', 'scalepoint/model');
    await build({ root: page, configFile: false, logLevel: 'error', build: { outDir: 'built' } });
    browser = await chromium.launch(pageOptions);
  });

  afterAll(() => browser?.close());

  /** Opens a page. Returns what it computed, whether it is cross-origin isolated, and all errors and warnings. */
  async function open(url: string) {
    const tab = await browser.newPage();
    tab.setDefaultTimeout(hangLimit);
    const problems: string[] = [];
    tab.on('pageerror', (error) => problems.push(error.message));
    tab.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') problems.push(message.text());
    });
    await tab.goto(url);
    await tab.waitForFunction('globalThis.answer !== undefined');
    const answer = await tab.evaluate('globalThis.answer.catch((error) => String(error))');
    const isolated = await tab.evaluate('globalThis.crossOriginIsolated');
    await tab.close();
    return { answer, isolated, problems };
  }

  async function openFolder(folder: string, policy: string) {
    const { url, close } = await serve({ folder, port: 0, policy });
    try {
      return await open(url);
    } finally {
      await close();
    }
  }

  it('works when bundled by Vite, under a strict Content-Security-Policy and without cross-origin isolation', async () => {
    expect(await openFolder(join(page, 'built'), strictPolicy)).toEqual({
      answer: expected,
      isolated: false,
      problems: [],
    });
  });

  it('works from any static server, without a bundler', async () => {
    writePage('plain', './dist/index.js', './dist/model.js');
    cpSync(join(installed, 'dist'), join(consumer, 'plain/dist'), { recursive: true });
    expect(await openFolder(join(consumer, 'plain'), strictPolicy)).toEqual({
      answer: expected,
      isolated: false,
      problems: [],
    });
  });

  it("works with Vite's development server, without configuration", async () => {
    const server = await createServer({
      root: page,
      configFile: false,
      logLevel: 'error',
      server: { port: 0, host: '127.0.0.1' },
    });
    try {
      await server.listen();
      expect((await open(server.resolvedUrls!.local[0]!)).answer).toEqual(expected);
    } finally {
      await server.close();
    }
  });

  it('says what is missing when the policy forbids WebAssembly', async () => {
    const { answer } = await openFolder(join(page, 'built'), strictPolicy.replace(" 'wasm-unsafe-eval'", ''));
    expect(answer).toMatch(/'wasm-unsafe-eval'/);
  });
});

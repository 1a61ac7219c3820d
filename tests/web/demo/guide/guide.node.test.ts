// The guide: its code runs and prints what it says, and its pages are complete.
import { execFile } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import type { Browser, BrowserContext, Page } from 'playwright';
import * as scalepoint from 'scalepoint';
import * as bench from 'scalepoint/bench';
import * as model from 'scalepoint/model';
import { transformWithOxc } from 'vite';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { hangLimit } from '../../../../scripts/chromium.mjs';
import { serve } from '../../../../scripts/serve.mjs';
import { type GuidePage, guidePages } from '../../../../web/demo/guide/build.mjs';
import { path as inFolder, run, useFolder } from '../../cli/support.js';
import * as onnx from '../../formats/onnx/encoder.js';
import { sidecars } from '../../formats/onnx/transformer.js';
import { howToInstall, modelFiles } from '../../formats/onnx/transformers.js';
import { blocksIn, type CodeBlock, isProgram } from '../../support/examples.js';
import { startHub, type TestHub } from '../../support/hub/hub.mjs';
import { activationsOf, matrixFile } from '../../support/importance.js';
import { pair, spellings } from '../../support/lora.js';
import { safetensors, weights } from '../../support/models.js';
import { npy, zip } from '../../support/npz.js';
import { decoderConfig, decoderWeights, plainTokenizer, tiny } from '../../support/tiny-huggingface.js';
import { tinyLlama } from '../../support/tiny-llama.js';
import { visionFolder } from '../../support/towers.js';
import { path as root, type Served, servePages } from '../served.js';

const sample = root('web/demo/public/samples/digits.safetensors');

/** A small GGUF file whose weights are Q8_0. */
async function gguf(): Promise<Uint8Array> {
  return (await model.quantizeModel(tinyLlama(), { to: 'Q8_0' })).bytes();
}

/** The files of a language model, by name. */
const languageModel: Readonly<Record<string, Uint8Array>> = {
  'model.safetensors': safetensors(
    Object.fromEntries(
      [...decoderWeights()].map(([name, { shape, values }]) => [name, { dtype: 'F32', shape, data: values }]),
    ),
  ),
  'config.json': Buffer.from(JSON.stringify(decoderConfig('LlamaForCausalLM'))),
  'tokenizer.json': Buffer.from(JSON.stringify(plainTokenizer())),
};

/** Writes the models that become GGUF. */
async function putModels(): Promise<void> {
  mkdirSync(inFolder('my-model'), { recursive: true });
  for (const [name, bytes] of Object.entries(languageModel)) writeFileSync(inFolder(`my-model/${name}`), bytes);
  mkdirSync(inFolder('my-vision-model'), { recursive: true });
  for (const [name, content] of Object.entries(visionFolder()))
    writeFileSync(inFolder(`my-vision-model/${name}`), content);
  mkdirSync(inFolder('my-adapter'), { recursive: true });
  const { hidden, feedForward } = tiny;
  const adapter = spellings.peft('model.layers.0.mlp.up_proj', pair(feedForward, hidden, 4, 1), hidden, 8);
  writeFileSync(inFolder('my-adapter/adapter_model.safetensors'), safetensors(adapter));
  writeFileSync(inFolder('my-adapter/adapter_config.json'), JSON.stringify({ peft_type: 'LORA', r: 4, lora_alpha: 8 }));
  const flux = { 'double_blocks.0.img_attn.proj.weight': weights('BF16', [8, 256]) };
  writeFileSync(inFolder('model.onnx'), onnx.product('MatMul', [64, 32], [1, 64], [1, 32])());
  const x = npy('<f4', '(2, 64)', Float32Array.from({ length: 128 }, (_, i) => Math.sin(i)).buffer);
  writeFileSync(
    inFolder('samples.npz'),
    zip([['x.npy', x, 0]], (bytes) => bytes),
  );
  writeFileSync(inFolder('flux1-dev.safetensors'), safetensors(flux));
  const llama = tinyLlama({ layers: 1, rows: 2 });
  writeFileSync(inFolder('llama.gguf'), llama);
  const { tensors } = await model.inspectModel(llama);
  writeFileSync(inFolder('llama.imatrix.gguf'), matrixFile(activationsOf(tensors)));
}

const blocksOf = ({ markdown = '' }: GuidePage) => blocksIn(markdown);
const texts = guidePages().filter(({ markdown }) => markdown !== undefined);
const titled = texts.map((page) => [page.title, page] as const);
const blocks = texts.flatMap((page) => blocksOf(page).map((block) => ({ ...block, page })));

/** The blocks for pages, by the file names that they begin with, or else by their numbers. */
const browserBlocks = blocks.flatMap(({ language, code }, i) => {
  if (language !== 'js browser') return [];
  return [{ code, name: /^\/\/ ([\w-]+)\.ts\n/.exec(code)?.[1] ?? `block-${i}` }];
});

/** The output that a block states: comments after console.log, or after a loop with one. */
function promised(code: string): string[] {
  const lines = code.split('\n');
  const first = lines.findIndex((line) => line.includes('console.log'));
  return lines.flatMap((line, i) => {
    const [, text] = (line.includes('console.log') ? /; \/\/ (.*)$/ : /^\/\/ (.*)$/).exec(line) ?? [];
    return text !== undefined && i >= first && first >= 0 ? [text] : [];
  });
}

/** In place of React: one component, drawn once, whose effects can be ended. */
const react = (() => {
  let state: unknown;
  const ends: (() => void)[] = [];
  return {
    useState: (first: unknown) => {
      state ??= first;
      const set = (next: unknown) => {
        state = next;
      };
      return [state, set];
    },
    useEffect: (effect: () => () => void) => ends.push(effect()),
    current: () => state as { core?: scalepoint.Scalepoint; error?: unknown },
    end: () => {
      for (const end of ends.splice(0)) end();
    },
  };
})();

const modules: Readonly<Record<string, unknown>> = { scalepoint, 'scalepoint/model': model, 'scalepoint/bench': bench };
/** Modules that code of the guide may import. The inline module is there once the package is built. */
const imports = { ...modules, react, 'scalepoint/inline': await import(pathToFileURL(root('dist/inline.js')).href) };

/** Runs the blocks of a page one after the other, in one scope or, if they stand alone, in one inside of it. Returns what each printed. */
async function runBlocks(parts: readonly CodeBlock[]): Promise<string[][]> {
  const printed = parts.map((): string[] => []);
  const body = parts.map(({ language, code }, i) => {
    const imported = code
      .replace(/\btype \w+, /g, '')
      .replace(/^import (\{[^}]*\}) from '([^']*)';$/gm, "const $1 = modules['$2'];");
    return `at = ${i};\n${language.endsWith(' alone') ? `{\n${imported}\n}` : imported}`;
  });
  const { code } = await transformWithOxc(body.join('\n'), 'page.ts');
  const AsyncFunction = (async () => {}).constructor as FunctionConstructor;
  const program = new AsyncFunction(
    'modules',
    'printed',
    `let at = 0;\nconst console = { log: (...values) => printed[at].push(values.join(' ')) };\n${code}`,
  );
  await program(imports, printed);
  return printed;
}

describe('the code of the guide', () => {
  useFolder();

  // The models and the account that the page about the hub names.
  let hub: TestHub;
  const variables = ['HF_ENDPOINT', 'HF_HOME', 'HF_TOKEN'] as const;
  const before = variables.map((name) => [name, process.env[name]] as const);
  beforeAll(async () => {
    const files = { 'tiny-Q8_0.gguf': await gguf(), 'tiny-Q4_0.gguf': new Uint8Array(64) };
    const repositories = { 'acme/tiny': { files: languageModel }, 'acme/tiny-GGUF': { files } };
    hub = await startHub({ repositories, tokens: { hf_mine: { user: 'me' } } });
    Object.assign(process.env, { HF_ENDPOINT: hub.endpoint, HF_HOME: '/nonexistent', HF_TOKEN: 'hf_mine' });
  });
  afterAll(async () => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    await hub.close();
  });

  it('is of a kind that is tested below', () => {
    expect([...new Set(blocks.map(({ language }) => language))].sort()).toEqual([
      'csp',
      'html page',
      'js',
      'js alone',
      'js browser',
      'js config',
      'js extension',
      'js node',
      'js page',
      'js worker',
      'json',
      'kubernetes',
      'sh',
      'sh jobs',
      'slurm',
      // Commands of other programs, and of models that are too large for a test.
      'text',
      'ts',
      'ts alone',
      'ts transformers',
    ]);
  });

  it.each(titled)('%s: runs in Node and prints what it says', async (_, page) => {
    copyFileSync(sample, inFolder('model.safetensors'));
    await putModels();
    writeFileSync(inFolder('model-Q8_0.gguf'), await gguf());
    const parts = blocksOf(page).filter(isProgram);
    const before = process.cwd();
    process.chdir(inFolder());
    try {
      for (const [i, lines] of (await runBlocks(parts)).entries()) {
        const expected = promised(parts[i]!.code);
        if (expected.length > 0) expect(lines).toEqual(expected);
      }
    } finally {
      process.chdir(before);
    }
  });

  it('gives memory back when a component goes, whether its core has been loaded or not', async () => {
    const [recipe] = blocks.filter(({ code }) => code.includes("from 'react'"));
    const code = `${recipe!.code.replace(/^import .*$/m, '')}\nuseScalepoint();`;
    const show = () =>
      new Function('load', 'useEffect', 'useState', code)(scalepoint.load, react.useEffect, react.useState);
    show();
    react.end();
    show();
    await vi.waitFor(() => expect(react.current().core).toBeDefined());
    const { core } = react.current();
    expect(core!.quantize([1]).data).toHaveLength(1);
    react.end();
    await vi.waitFor(() => expect(() => core!.quantize([1])).toThrow(/dispose/));
    expect(react.current().error).toBeUndefined();
  });

  it.each(titled)('%s: its commands run', async (_, page) => {
    copyFileSync(sample, inFolder('model.safetensors'));
    await putModels();
    const { name } = JSON.parse(readFileSync(root('package.json'), 'utf8'));
    const lines = blocksOf(page).flatMap(({ language, code }) => (language === 'sh' ? code.trim().split('\n') : []));
    for (const line of lines) {
      const [program, command, ...args] = [...line.matchAll(/'([^']*)'|(\S+)/g)].map(
        ([, quoted, word]) => quoted ?? word!,
      );
      if (program === 'npm') expect([command, ...args]).toEqual(['install', name]);
      else {
        expect([program, command]).toEqual(['npx', name]);
        expect(await run(args)).toMatchObject({ code: 0, stderr: expect.not.stringMatching(/\berror:/i) });
      }
    }
  });

  it('starts parts of the work with three job runners, which make the same files as one run', async () => {
    copyFileSync(sample, inFolder('model.safetensors'));
    const codeOf = (language: string) => blocks.filter((block) => block.language === language).map(({ code }) => code);
    const [[jobs], [slurm], [kubernetes]] = [codeOf('sh jobs'), codeOf('slurm'), codeOf('kubernetes')];
    // The shell does what it says, with the program of this folder in place of npx.
    const npx = `npx() { shift; "${process.execPath}" "${root('dist/cli.js')}" "$@"; }; export -f npx`;
    const shell = (code: string, env: Record<string, string> = {}) =>
      promisify(execFile)('bash', ['-ec', `${npx}\n${code}`], { cwd: inFolder(), env: { ...process.env, ...env } });
    const { stdout } = await shell(jobs!.replace('npx scalepoint model', 'bash -c \'npx "$@"\' - scalepoint model'));
    expect(stdout).toContain('no problems found');
    // Parts that other machines run are run here, one after the other, and the folder is made before.
    const parts = async (code: string, name: string, variable: (i: number) => string, made: string) => {
      expect(code).toContain(`mkdir -p ${made}`);
      mkdirSync(inFolder(made));
      const line = code
        .split('\n')
        .find((text) => text.includes('npx scalepoint'))!
        .trim();
      expect(line).toContain(name);
      for (let i = 15; i >= 0; i--) {
        const [, , ...args] = line.replace(name, variable(i)).split(' ');
        expect(await run(args)).toMatchObject({ code: 0, stderr: '' });
      }
    };
    expect(slurm).toContain('--array=1-16');
    await parts(slurm!, '$SLURM_ARRAY_TASK_ID', (i) => String(i + 1), 'slurm');
    expect(kubernetes).toMatch(/completionMode: Indexed\n +completions: 16/);
    await parts(kubernetes!, '$((JOB_COMPLETION_INDEX + 1))', (i) => String(i + 1), 'kubernetes');
    mkdirSync(inFolder('one'));
    const plan = await model.planModel(sample, { to: 'int8' });
    for (const [folder, count] of [
      ['local', 4],
      ['slurm', 16],
      ['kubernetes', 16],
    ] as const) {
      const sizes = plan.tensors.reduce((sum, { bytesAfter }) => sum + bytesAfter, 0);
      const output = inFolder('one', `${folder}.safetensors`);
      const { files } = await model.quantizeModel(sample, { to: 'int8', shardSize: Math.ceil(sizes / count), output });
      for (const { name } of files.filter((file) => !file.name.endsWith('.json'))) {
        const made = name.replace(folder, 'model');
        expect(readFileSync(inFolder(folder, made))).toEqual(readFileSync(inFolder('one', name)));
      }
    }
  });

  it('names all that the entry points for arrays and models export', () => {
    const all = texts.map(({ markdown }) => markdown).join('\n');
    const missing = [scalepoint, model].flatMap(Object.keys).filter((name) => !new RegExp(`\\b${name}\\b`).test(all));
    expect(missing).toEqual([]);
  });

  it('has a row for every code of an error', () => {
    const source = readFileSync(root('web/src/core/errors.ts'), 'utf8');
    const codes = [...source.matchAll(/^ {2}\| '(\w+)'/gm)].map(([, code]) => code);
    const errors = texts.find(({ name }) => name === 'errors')?.markdown ?? '';
    const rows = [...errors.matchAll(/^\| `(\w+)` /gm)].map(([, code]) => code);
    expect(codes.length).toBeGreaterThan(10);
    expect(rows.sort()).toEqual(codes.sort());
  });

  it('configures bundlers for the package', async () => {
    const made: unknown[] = [];
    for (const { language, code } of blocks) {
      if (language !== 'js config') continue;
      made.push((await import(`data:text/javascript,${encodeURIComponent(code)}`)).default);
    }
    expect(made).toEqual([{ optimizeDeps: { exclude: ['scalepoint'] } }, { worker: { format: 'es' } }]);
  });
});

// --------------------------------------------------------------------------------------------------------------------- the pages

let served: Served | undefined;
let browser: Browser;
let server: Served['server'];
beforeAll(async () => {
  served = await servePages();
  ({ server, browser } = served);
});
afterAll(() => served?.close());

/** Runs with a new page. It must not complain. */
async function withPage(
  options: Parameters<Browser['newContext']>[0],
  work: (page: Page, context: BrowserContext) => Promise<void>,
): Promise<void> {
  const context = await browser.newContext({ serviceWorkers: 'block', reducedMotion: 'reduce', ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(hangLimit);
  const complaints: string[] = [];
  page.on('console', (message) => {
    if (!message.text().includes('blocked by Playwright')) complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(error.message));
  try {
    await work(page, context);
  } finally {
    await context.close();
  }
  expect(complaints).toEqual([]);
}

const addressOf = ({ name }: GuidePage) => `${server.url}guide/${name === '' ? '' : `${name}/`}`;

describe('the code of the guide in Chromium', () => {
  const packages = 'tests/transformers/node_modules/';
  const transformers = `${packages}@huggingface/transformers/dist/transformers.web.js`;

  /** Opens a page of an app with transformers.js, whose /models/ are given, with the recipe of that name as its code. */
  async function openApp(page: Page, recipe: string, models: ReadonlyMap<string, string | Uint8Array>) {
    const block = blocks.find(
      ({ language, code }) => language === 'ts transformers' && code.startsWith(`// ${recipe}.ts`),
    );
    const { code } = await transformWithOxc(block!.code, 'recipe.ts');
    const runtime = `${packages}onnxruntime-web/dist/`;
    const wasmPaths = { mjs: 'ort-wasm-simd-threaded.asyncify.mjs', wasm: 'ort-wasm-simd-threaded.asyncify.wasm' };
    await page.route('**/elsewhere/**', async (route) => {
      const name = new URL(route.request().url()).pathname.replace(/^\/elsewhere\//, '');
      if (name === 'recipe.js') return route.fulfill({ contentType: 'text/javascript', body: code });
      if (name !== 'page.html') return route.fulfill({ path: root(name) });
      const imports = {
        scalepoint: './dist/index.js',
        'scalepoint/model': './dist/model.js',
        '@huggingface/transformers': `./${transformers}`,
        'onnxruntime-web/webgpu': `./${runtime}ort.webgpu.bundle.min.mjs`,
        'onnxruntime-common': `./${packages}onnxruntime-common/dist/esm/index.js`,
      };
      const map = JSON.stringify({ imports });
      return route.fulfill({ contentType: 'text/html', body: `<script type="importmap">${map}</script>` });
    });
    await page.route('**/models/**', (route) => {
      const body = models.get(new URL(route.request().url()).pathname.replace('/models/', ''));
      return body === undefined ? route.fulfill({ status: 404 }) : route.fulfill({ body: Buffer.from(body) });
    });
    return async (work: string) => {
      await page.goto(`${server.url}elsewhere/page.html`);
      // As text, since the test runner would replace the imports.
      return page.evaluate(`(async () => {
        const { env } = await import('@huggingface/transformers');
        const paths = Object.entries(${JSON.stringify(wasmPaths)}).map(([name, file]) =>
          [name, new URL('/elsewhere/${runtime}' + file, location.href).href]);
        Object.assign(env.backends.onnx.wasm, { numThreads: 1, wasmPaths: Object.fromEntries(paths) });
        env.useBrowserCache = false;
        env.useWasmCache = false;
        const recipe = await import('/elsewhere/recipe.js');
        ${work}
      })()`);
    };
  }

  it('searches texts by embeddings of transformers.js, also after the next visit', async ({ skip }) => {
    if (!existsSync(root(transformers))) skip(howToInstall);
    const models = new Map<string, string | Uint8Array>();
    for (const [name, bytes] of await modelFiles()) models.set(`small/onnx/${name}`, bytes);
    for (const [name, json] of Object.entries(sidecars)) models.set(`small/${name}`, JSON.stringify(json));
    await withPage({}, async (page) => {
      const visit = await openApp(page, 'search-texts', models);
      const added = { a: 'the small model reads a large block', b: 'zero point , zero point', c: 'weight and scale' };
      const first = await visit(`
        const texts = await recipe.openTexts();
        const before = await texts.search('zero point');
        await texts.add(${JSON.stringify(added)});
        return [before, await texts.search('zero point , zero point', 2)];`);
      expect(first).toMatchObject([[], [{ id: 'b', text: added.b }, {}]]);
      // The score is that of 8 bits against 8 bits of the same vector.
      expect((first as { score: number }[][])[1]![0]!.score).toBeGreaterThan(0.99);
      const second = await visit(`
        const texts = await recipe.openTexts();
        await texts.add({ b: 'the small model', d: 'a code' });
        return [await texts.search('the small model reads a large block', 1), await texts.search('the small model', 9)];`);
      expect(second).toMatchObject([[{ id: 'a' }], [{ id: 'b', text: 'the small model' }, {}, {}, {}]]);
    });
  });

  it('writes with the storyteller, of which transformers.js gets the folder that was made in the page', async ({
    skip,
  }) => {
    if (!existsSync(root(transformers))) skip(howToInstall);
    const names = ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'model.safetensors'];
    await withPage({}, async (page) => {
      // transformers.js asks for a file that the folder lacks, and a 404 is a message of the console.
      const visit = await openApp(page, 'own-model', new Map([['own/generation_config.json', '{}']]));
      const text = await visit(`
        const files = await Promise.all(${JSON.stringify(names)}.map(async (name) =>
          new File([await (await fetch('/samples/storyteller/' + name)).blob()], name)));
        return (await recipe.openWriter(files))('Once upon a time', 24);`);
      expect(text).toMatch(/^Once upon a time.* Biscuit walked /);
    });
  });

  it('makes a model smaller, and finds files at other addresses', async () => {
    await withPage({}, async (page) => {
      await page.route('**/elsewhere/**', async (route) => {
        const name = new URL(route.request().url()).pathname.replace(/^\/elsewhere\//, '');
        const block = browserBlocks.find((each) => [`${each.name}.js`, `${each.name}.ts`].includes(name));
        if (block !== undefined) {
          const { code } = await transformWithOxc(block.code, 'block.ts');
          // Workers have no import map.
          const body = code.replace(/from ["']scalepoint["']/, "from './dist/index.js'");
          return route.fulfill({ contentType: 'text/javascript', body });
        }
        if (name === 'page.html') {
          const imports = { scalepoint: './dist/index.js', 'scalepoint/model': './dist/model.js' };
          const map = JSON.stringify({ imports });
          return route.fulfill({ contentType: 'text/html', body: `<script type="importmap">${map}</script>` });
        }
        return route.fulfill({ path: root(name) });
      });
      await page.route('**/assets/{arrays,core,scalepoint-worker}*', (route) =>
        route.fulfill({ path: root(`dist/${new URL(route.request().url()).pathname.split('/').at(-1)}`) }),
      );
      await page.goto(`${server.url}elsewhere/page.html`);
      const names = browserBlocks.map(({ name }) => name).filter((name) => name !== 'quantizer-worker');
      const base64 = Object.fromEntries(
        Object.entries(languageModel).map(([name, bytes]) => [name, Buffer.from(bytes).toString('base64')]),
      );
      // As text, since the test runner would replace the import.
      const results = await page.evaluate(`(async () => {
        const bytes = Uint8Array.from(atob('${readFileSync(sample).toString('base64')}'), (char) => char.charCodeAt(0));
        const file = new File([bytes], 'digits.safetensors');
        const list = Object.entries(${JSON.stringify(base64)}).map(([name, text]) =>
          new File([Uint8Array.from(atob(text), (char) => char.charCodeAt(0))], name));
        const told = [];
        for (const name of ${JSON.stringify(names)}) {
          const block = await import('/elsewhere/' + name + '.js');
          if (block.sp !== undefined) told.push(block.sp.quantize([1, 2]).data[0]);
          else if (block.toGguf !== undefined) told.push((await block.toGguf(list)).size);
          else if (block.quantize !== undefined) {
            const q = await block.quantize(Float32Array.of(1, 7), { dtype: 'int4' });
            const failed = await block.quantize(Float32Array.of(1), { dtype: 'int9' }).catch(({ message }) => message);
            told.push([...q.data].join() + ' ' + failed.slice(0, 5));
          } else {
            const bar = document.createElement('progress');
            const result = await block.shrink(file, bar);
            told.push(result.download ?? result.report?.totals.bytesAfter ?? [result.size, bar.value].join());
          }
        }
        return told;
      })()`);
      const { totals } = await model.planModel(sample, { to: 'int8' });
      const size = totals.bytesAfter;
      const list = Object.entries(languageModel).map(([name, bytes]) => new File([new Uint8Array(bytes)], name));
      const { totals: converted } = await model.planModel(list, { to: 'Q4_K_M' });
      expect(results).toEqual(['digits.int8.safetensors', converted.bytesAfter, `${size},1`, '1,7 dtype', 64, size]);
    });
  });

  it('names a policy under which the core runs', async () => {
    const [policy, ...others] = blocks.filter(({ language }) => language === 'csp');
    expect(others).toEqual([]);
    const strict = await serve({ folder: root('build/demo'), port: 0, policy: policy!.code.trim() });
    try {
      await withPage({}, async (page) => {
        await page.goto(`${strict.url}numbers/`);
        await page.waitForSelector('#result[aria-busy="false"]', { state: 'attached' });
        expect(await page.textContent('#figure-sqnrDb')).toContain('dB');
      });
    } finally {
      await strict.close();
    }
  });
});

describe('the pages of the guide', () => {
  it('break no option at its hyphens', () => {
    expect(readFileSync(root('build/demo/guide/ranges/index.html'), 'utf8')).toContain(
      '<code class="whole">--range mse</code>',
    );
  });

  interface Visit {
    readonly title: string;
    readonly description: string | null | undefined;
    readonly headings: number;
    readonly current: string | null | undefined;
    readonly onward: readonly (string | null)[];
    readonly ids: readonly string[];
    readonly links: readonly string[];
    /** For each of `looks`, pixels by which the page is too wide, and findings of axe. */
    readonly faults: readonly (readonly (string | number)[])[];
  }

  /** Widths and themes. A page is first wide and then narrow, so that what keeps its width is found. */
  const looks = [
    [2560, 'dark'],
    [360, 'light'],
  ] as const;
  /** Pages that axe judges: those with figures, tables and code, and a reference. */
  const judged = ['', 'bits-and-granularity', 'api-bench'];
  const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

  /** The faults of a page at each width. */
  async function faultsOf(page: Page, isJudged: boolean): Promise<(string | number)[][]> {
    const faults: (string | number)[][] = [];
    if (isJudged) await page.evaluate(axe);
    for (const [width, colorScheme] of looks) {
      await page.setViewportSize({ width, height: 900 });
      await page.emulateMedia({ colorScheme });
      // Figures get their new size before the next frame is drawn.
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      faults.push([over, ...(isJudged ? await judge(page) : [])]);
    }
    return faults;
  }

  /** What axe, which the page has, finds. */
  function judge(page: Page): Promise<string[]> {
    return page.evaluate(async () => {
      type Axe = { run(options: object): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> };
      const { axe } = globalThis as unknown as { axe: Axe };
      const { violations } = await axe.run({ resultTypes: ['violations'], preload: false });
      return violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
    });
  }

  let visits: Promise<Map<GuidePage, Visit>> | undefined;

  /** Visits every page of the guide, once for the tests below. */
  function visited(): Promise<Map<GuidePage, Visit>> {
    visits ??= (async () => {
      const found = new Map<GuidePage, Visit>();
      await withPage({}, async (page) => {
        for (const each of guidePages()) {
          await page.goto(addressOf(each));
          const visit = await page.evaluate((): Omit<Visit, 'faults'> => {
            const all = <T extends Element>(selector: string) => [...document.querySelectorAll<T>(selector)];
            return {
              title: document.title,
              description: document.querySelector('meta[name="description"]')?.getAttribute('content'),
              headings: all('h1').length,
              current: document.querySelector('.contents [aria-current="page"]')?.textContent,
              onward: all('.onward a').map(({ textContent }) => textContent),
              ids: all('[id]').map(({ id }) => id),
              links: all<HTMLAnchorElement>('a[href]').map(({ href }) => href),
            };
          });
          found.set(each, { ...visit, faults: await faultsOf(page, judged.includes(each.name)) });
        }
      });
      return found;
    })();
    return visits;
  }

  it('have titles, descriptions and neighbors of their own', async () => {
    const pages = guidePages();
    expect(texts.length).toBeLessThanOrEqual(17);
    const titles = new Set<string>();
    const descriptions = new Set<string | null | undefined>();
    for (const [i, [each, { title, description, headings, current, onward }]] of [...(await visited())].entries()) {
      titles.add(title);
      descriptions.add(description);
      expect(headings).toBe(1);
      expect(current).toBe(each.title.replace(/^API: /, ''));
      const expected = [pages[i - 1]?.title, pages[i + 1]?.title].filter((other) => other !== undefined);
      expect(onward.map((text) => text?.replace(/^(Previous|Next) /, ''))).toEqual(expected);
    }
    expect([titles.size, descriptions.size]).toEqual([pages.length, pages.length]);
  });

  it('link to pages and headings that exist', async () => {
    const all = await visited();
    const known = new Map([...all].map(([each, { ids }]) => [addressOf(each), new Set(ids)]));
    const broken: string[] = [];
    for (const [each, { links }] of all) {
      for (const to of links) {
        const [address = '', id = ''] = to.split('#');
        const ids = known.get(address);
        if (ids === undefined) {
          known.set(address, new Set());
          if ((await fetch(address)).status !== 200) broken.push(`${addressOf(each)} ${to}`);
        } else if (id !== '' && ids.size > 0 && !ids.has(decodeURIComponent(id))) {
          broken.push(`${addressOf(each)} ${to}`);
        }
      }
    }
    expect(broken).toEqual([]);
  });

  it('are readable at 360 and 2560 pixels, and accessible in both themes', async () => {
    expect(guidePages().filter(({ name }) => judged.includes(name))).toHaveLength(judged.length);
    for (const [{ title }, { faults }] of await visited()) expect([title, ...faults]).toEqual([title, [0], [0]]);
  });

  it('have a picture each, and figures that the keyboard moves', async () => {
    for (const each of texts) {
      const html = readFileSync(root(`build/demo/guide/${each.name && `${each.name}/`}index.html`), 'utf8');
      expect([each.title, /<svg |class="figure/.test(html.slice(html.indexOf('<main')))]).toEqual([each.title, true]);
    }
    const expected: [page: string, figure: string, key: string, before: RegExp, after: RegExp][] = [
      ['', 'round', 'Home', /becomes code 2/, /becomes code −4/],
      ['', 'zero-point', 'End', /from −0.5 to 1: code 5 stands for 0/, /from 0 to 1: code 0 stands for 0/],
      ['bits-and-granularity', 'minus-zero', 'ArrowRight', /15 levels for 16 codes/, /at 0.1 instead of −0: .* more/],
      ['layers-and-search', 'arithmetic', 'End', /take 2 bytes: e4 90/, /scales count once, for the sum: −1.04/],
      ['ranges', 'outlier', 'Home', /share \d levels/, /share 1\d levels/],
      ['arrays', 'codes', 'End', /Even levels/, /NF4/],
    ];
    await withPage({}, async (page) => {
      let at: string | undefined;
      for (const [name, figure, key, before, after] of expected) {
        if (name !== at) await page.goto(addressOf(guidePages().find((each) => each.name === name)!));
        at = name;
        const words = () => page.textContent(`#fig-${figure}-words`);
        await expect.poll(words).toMatch(before);
        await page.focus(`#fig-${figure} [role="slider"]`);
        await page.keyboard.press(key);
        await expect.poll(words).toMatch(after);
      }
    });
  });

  it('copy their code', async () => {
    await withPage({ permissions: ['clipboard-read', 'clipboard-write'] }, async (page) => {
      await page.goto(addressOf(texts[0]!));
      await page.locator('.copy').first().click();
      const copied = await page.evaluate(() => navigator.clipboard.readText());
      expect(copied).toBe(blocksOf(texts[0]!)[0]!.code);
    });
  });
});

describe('the reference', () => {
  const pageOf = (from: string) => guidePages().find(({ title }) => title === `API: ${from}`)!;

  it('has every value that the entry points export, and their types', () => {
    for (const [from, exported] of Object.entries(modules)) {
      const { names } = pageOf(from);
      // `plain` is a namespace of loops to compare with.
      expect(names).toEqual(expect.arrayContaining(Object.keys(exported as object).filter((key) => key !== 'plain')));
      expect(new Set(names).size).toBe(names!.length);
    }
    expect(pageOf('scalepoint').names).toEqual(expect.arrayContaining(['QuantizeOptions', 'Scalepoint', 'Layer']));
  });

  it('shows signatures and doc comments, and nothing private', () => {
    const { html = '' } = pageOf('scalepoint');
    expect(html).toContain('id="Scalepoint.quantize"');
    expect(html).toContain('<a href="#QuantizeOptions">');
    const text = html.replace(/<[^>]*>/g, '');
    expect(text).toContain('quantize(x: FloatInput, options: QuantizeOptions): LinearQuantizedTensor');
    expect(text).not.toMatch(/#core|@internal|@param|@throws|@example|@defaultValue/);
  });

  it('gives each name an address of its own', () => {
    for (const from of Object.keys(modules)) {
      const ids = [...pageOf(from).html!.matchAll(/ id="([^"]*)"/g)].map(([, id]) => id);
      expect(new Set(ids).size).toBe(ids.length);
    }
  });
});

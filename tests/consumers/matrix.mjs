// The packed package in every environment that it promises to work in: each is installed into an empty folder, and the same app has to give
// the same hash in all of them. `npm run test:consumers -- NAME...` tries some.

import { cpSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { inlinePolicy, open, serveBelow, strictPolicy } from './place.mjs';

/** @typedef {import('./place.mjs').Place} Place */
/** @typedef {import('./place.mjs').Results} Results */

/**
 * @typedef {object} Environment
 * @property {string} name
 * @property {string[]} packages what is installed beside the package
 * @property {(place: Place) => Promise<Results>} run
 * @property {boolean} [alone] whether the calling thread does the work of the workers there
 */

/** For pages with an import map in them, as Parcel writes them, too. */
const withInlineScripts = strictPolicy.replace("script-src 'self'", "script-src 'self' 'unsafe-inline'");

/** A port that nobody uses. @returns {Promise<number>} */
function freePort() {
  return new Promise((done) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
      server.close(() => done(port));
    });
  });
}

/** Settings to build a worker that imports parts on demand, and for the development servers before Vite 8. */
const viteConfig = (/** @type {number} */ version) =>
  `export default { base: './', worker: { format: 'es' }${version < 8 ? ", optimizeDeps: { exclude: ['scalepoint'] }" : ''} };`;

/** @param {number} version @returns {Environment[]} */
const vite = (version) => [
  {
    name: `vite ${version} dev`,
    packages: [`vite@${version}`],
    async run(place) {
      place.write('vite.config.js', viteConfig(version));
      const port = await freePort();
      const program = join(place.folder, 'node_modules/.bin/vite');
      const args = ['--host', '127.0.0.1', '--port', `${port}`, '--strictPort', '--base', '/'];
      return place.withServer(program, args, /Local:/, () => open(`http://127.0.0.1:${port}/`));
    },
  },
  {
    name: `vite ${version} build`,
    packages: [`vite@${version}`],
    async run(place) {
      place.write('vite.config.js', viteConfig(version));
      await place.bin('vite', ['build']);
      return place.openBuilt('dist');
    },
  },
];

/** Moves the page of the app into the folder of a build. @param {Place} place @param {string} folder @param {string} script */
function addPage(place, folder, script) {
  place.write(`${folder}/index.html`, place.read('index.html').replace('./main.js', script));
}

/** @type {Environment[]} */
const bundlers = [
  ...[8, 7, 6].flatMap(vite),
  {
    name: 'webpack',
    packages: ['webpack@5', 'webpack-cli@7'],
    async run(place) {
      await place.bin('webpack', ['--mode', 'production', '--entry', './main.js', '--output-path', 'dist']);
      addPage(place, 'dist', './main.js');
      return place.openBuilt('dist');
    },
  },
  {
    name: 'rspack',
    packages: ['@rspack/core@2', '@rspack/cli@2'],
    async run(place) {
      place.write('rspack.config.js', "export default { mode: 'production', entry: './main.js' };");
      await place.bin('rspack', ['build']);
      addPage(place, 'dist', './main.js');
      return place.openBuilt('dist');
    },
  },
  {
    name: 'rsbuild',
    packages: ['@rsbuild/core@2'],
    async run(place) {
      place.write(
        'rsbuild.config.js',
        "export default { source: { entry: { index: './main.js' } }, output: { assetPrefix: 'auto' } };",
      );
      await place.bin('rsbuild', ['build']);
      return place.openBuilt('dist');
    },
  },
  {
    name: 'parcel, inline in its worker',
    packages: ['parcel@2'],
    async run(place) {
      const { name, dependencies } = JSON.parse(place.read('package.json'));
      const resolver = { packageExports: true };
      place.write('package.json', { name, private: true, dependencies, '@parcel/resolver-default': resolver });
      // Parcel does not find the parts that a module loads later when a worker of the app imports it.
      place.write('app-inline.js', place.read('app.js').replace(/'scalepoint(\/model)?'/g, "'scalepoint/inline'"));
      place.edit('inside.js', ['./app.js', './app-inline.js']);
      await place.bin('parcel', ['build', 'index.html', '--public-url', './', '--no-cache']);
      const policy = withInlineScripts.replace("worker-src 'self'", "worker-src 'self' blob:");
      return place.openBuilt('dist', policy);
    },
  },
  {
    name: 'rollup, inline',
    packages: ['rollup@4', '@rollup/plugin-node-resolve@16'],
    async run(place) {
      place.useInline();
      await place.bin('rollup', ['alone.js', '-p', 'node-resolve', '-d', 'dist', '-f', 'es']);
      addPage(place, 'dist', './alone.js');
      return place.openBuilt('dist', inlinePolicy);
    },
  },
  {
    name: 'rollup, files beside the bundle',
    packages: ['rollup@4', '@rollup/plugin-node-resolve@16'],
    async run(place) {
      await place.bin('rollup', ['alone.js', '-p', 'node-resolve', '-d', 'dist', '-f', 'es']);
      copyFiles(place, 'dist');
      addPage(place, 'dist', './alone.js');
      return place.openBuilt('dist');
    },
  },
  {
    name: 'esbuild, files beside the bundle',
    packages: ['esbuild@0.28'],
    async run(place) {
      await place.bin('esbuild', ['alone.js', '--bundle', '--format=esm', '--outdir=dist']);
      copyFiles(place, 'dist');
      addPage(place, 'dist', './alone.js');
      return place.openBuilt('dist');
    },
  },
  ...[
    ['esm', ['--format=esm']],
    ['iife', ['--format=iife', '--minify']],
    ['splitting', ['--format=esm', '--splitting']],
  ].map(
    ([name, args]) =>
      /** @type {Environment} */ ({
        name: `esbuild ${name}, inline`,
        packages: ['esbuild@0.28'],
        async run(place) {
          place.useInline();
          await place.bin('esbuild', ['alone.js', '--bundle', ...args, '--outdir=dist']);
          addPage(place, 'dist', './alone.js');
          return place.openBuilt('dist', inlinePolicy);
        },
      }),
  ),
];

/** Files of a page whose bundler copies none. @param {Place} place @param {string} folder */
function copyFiles(place, folder) {
  mkdirSync(join(place.folder, folder), { recursive: true });
  const dist = join(place.folder, 'node_modules/scalepoint/dist');
  for (const name of readdirSync(dist)) {
    if (/\.wasm$|^scalepoint-worker\.js$/.test(name)) cpSync(join(dist, name), join(place.folder, folder, name));
  }
}

/** A page of Next and a route handler, both with the app. @param {Place} place */
function writeNext(place) {
  place.edit('package.json', ['"type":"module"', '"license":"MIT"']);
  place.write(
    'next.config.mjs',
    "export default { output: 'standalone', serverExternalPackages: ['scalepoint'], outputFileTracingRoot: import.meta.dirname };",
  );
  place.write(
    'app/layout.jsx',
    "export default function Layout({ children }) { return <html lang='en'><body>{children}</body></html>; }",
  );
  place.write(
    'app/page.jsx',
    `'use client';
    import { useEffect } from 'react';
    import { run } from '../app.js';
    export default function Page() {
      useEffect(() => { globalThis.answer = run().then((r) => [r], (error) => [{ hash: String(error), note: '' }]); }, []);
      return <p>Consumer</p>;
    }`,
  );
  place.write(
    'app/api/route.js',
    `import { run } from '../../app.js';
    export const dynamic = 'force-dynamic';
    export async function GET() {
      return Response.json([await run().catch((error) => ({ hash: String(error?.stack), note: '' }))]);
    }`,
  );
}

/** @type {Environment[]} */
const servers = [
  {
    name: 'next: client, route handler, standalone',
    packages: ['next@16', 'react@19', 'react-dom@19'],
    async run(place) {
      writeNext(place);
      const env = { NEXT_TELEMETRY_DISABLED: '1' };
      await place.bin('next', ['build'], env);
      const standalone = join(place.folder, '.next/standalone');
      cpSync(join(place.folder, '.next/static'), join(standalone, '.next/static'), { recursive: true });
      const port = `${await freePort()}`;
      const address = `http://127.0.0.1:${port}/`;
      const use = async () => [...(await open(address)), ...(await (await fetch(`${address}api`)).json())];
      const settings = { ...env, PORT: port, HOSTNAME: '127.0.0.1' };
      return place.withServer('node', ['.next/standalone/server.js'], /Ready/, use, settings);
    },
  },
  {
    name: 'workerd',
    packages: ['workerd@1', 'esbuild@0.28'],
    alone: true,
    async run(place) {
      const port = await freePort();
      place.write(
        'entry.js',
        `import wasm from 'scalepoint/core-simd.wasm';
        import { run } from './app.js';
        export default {
          async fetch() {
            return Response.json([await run({ wasm }).catch((error) => ({ hash: String(error?.stack), note: '' }))]);
          },
        };`,
      );
      await place.bin('esbuild', ['entry.js', '--bundle', '--format=esm', '--external:*.wasm', '--outfile=worker.js']);
      place.write(
        'config.capnp',
        `using Workerd = import "/workerd/workerd.capnp";
        const config :Workerd.Config = (
          services = [(name = "main", worker = (
            modules = [
              (name = "worker.js", esModule = embed "worker.js"),
              (name = "scalepoint/core-simd.wasm", wasm = embed "node_modules/scalepoint/dist/core-simd.wasm"),
            ],
            compatibilityDate = "2025-01-01",
          ))],
          sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")],
        );`,
      );
      const program = join(place.folder, 'node_modules/.bin/workerd');
      // It prints nothing when it listens.
      const args = ['serve', 'config.capnp', '--verbose'];
      return place.withServer(program, args, /./, () => answerOf(`http://127.0.0.1:${port}/`));
    },
  },
];

/** The answer of a server once it listens. @param {string} address @returns {Promise<Results>} */
async function answerOf(address) {
  for (let attempt = 0; ; attempt++) {
    try {
      return /** @type {Results} */ (await (await fetch(address)).json());
    } catch (error) {
      if (attempt === 100) throw error;
      await new Promise((done) => setTimeout(done, 100));
    }
  }
}

/** @type {Environment[]} */
const pages = [
  {
    name: 'an import map',
    packages: [],
    async run(place) {
      cpSync(join(place.folder, 'node_modules/scalepoint/dist'), join(place.folder, 'lib'), { recursive: true });
      const imports = { scalepoint: './lib/index.js', 'scalepoint/model': './lib/model.js' };
      // A worker has no import map.
      place.edit('index.html', [
        '<script ',
        `<script type="importmap">${JSON.stringify({ imports })}</script>\n    <script `,
      ]);
      place.edit('index.html', ['./main.js', './alone.js']);
      return place.openBuilt('.', withInlineScripts);
    },
  },
  {
    name: 'another origin, inline',
    packages: [],
    async run(place) {
      const other = await serveBelow(join(place.folder, 'node_modules/scalepoint/dist'));
      try {
        place.edit('app.js', [/'scalepoint(\/model)?'/g, `'${other.url}inline.js'`]);
        place.edit('index.html', ['./main.js', './alone.js']);
        const policy = inlinePolicy.replace("script-src 'self'", `script-src 'self' ${new URL(other.url).origin}`);
        return await place.openBuilt('.', policy);
      } finally {
        other.close();
      }
    },
  },
];

/** The npm package with the program of Node for this system. */
const nodePackage = `node-${process.platform === 'win32' ? 'win' : process.platform}-${process.arch}`;

/** @param {string} version @returns {Environment} */
const node = (version) => ({
  name: `node ${version}: import, require, worker_threads`,
  packages: [`${nodePackage}@${version}`],
  async run(place) {
    const program = join(place.folder, 'node_modules', nodePackage, 'bin/node');
    place.write('common/package.json', { type: 'commonjs' });
    const body = place.read('app.js').replace(/^import (.*) from (.*);$/gm, 'const $1 = require($2);');
    place.write('common/app.js', body.replace('export async function', 'module.exports.run = run;\nasync function'));
    place.write(
      'common/print.js',
      "const { run } = require('./app.js');\nrun().then((r) => console.log(JSON.stringify([r])));",
    );
    place.write(
      'thread.js',
      `import { Worker, isMainThread, parentPort } from 'node:worker_threads';
      import { run } from './app.js';
      if (isMainThread) new Worker(new URL(import.meta.url)).on('message', (r) => console.log(JSON.stringify([r])));
      else parentPort.postMessage(await run());`,
    );
    const lists = [];
    for (const file of ['print.js', 'common/print.js', 'thread.js']) {
      lists.push(await place.results(place.run(program, ['--no-warnings', file])));
    }
    return lists.flat();
  },
});

/** Bundles without the files of the package: what they say has to lead to them. @type {Environment} */
const missingFiles = {
  name: 'esbuild, files missing',
  packages: ['esbuild@0.28'],
  async run(place) {
    /** @param {string} what @param {Promise<Results>} results @param {RegExp} expected */
    const expectHint = async (what, results, expected) => {
      for (const { hash, note } of await results) {
        if (!expected.test(hash + note)) throw new Error(`${what}: expected ${expected}, got ${hash} ${note}`);
      }
    };
    for (const [format, expected] of Object.entries({
      cjs: /Invalid URL.*'scalepoint\/inline'/,
      esm: /ENOENT.*'scalepoint\/inline'/,
    })) {
      const file = `bundle.${format === 'cjs' ? 'cjs' : 'mjs'}`;
      await place.bin('esbuild', [
        'print.js',
        '--bundle',
        '--platform=node',
        `--format=${format}`,
        `--outfile=${file}`,
      ]);
      await expectHint(format, place.results(place.run('node', [file])), expected);
    }
    await place.bin('esbuild', ['alone.js', '--bundle', '--format=esm', '--outdir=dist']);
    addPage(place, 'dist', './alone.js');
    await expectHint('a page', place.openBuilt('dist'), /status 404.*'scalepoint\/inline'/);
    copyFiles(place, 'dist');
    rmSync(join(place.folder, 'dist/scalepoint-worker.js'));
    await expectHint('no worker', place.openBuilt('dist'), /serve scalepoint-worker\.js beside the bundle/);
    place.write('dist/scalepoint-worker.js', '// Another worker, which says nothing.');
    const silent = place.openBuilt('dist');
    await expectHint('a silent worker', silent, /said nothing for 5 s: its file is not scalepoint-worker\.js/);
    copyFiles(place, 'dist');
    return place.openBuilt('dist');
  },
};

/** @type {Environment[]} */
const runtimes = [
  node('20'),
  node('24'),
  {
    name: 'tsx',
    packages: ['tsx@4'],
    async run(place) {
      place.write(
        'typed.ts',
        "import { run } from './app.js';\nconsole.log(JSON.stringify([await run()] as object[]));",
      );
      return place.results(place.bin('tsx', ['typed.ts']));
    },
  },
  {
    name: 'ts-node, CommonJS',
    packages: ['ts-node@10', 'typescript@5', '@types/node@20'],
    async run(place) {
      place.edit('package.json', ['"type":"module"', '"type":"commonjs"']);
      place.write('tsconfig.json', {
        compilerOptions: { module: 'nodenext', target: 'es2022', allowJs: true, strict: false },
      });
      place.write(
        'typed.ts',
        "import { run } from './app';\nrun(undefined).then((r: object) => console.log(JSON.stringify([r])));",
      );
      place.write('app.ts', `// @ts-nocheck\n${place.read('app.js')}`);
      return place.results(place.bin('ts-node', ['typed.ts']));
    },
  },
  {
    name: 'vite 8 on a server, bundled, inline',
    packages: ['vite@8'],
    async run(place) {
      place.useInline();
      place.write('vite.config.js', 'export default { ssr: { noExternal: true } };');
      await place.bin('vite', ['build', '--ssr', 'print.js']);
      return place.results(place.run('node', ['dist/print.js']));
    },
  },
  {
    name: 'esbuild cjs for Node, inline',
    packages: ['esbuild@0.28'],
    async run(place) {
      place.useInline();
      await place.bin('esbuild', ['print.js', '--bundle', '--platform=node', '--format=cjs', '--outfile=bundle.cjs']);
      return place.results(place.run('node', ['bundle.cjs']));
    },
  },
  {
    name: 'jest',
    packages: ['jest@30'],
    async run(place) {
      place.write(
        'app.test.js',
        `import { writeFileSync } from 'node:fs';
        import { run } from './app.js';
        test('runs', async () => writeFileSync('results.txt', JSON.stringify([await run()])), 60000);`,
      );
      await place.bin('jest', [], { NODE_OPTIONS: '--experimental-vm-modules --no-warnings' });
      return JSON.parse(place.read('results.txt'));
    },
  },
  ...[true, false].map(
    (bundled) =>
      /** @type {Environment} */ ({
        name: `vitest with jsdom${bundled ? ', the package bundled' : ''}`,
        packages: ['vitest@4', 'jsdom@29'],
        async run(place) {
          if (bundled) place.useInline();
          const server = bundled ? "server: { deps: { inline: ['scalepoint'] } }, " : '';
          place.write(
            'vitest.config.js',
            `export default { test: { environment: 'jsdom', ${server}testTimeout: 60000 } };`,
          );
          place.write(
            'app.test.js',
            `import { writeFileSync } from 'node:fs';
            import { test } from 'vitest';
            import { run } from './app.js';
            test('runs', async () => {
              if (typeof document === 'undefined') throw new Error('no page');
              writeFileSync('results.txt', JSON.stringify([await run()]));
            });`,
          );
          await place.bin('vitest', ['run']);
          return JSON.parse(place.read('results.txt'));
        },
      }),
  ),
  {
    name: 'bun',
    packages: ['bun@1'],
    run: (place) => place.results(place.bin('bun', ['print.js'])),
  },
  {
    name: 'bun build --compile, inline',
    packages: ['bun@1'],
    async run(place) {
      place.useInline();
      await place.bin('bun', ['build', '--compile', 'print.js', '--outfile', 'program']);
      return place.results(place.run(join(place.folder, 'program'), []));
    },
  },
  {
    name: 'deno',
    packages: ['deno@2'],
    run: (place) => place.results(place.bin('deno', ['run', '--allow-all', '--node-modules-dir=manual', 'print.js'])),
  },
];

/** All environments. */
export const environments = [...bundlers, missingFiles, ...servers, ...pages, ...runtimes];

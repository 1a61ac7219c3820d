import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, defineConfig, type Plugin, type Rolldown, type UserConfig } from 'vite';
import { aboutHtml, aboutPages } from './web/demo/about/build.mjs';
import { guideHtml, guidePages } from './web/demo/guide/build.mjs';
import { groupsOf } from './web/demo/shared/chunks.mjs';
import { noticesText } from './web/demo/shared/notices.mjs';
import { offlineWorker } from './web/demo/shared/offline.mjs';
import { siteAddress, withShell } from './web/demo/shared/shell.mjs';

const file = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const site = file('./web/demo');

/** The path of a page below the root of the site: `model/` for web/demo/model/index.html. */
const pathOf = (name: string) =>
  relative(site, name)
    .split(sep)
    .join('/')
    .replace(/index\.html$/, '');

const address = siteAddress();

/** Puts head, header and footer into every page. */
const shell: Plugin = {
  name: 'shell',
  transformIndexHtml: { order: 'pre', handler: (html, { filename }) => withShell(html, pathOf(filename), address) },
};

/** Pages without a file of their own, by their paths below the root of the site. */
function madePages(): ReadonlyMap<string, () => string> {
  const guide = guidePages();
  return new Map([
    ...guide.map((page) => [`guide/${page.name && `${page.name}/`}`, () => guideHtml(page, guide)] as const),
    ...aboutPages.map((page) => [`${page.name}/`, () => aboutHtml(page)] as const),
  ]);
}
const made = madePages();

/** HTML files that exist during the build only. */
const pages: Plugin = {
  name: 'pages',
  enforce: 'pre',
  resolveId: (id) => (id.endsWith('.html') && made.has(pathOf(id)) ? id : undefined),
  load: (id) => (id.endsWith('.html') ? made.get(pathOf(id))?.() : undefined),
  configureServer(server) {
    server.middlewares.use(async (request, response, next) => {
      const path = request.url?.replace(/[?#].*/, '') ?? '';
      const page = made.get(path.slice(1));
      if (page === undefined) return next();
      response.setHeader('Content-Type', 'text/html; charset=utf-8');
      response.end(await server.transformIndexHtml(`${path}index.html`, page()));
    });
  },
};

/** Puts styles before scripts: nothing is seen without the former, and a slow connection brings what is asked for first. */
const stylesFirst: Plugin = {
  name: 'styles-first',
  apply: 'build',
  transformIndexHtml: {
    order: 'post',
    handler(html) {
      const styles = html.match(/^ *<link rel="stylesheet"[^>]*>\n/gm) ?? [];
      const rest = styles.reduce((left, style) => left.replace(style, ''), html);
      return rest.replace(/^ *<(?:script type="module"|link rel="modulepreload")/m, (first) => styles.join('') + first);
    },
  },
};

/** The place of a worker's file, as code that starts workers names it. */
const workerPlace = /new URL\('(\.\/(?:[\w-]*-)?worker\.[jt]s)', import\.meta\.url\)/g;
/** The function of Vite that loads what a chunk needs ahead, in the head of the document. */
const preload = 'function preload(baseModule, deps, importerUrl) {';

/** Modules that workers begin with. */
const beginnings = new Set<string>();

/** Makes workers entries of the one build, so that all of them and the pages share chunks. Vite would bundle each by itself. */
const sharedWorkers: Plugin = {
  name: 'shared-workers',
  apply: 'build',
  enforce: 'pre',
  async transform(code, id) {
    if (id.endsWith('vite/preload-helper.js')) {
      // Workers have no document.
      if (!code.includes(preload)) this.error('the function that preloads chunks has changed');
      return code.replace(preload, `${preload}\n  if (typeof document === 'undefined') return baseModule();`);
    }
    if (!/\.[jt]s$/.test(id) || id.includes('node_modules') || !code.includes('new Worker(')) return null;
    const places = new Map<string, string>();
    for (const [whole, name = ''] of code.matchAll(workerPlace)) {
      const worker = await this.resolve(name, id);
      if (worker === null) this.error(`there is no ${name}`);
      beginnings.add(worker.id);
      // Strict: the chunk has nothing that others import.
      const chunk = this.emitFile({ type: 'chunk', id: worker.id, preserveSignature: 'strict' });
      places.set(whole, `import.meta.ROLLUP_FILE_URL_${chunk}`);
    }
    return places.size === 0 ? null : [...places].reduce((all, [whole, file]) => all.replaceAll(whole, file), code);
  },
  // A worker that imports the file of another one would answer the messages for both.
  generateBundle(_, bundle) {
    for (const chunk of Object.values(bundle)) {
      if (chunk.type !== 'chunk') continue;
      for (const name of [...chunk.imports, ...chunk.dynamicImports]) {
        const other = bundle[name];
        if (other?.type === 'chunk' && beginnings.has(other.facadeModuleId ?? ''))
          this.error(`${chunk.fileName} imports ${name}, with which a worker begins`);
      }
    }
  },
};

/** Adds the licenses of the packages that the site holds parts of. */
const notices: Plugin = {
  name: 'notices',
  apply: 'build',
  generateBundle() {
    this.emitFile({ type: 'asset', fileName: 'notices.txt', source: noticesText() });
  },
};

/** Adds the service worker, which knows the names of all files of the build. */
const offline: Plugin = {
  name: 'offline',
  apply: 'build',
  writeBundle({ dir = '' }) {
    const contents = new Map<string, Uint8Array>();
    for (const entry of readdirSync(dir, { recursive: true, withFileTypes: true })) {
      const path = `${entry.parentPath}/${entry.name}`;
      if (entry.isFile()) contents.set(relative(dir, path).split(sep).join('/'), readFileSync(path));
    }
    writeFileSync(`${dir}/offline.js`, offlineWorker(contents));
  },
};

/** Removes the Content-Security-Policy in development. The development server adds inline styles, which the policy forbids. */
const withoutPolicy: Plugin = {
  name: 'without-policy',
  apply: 'serve',
  transformIndexHtml: (html) => html.replace(/<meta http-equiv="Content-Security-Policy"[^>]*>/, ''),
};

/** Says nothing of plugins that take long on a busy machine, nor of modules that the package loads later than the pages do. */
const checks = { pluginTimings: false, ineffectiveDynamicImport: false };

/** The site, as static files that work in any folder of any server. @param fileOf the name of the file for a module, if it shares one */
const config = (plugins: Plugin[], fileOf?: (id: string) => string | undefined): UserConfig => ({
  root: site,
  base: './',
  resolve: {
    alias: [
      { find: /^scalepoint$/, replacement: file('./web/src/index.ts') },
      { find: /^scalepoint\/model$/, replacement: file('./web/src/model.ts') },
      { find: /^scalepoint\/bench$/, replacement: file('./web/src/bench.ts') },
    ],
  },
  plugins: [pages, shell, sharedWorkers, stylesFirst, ...plugins, withoutPolicy],
  worker: { format: 'es', rolldownOptions: { checks } },
  build: {
    outDir: file('./build/demo'),
    emptyOutDir: true,
    // No asset becomes a data: URL, since the policy forbids those.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      checks,
      input: ['', 'model/', 'numbers/', 'search/', 'speed/', ...made.keys()].map((page) => `${site}/${page}index.html`),
      output: {
        codeSplitting: fileOf === undefined || {
          includeDependenciesRecursively: false,
          groups: [{ name: (id) => fileOf(id) }],
        },
      },
    },
  },
});

/** Groups the modules of the site by what loads them, as a build without groups has it. */
async function groups(): Promise<(id: string) => string | undefined> {
  const { output } = (await build({
    ...config([]),
    configFile: false,
    logLevel: 'warn',
    build: { ...config([]).build, write: false, minify: false },
  })) as Rolldown.RolldownOutput;
  const chunks = output.filter((one) => one.type === 'chunk');
  const names = new Map<string, string>();
  for (const [i, group] of groupsOf(chunks).entries()) {
    const members = chunks.filter(({ fileName }) => group.includes(fileName));
    // Names of chunks repeat.
    for (const id of members.flatMap(({ moduleIds }) => moduleIds))
      if (!id.startsWith('\0')) names.set(id, `${members[0]?.name}-${i}`);
  }
  return (id) => names.get(id);
}

export default defineConfig(async ({ command }) =>
  command === 'build' ? config([notices, offline], await groups()) : config([]),
);

import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig, type Plugin } from 'vite';
import { guideHtml, guidePages } from './web/demo/guide/build.mjs';
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

/** The guide's pages: HTML files that exist during the build only. */
function guide(): Plugin {
  const pages = guidePages();
  const pageOf = (id: string) => pages.find(({ name }) => id === pageFile(name));
  return {
    name: 'guide',
    enforce: 'pre',
    resolveId: (id) => (pageOf(id) === undefined ? undefined : id),
    load(id) {
      const page = pageOf(id);
      return page && guideHtml(page, pages);
    },
    configureServer(server) {
      server.middlewares.use(async (request, response, next) => {
        const path = request.url?.replace(/[?#].*/, '') ?? '';
        const page = path.startsWith('/guide/') ? pageOf(`${site}${path}index.html`) : undefined;
        if (page === undefined) return next();
        response.setHeader('Content-Type', 'text/html; charset=utf-8');
        response.end(await server.transformIndexHtml(`${path}index.html`, guideHtml(page, pages)));
      });
    },
  };
}
const pageFile = (name: string) => `${site}/guide/${name === '' ? '' : `${name}/`}index.html`;

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

/** Builds the site as static files that work in any folder of any server. */
export default defineConfig({
  root: site,
  base: './',
  resolve: {
    alias: [
      { find: /^scalepoint$/, replacement: file('./web/src/index.ts') },
      { find: /^scalepoint\/model$/, replacement: file('./web/src/model.ts') },
      { find: /^scalepoint\/bench$/, replacement: file('./web/src/bench.ts') },
    ],
  },
  plugins: [guide(), shell, stylesFirst, notices, offline, withoutPolicy],
  worker: { format: 'es' },
  build: {
    outDir: file('./build/demo'),
    emptyOutDir: true,
    // No asset becomes a data: URL, since the policy forbids those.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      input: [
        ...['', 'model/', 'numbers/', 'search/', 'speed/'].map((page) => `${site}/${page}index.html`),
        ...guidePages().map(({ name }) => pageFile(name)),
      ],
      output: {
        // Small modules that pages need at once would else share a file with the library, which pages load later.
        codeSplitting: {
          groups: [{ name: 'core', test: /web[\\/]src[\\/]core[\\/](?!core\.mjs|load\.ts|own-wasm\.ts)/ }],
        },
      },
    },
  },
});

import { fileURLToPath } from 'node:url';
import { defineConfig, type Plugin } from 'vite';

const file = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Removes the Content-Security-Policy in development. The development server adds inline styles, which the policy forbids. */
const withoutPolicy: Plugin = {
  name: 'without-policy',
  apply: 'serve',
  transformIndexHtml: (html) => html.replace(/<meta http-equiv="Content-Security-Policy"[^>]*>/, ''),
};

/** Builds the demo page as static files that work in any folder of any server. */
export default defineConfig({
  root: file('./web/demo'),
  base: './',
  resolve: {
    alias: [
      { find: /^scalepoint$/, replacement: file('./web/src/index.ts') },
      { find: /^scalepoint\/model$/, replacement: file('./web/src/model.ts') },
      { find: /^scalepoint\/bench$/, replacement: file('./web/src/bench.ts') },
    ],
  },
  plugins: [withoutPolicy],
  worker: { format: 'es' },
  build: {
    outDir: file('./build/demo'),
    emptyOutDir: true,
    // No asset becomes a data: URL, since the policy forbids those.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: { input: ['index', 'bench'].map((page) => file(`./web/demo/${page}.html`)) },
  },
});

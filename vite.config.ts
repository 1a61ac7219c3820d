import { fileURLToPath } from 'node:url';
import { defineConfig, type Plugin } from 'vite';

const file = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** The development server writes styles into the page, which the page's policy forbids: the policy is for what is built. */
const withoutPolicy: Plugin = {
  name: 'without-policy',
  apply: 'serve',
  transformIndexHtml: (html) => html.replace(/<meta http-equiv="Content-Security-Policy"[^>]*>/, ''),
};

/** The demo page: static files that work from any folder of any server. */
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
    // Nothing is small enough to become a data: address; the policy would refuse to fetch one.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: { input: ['index', 'bench'].map((page) => file(`./web/demo/${page}.html`)) },
  },
});

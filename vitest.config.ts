import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { playwright } from '@vitest/browser-playwright';
import { defineConfig } from 'vitest/config';
import { launchOptions } from './scripts/chromium.mjs';

const file = (path: string) => fileURLToPath(new URL(path, import.meta.url));

const samples = process.env.SCALEPOINT_SAMPLES;

declare module 'vitest' {
  interface ProvidedContext {
    /** The folder of sample models; empty if there is none. */
    samples: string;
  }
}

export default defineConfig({
  resolve: {
    alias: [
      { find: /^scalepoint$/, replacement: file('./web/src/index.ts') },
      { find: /^scalepoint\/model$/, replacement: file('./web/src/model.ts') },
      { find: /^scalepoint\/bench$/, replacement: file('./web/src/bench.ts') },
    ],
  },
  test: {
    // At least two files at a time in Node, and one more in Chromium. Many tests wait for a page, a process or a timer.
    maxWorkers: Math.max(2, availableParallelism()),
    // These limits only end a hang. A test of a duration has a bound of its own.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // Files share processes and pages: loading everything again for each of them takes a quarter of the time of all.
    isolate: false,
    projects: [
      {
        extends: true,
        test: {
          name: 'node',
          environment: 'node',
          include: ['tests/web/**/*.test.ts', 'tests/fuzz/**/*.test.ts'],
          exclude: ['**/*.browser.test.ts', 'tests/web/cli/**'],
        },
      },
      {
        extends: true,
        test: {
          name: 'cli',
          environment: 'node',
          include: ['tests/web/cli/**/*.test.ts'],
          // The command line belongs to a process: its streams, its exit code, what it does when a signal comes.
          isolate: true,
        },
      },
      {
        extends: true,
        // Sample models may lie outside of the project.
        server: { fs: { allow: ['.', ...(samples === undefined ? [] : [samples])] } },
        // Its bundles are modules that find their wasm beside them.
        optimizeDeps: { exclude: ['onnxruntime-web'] },
        test: {
          name: 'chromium',
          provide: { samples: samples ?? '' },
          // Files named *.node.test.ts need the file system or processes, so they run in Node only.
          include: ['tests/web/**/*.test.ts'],
          exclude: ['**/*.node.test.ts'],
          browser: {
            enabled: true,
            headless: true,
            fileParallelism: availableParallelism() > 2,
            screenshotFailures: false,
            provider: playwright({
              launchOptions,
            }),
            instances: [{ browser: 'chromium' }],
          },
        },
      },
    ],
  },
});

import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { playwright } from '@vitest/browser-playwright';
import { configDefaults, defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { hangLimit, pageOptions } from './scripts/chromium.mjs';
import { chromium, inNode } from './tests/projects.mjs';

const file = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** The folder of an installed package, which the tests then use in place of the sources. */
const packed = process.env.SCALEPOINT_PACKAGE;

/** Runs projects in their order in tests/projects.mjs. Vitest would take that of the alphabet. Within a project, long files come first. */
class ProjectOrder extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ project }: TestSpecification) => inNode.findIndex(({ name }) => name === project.name);
    return (await super.sort(files)).sort((a, b) => place(a) - place(b));
  }
}

export default defineConfig({
  resolve: {
    alias: ['index', 'model', 'bench'].map((name) => ({
      find: new RegExp(`^scalepoint${name === 'index' ? '' : `/${name}`}$`),
      replacement: packed === undefined ? file(`./web/src/${name}.ts`) : join(packed, `dist/${name}.js`),
    })),
  },
  test: {
    // One file more at a time than there are processors, and at least three, since many tests wait for a page, a process or a timer.
    // Chromium runs another one.
    maxWorkers: Math.max(3, availableParallelism() + 1),
    // These limits only end a hang. No test has a limit of its own, and none judges by the clock: that fails on a busy machine.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    // Milliseconds from which the output names a test that passed.
    slowTestThreshold: 30_000,
    expect: { poll: { timeout: hangLimit } },
    // Files share processes and pages: loading everything again for each of them takes a quarter of the time of all.
    isolate: false,
    // The engine collects garbage on the thread that makes it: helpers take a sixth more of the processors, which other files need.
    // A heap that begins with half a gigabyte spares most passes over all objects: bytes of models would ask for one again and again.
    // It optimizes wasm functions after ten times as much work as usual: most tests end before that pays, above all in onnxruntime.
    execArgv: ['--single-threaded-gc', '--initial-heap-size=512', '--wasm-tiering-budget=18000000'],
    sequence: { sequencer: ProjectOrder },
    // Projects load the same modules, each by a server of its own. Files that did not change are compiled once for all of them and all runs.
    experimental: { fsModuleCache: true, fsModuleCachePath: file('./build/test/modules') },
    projects: [
      ...inNode.map(({ name, include, exclude = [], isolate = false }) => ({
        extends: true as const,
        test: { name, include, exclude: [...configDefaults.exclude, ...exclude], isolate },
      })),
      {
        extends: true,
        // Its bundles are modules that find their wasm beside them.
        optimizeDeps: { exclude: ['onnxruntime-web'] },
        test: {
          name: chromium.name,
          include: chromium.include,
          exclude: chromium.exclude ?? [],
          browser: {
            enabled: true,
            connectTimeout: 300_000,
            headless: true,
            fileParallelism: availableParallelism() > 2,
            screenshotFailures: false,
            provider: playwright({ launchOptions: pageOptions }),
            instances: [{ browser: 'chromium' }],
          },
        },
      },
    ],
  },
});

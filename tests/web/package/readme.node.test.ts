import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { load } from 'scalepoint';
import * as model from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { budgets } from '../../../scripts/check_size.mjs';
import { anchorOf } from '../../../web/demo/guide/build.mjs';
import { isReleased } from '../../../web/demo/shared/install.mjs';
import { architectureNames } from '../../../web/src/architectures/families/index.js';
import { bestTable } from '../../bench/tables.mjs';
import { environments } from '../../consumers/matrix.mjs';

const readme = readFileSync(new URL('../../../README.md', import.meta.url), 'utf8');
const sample = fileURLToPath(new URL('../../../web/demo/public/samples/digits.safetensors', import.meta.url));
const blocks = [...readme.matchAll(/```ts\n(.*?)```/gs)].map(([, code = '']) => code);

/** Runs an example of the README with `load`, `sp`, `file` and the functions for models in scope. Returns the named variables. */
async function run(code: string, names: string[]): Promise<Record<string, unknown>> {
  const AsyncFunction = (async () => {}).constructor as FunctionConstructor;
  const body = code.replace(/^import .*$/m, '');
  const sp = /const sp =/.test(body) ? '' : 'const sp = await load();\n';
  const given = { load, file: sample, ...model };
  // In a block of its own, an example may call a variable like a function that it does not use.
  const program = new AsyncFunction(...Object.keys(given), `{ ${sp}${body}\nreturn { ${names.join(', ')} }; }`);
  return await program(...Object.values(given));
}

describe('the examples of the README', () => {
  it('are two, and each is tested below', () => {
    expect(blocks).toHaveLength(2);
  });

  it('quantize, dequantize, measure and pack an array as their comments say', async () => {
    const { q, restored, weights, sqnrDb, bytes } = (await run(blocks[0]!, [
      'q',
      'restored',
      'weights',
      'sqnrDb',
      'bytes',
    ])) as {
      q: { data: Int8Array; scale: Float32Array };
      restored: Float32Array;
      weights: Float32Array;
      sqnrDb: number;
      bytes: Uint8Array;
    };
    expect(q.data).toBeInstanceOf(Int8Array);
    expect(q.data).toHaveLength(32);
    expect(Math.min(...q.data)).toBeGreaterThanOrEqual(-8);
    expect(Math.max(...q.data)).toBeLessThanOrEqual(7);
    expect(q.scale).toHaveLength(4);
    for (const [i, x] of weights.entries()) {
      // Half a step, plus the rounding of the quotient and of the product. Each is off by at most 2^-24 of a value below 1, in the unit of x.
      expect(Math.abs(x - restored[i]!)).toBeLessThanOrEqual(q.scale[Math.floor(i / 8)]! / 2 + 2 * 2 ** -24);
    }
    expect(bytes).toHaveLength(16);
    expect(blocks[0]).toContain(`// ${sqnrDb.toFixed(1)} dB`);
  });

  it('print what they show', async () => {
    const [, command = '', output] = /```console\n\$ npx scalepoint (.*)\n([\s\S]*?)```/.exec(readme) ?? [];
    const folder = mkdtempSync(join(tmpdir(), 'scalepoint-readme-'));
    try {
      cpSync(sample, join(folder, 'digits.safetensors'));
      const cli = fileURLToPath(new URL('../../../dist/cli.js', import.meta.url));
      const { stdout } = await promisify(execFile)(process.execPath, [cli, ...command.split(' ')], { cwd: folder });
      expect(stdout).toBe(output);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('inspect, plan, quantize, compare and verify a model', async () => {
    const names = ['format', 'tensors', 'plan', 'report', 'config', 'small', 'total', 'problems'];
    const { format, tensors, plan, report, config, small, total, problems } = (await run(blocks[1]!, names)) as {
      format: string;
      tensors: unknown[];
      plan: model.ModelPlan;
      report: model.ModelReport;
      config: Record<string, unknown>;
      small: Blob;
      total: model.CompareReport['total'];
      problems: unknown[];
    };
    expect(problems).toEqual([]);
    expect(format).toBe('safetensors');
    expect(tensors).toHaveLength(8);
    expect(small.size).toBe(plan.totals.bytesAfter);
    expect(report.totals.bytesAfter).toBe(small.size);
    expect(config.quantization_config).toBeDefined();
    expect(total.maxAbsoluteError).toBe(Math.max(...report.tensors.map(({ error }) => error?.maxAbsoluteError ?? 0)));
  });
});

describe('the README', () => {
  it('is short, and says first how to install the package', () => {
    // 30 lines are for those who build the core in C++.
    expect(readme.split('\n').length - 1).toBeLessThanOrEqual(180);
    const [first] = [...readme.matchAll(/^```(\w+)\n(.*?)^```/gms)];
    const { name, version } = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8'));
    const [language, code = ''] = first?.slice(1) ?? [];
    const commands = code.split('\n').map((line) => line.replace(/ +#.*/, ''));
    const expected = isReleased ? [`npm install ${name}`] : ['npm pack', `npm install ./${name}-${version}.tgz`];
    expect([language, ...commands]).toEqual(['sh', ...expected, '']);
    // The same is true of the guide.
    const bundlers = readFileSync(new URL('../../../web/demo/guide/10-bundlers.md', import.meta.url), 'utf8');
    expect(bundlers.includes('No release is on npm yet')).toBe(!isReleased);
  });

  it('links to pages and headings that exist', () => {
    const links = [...readme.matchAll(/\]\(([^)#]*)(?:#([^)]*))?\)/g)];
    expect(links.length).toBeGreaterThan(10);
    for (const [, path = '', id] of links) {
      const text = path === '' ? readme : readFileSync(new URL(`../../../${path}`, import.meta.url), 'utf8');
      const ids = [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) => anchorOf(heading));
      if (id !== undefined) expect(ids).toContain(id);
    }
  });

  it('has the best rows of the tables of the guide', () => {
    const guide = readFileSync(new URL('../../../web/demo/guide/14-measured-speed.md', import.meta.url), 'utf8');
    expect(readme).toContain(`<!-- best: start -->\n${bestTable(guide)}\n<!-- best: end -->`);
  });

  it.each(['README.md', 'web/demo/guide/12-limits.md', 'web/demo/index.html'])(
    '%s states the size that is held',
    (page) => {
      const text = readFileSync(new URL(`../../../${page}`, import.meta.url), 'utf8');
      expect(text).toContain(`at most ${(budgets.arrays + budgets.javascript) / 1000} kB after brotli`);
      // The front page is about arrays.
      if (/\.md$/.test(page)) expect(text).toContain(`at most ${budgets.core / 1000} kB`);
    },
  );

  it.each(['README.md', 'web/demo/guide/10-bundlers.md'])('%s names what the matrix of consumers tries', (page) => {
    const text = readFileSync(new URL(`../../../${page}`, import.meta.url), 'utf8');
    const [, table = ''] = /^\| Where .*\n\|.*\n((?:\|.*\n)+)/m.exec(text) ?? [];
    const names = [...new Set(environments.map(({ name }) => (/^[a-z-]+/.exec(name) ?? [''])[0]))];
    // By another name: the runtime of Cloudflare Workers, pages without a bundler, and bundles of other environments.
    const others: Record<string, string> = { workerd: 'Cloudflare', an: 'import map', another: 'another origin' };
    expect(names.length).toBeGreaterThan(15);
    for (const name of names) expect(table.toLowerCase()).toContain((others[name] ?? name).toLowerCase());
  });
});

it('the changelog counts the architectures', () => {
  const changelog = readFileSync(new URL('../../../CHANGELOG.md', import.meta.url), 'utf8');
  const counts = [...changelog.matchAll(/(\d+) architectures of language models/g)].map(([, count]) => Number(count));
  expect(counts).toEqual([architectureNames.length]);
});

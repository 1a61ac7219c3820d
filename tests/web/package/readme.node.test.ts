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
import { recorded } from '../../../web/demo/front/recorded.js';
import { anchorOf } from '../../../web/demo/guide/build.mjs';
import { formatBytes } from '../../../web/demo/shared/format.js';
import { isReleased } from '../../../web/demo/shared/install.mjs';
import { architectureNames } from '../../../web/src/architectures/families/index.js';
import { speedTable } from '../../bench/tables.mjs';
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
  it('are three, and each is tested below', () => {
    expect(blocks).toHaveLength(3);
  });

  it('find the first vector first', async () => {
    const { index, indices, scores } = (await run(blocks[0]!, ['index', 'indices', 'scores'])) as {
      index: { dispose(): void };
      indices: Uint32Array;
      scores: Float32Array;
    };
    index.dispose();
    expect(indices).toHaveLength(10);
    expect(indices[0]).toBe(0);
    expect(scores[0]).toBeGreaterThan(scores[1]!);
  });

  it('quantize, dequantize, measure and pack an array as their comments say', async () => {
    const { q, restored, weights, sqnrDb, bytes } = (await run(blocks[1]!, [
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
    expect(blocks[1]).toContain(`// ${sqnrDb.toFixed(1)} dB`);
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

  it('plan, quantize and verify a model', async () => {
    const names = ['plan', 'report', 'config', 'small', 'problems'];
    const { plan, report, config, small, problems } = (await run(blocks[2]!, names)) as {
      plan: model.ModelPlan;
      report: model.ModelReport;
      config: Record<string, unknown>;
      small: Blob;
      problems: unknown[];
    };
    expect(problems).toEqual([]);
    expect(plan.tensors).toHaveLength(8);
    expect(small.size).toBe(plan.totals.bytesAfter);
    expect(report.totals.bytesAfter).toBe(small.size);
    expect(config.quantization_config).toBeDefined();
  });
});

describe('the README', () => {
  it('begins with a picture of digits that are read, by bits', () => {
    const widest = recorded[32]!.bytes;
    const lines = [32, 8, 4, 3, 2].map((bits) => {
      const { bytes, read } = recorded[bits]!;
      // The test digits are 0 to 9 in turns.
      const right = [...read].filter((digit, i) => Number(digit) === i % 10).length / read.length;
      const eighths = Math.round((bytes / widest) * 40 * 8);
      const bar = '█'.repeat(eighths >> 3) + ['', ...'▏▎▍▌▋▊▉'][eighths & 7];
      const share = `${(100 * right).toFixed(1).padStart(4)} % read right`;
      return `${String(bits).padStart(2)} bits ${formatBytes(bytes).replace('\u00a0', ' ').padStart(8)}  ${bar.padEnd(40)}  ${share}`;
    });
    expect(/^```text\n(.*?)\n```/ms.exec(readme)?.[1]).toBe(lines.join('\n'));
  });

  it('is short, and says how to install the package', () => {
    // 30 lines are for those who build the core in C++.
    expect(readme.split('\n').length - 1).toBeLessThanOrEqual(180);
    const [, install] = /^## Install\n(.*?)^## /ms.exec(readme) ?? [];
    const [first] = [...(install ?? '').matchAll(/^```(\w+)\n(.*?)^```/gms)];
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

  it('has three rows of the tables of the guide, the last of which is slower than a peer', () => {
    const guide = readFileSync(new URL('../../../web/demo/guide/14-measured-speed.md', import.meta.url), 'utf8');
    const table = speedTable(guide);
    expect(readme).toContain(`<!-- rows: start -->\n${table}\n<!-- rows: end -->`);
    expect(Number.parseFloat(table.split('|').at(-2)!)).toBeLessThan(1);
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

  it('links to a table of bundlers that names what the matrix of consumers tries', () => {
    const text = readFileSync(new URL('../../../web/demo/guide/10-bundlers.md', import.meta.url), 'utf8');
    expect(readme).toContain('](web/demo/guide/10-bundlers.md)');
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

// The built demo page in a browser, and the modules of the page that can be tested without one.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, BrowserContext, Page } from 'playwright';
import { load, type QuantizeOptions, type Scalepoint } from 'scalepoint';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { hangLimit } from '../../../../scripts/chromium.mjs';
import { serve } from '../../../../scripts/serve.mjs';
import { bitsOf } from '../../../../web/demo/numbers/closer.js';
import { type DataSet, statisticsOf } from '../../../../web/demo/numbers/data.js';
import { countBytes, evaluate, quantizeOptions, sliceOf } from '../../../../web/demo/numbers/evaluate.js';
import { type Comma, readText } from '../../../../web/demo/numbers/numbers.js';
import { elementsOf, partsOf, runsOf, takeSample } from '../../../../web/demo/numbers/parts.js';
import { defaultSettings, formatHash, parseHash, type Settings } from '../../../../web/demo/numbers/settings.js';
import { snippet } from '../../../../web/demo/numbers/snippet.js';
import { ticks } from '../../../../web/demo/shared/axis.js';
import { formatBytes, formatDecibels, formatReal, formatShare } from '../../../../web/demo/shared/format.js';
import { distributions, generate } from '../../../../web/demo/shared/generate.js';
import { safetensors } from '../../support/models.js';
import { npy } from '../../support/npz.js';
import { expectShortTasks, families, path, type Served, servePages, useFamily } from '../served.js';

let sp: Scalepoint;
beforeAll(async () => {
  sp = await load({ blocks: true });
});

/** Pseudorandom numbers, the same in every run. */
function noise(length: number, seed = 7): Float32Array<ArrayBuffer> {
  let state = seed;
  return Float32Array.from({ length }, () => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return Math.fround(state / 2 ** 31 - 1) * (state % 11 === 0 ? 3 : 1);
  });
}

// --------------------------------------------------------------------------------------------------------------------- the page

let served: Served | undefined;
let server: Served['server'];
let browser: Browser;
/** The page of the test that runs, and its context. */
let context: BrowserContext;
let page: Page;
/** A page that tests use one after the other, and what clears its history. */
interface Shared {
  readonly page: Page;
  readonly forget: () => Promise<unknown>;
}
/** The pages that most tests use, by which sections are open. A test that fails takes its page down. */
const shared = new Map<Sections, Shared>();
const sharedNow = () => [...shared].find(([, each]) => each.page === page);
/** Console messages, uncaught errors, and requests to other servers. It must be empty after each test; a test removes those that it expects. */
let complaints: string[] = [];
/** The server that pages may ask. */
let here = '';

beforeAll(async () => {
  served = await servePages();
  ({ server, browser } = served);
});

afterAll(() => served?.close());

afterEach(async ({ task }) => {
  const mine = sharedNow();
  if (mine !== undefined && task.result?.state !== 'fail') await leave();
  else {
    if (mine !== undefined) shared.delete(mine[0]);
    await context?.close();
  }
  const seen = complaints;
  complaints = [];
  expect(seen).toEqual([]);
});

/** Leaves the shared page, and all that a test can have left behind with it. */
async function leave(): Promise<void> {
  if (page.url().startsWith('http')) {
    await page.evaluate(() => {
      localStorage.clear();
      sessionStorage.clear();
    });
  }
  await page.unrouteAll();
  await page.goto('about:blank');
  await page.mouse.move(0, 0);
  await sharedNow()?.[1].forget();
}

/** Sections that are open when the page is loaded: those that follow a slider, or those too that are computed at rest. */
type Sections = 'quick' | 'all';

/** Options of `open`. */
interface OpenOptions {
  readonly width?: number;
  readonly height?: number;
  readonly colorScheme?: 'light' | 'dark';
  readonly url?: string;
  readonly sections?: Sections;
  /** Runs before the page is loaded, which is then a new one in a context of its own, with its sections closed. */
  readonly prepare?: () => Promise<void>;
}

/** Makes a page in a context of its own. */
async function newPage(): Promise<void> {
  context = await browser.newContext({ reducedMotion: 'reduce', serviceWorkers: 'block' });
  await useFamily(context, families[0]);
  page = await context.newPage();
  page.setDefaultTimeout(hangLimit);
  page.on('console', (message) => {
    if (!message.text().includes('blocked by Playwright')) complaints.push(`${message.type()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => complaints.push(`uncaught: ${error.message}`));
  page.on('request', (request) => {
    const { origin, protocol } = new URL(request.url());
    if (origin !== here && protocol !== 'data:' && protocol !== 'blob:') complaints.push(`request to ${request.url()}`);
  });
  await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', (event) => {
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
}

/** Makes a page that tests share. It opens sections, but not the tables of the histogram. */
async function sharePage(sections: Sections): Promise<void> {
  await newPage();
  await page.addInitScript((sections) => {
    const closed =
      sections === 'all' ? '#closer-twin' : '#closer-twin, #closer-ladder, #closer-clipping, #closer-codes';
    // As soon as the page has rendered them, so that it computes everything once.
    new MutationObserver((_, observer) => {
      const all = document.querySelectorAll('details');
      for (const details of all) details.open = !details.matches(closed);
      if (all.length > 0) observer.disconnect();
    }).observe(document, { childList: true, subtree: true });
  }, sections);
  const session = await context.newCDPSession(page);
  shared.set(sections, { page, forget: () => session.send('Page.resetNavigationHistory') });
}

/** Loads the page with these settings in the address. */
async function open(hash = '', options: OpenOptions = {}): Promise<void> {
  const { width = 1280, height = 900, colorScheme = 'light', url = server.url, sections = 'quick', prepare } = options;
  const known = shared.get(sections);
  if (prepare !== undefined) await newPage();
  else if (known === undefined) await sharePage(sections);
  else {
    page = known.page;
    context = page.context();
    // Another hash alone would not load the page again.
    if (page.url() !== 'about:blank') await leave();
  }
  here = new URL(url).origin;
  await page.setViewportSize({ width, height });
  await page.emulateMedia({ colorScheme });
  await prepare?.();
  await page.goto(`${url}numbers/${hash === '' ? '' : `#${hash}`}`);
  if (prepare === undefined) await drawn();
}

/** Waits until the page has drawn for the first time and its controls rest. */
async function drawn(): Promise<void> {
  await page.waitForSelector('#histogram .bars', { state: 'attached' });
  await rested();
}

/** Waits until the page has finished all work, which it marks with aria-busy. */
async function rested(): Promise<void> {
  await page.waitForSelector('#result[aria-busy="false"]', { state: 'attached' });
}

/** The exact value of a figure. */
async function figure(id: string): Promise<number> {
  return Number(await page.getAttribute(`#${id}`, 'value'));
}

/** The cells of the table of numbers. */
function cells(): Promise<string[][]> {
  return page.$$eval('#rows tr', (rows) =>
    rows.map((row) => [...row.children].map((cell) => cell.textContent)),
  ) as Promise<string[][]>;
}

/** Chooses the source of the numbers. */
async function source(value: 'generate' | 'text' | 'file'): Promise<void> {
  await page.check(`input[name="source"][value="${value}"]`);
}

async function paste(text: string): Promise<void> {
  await source('text');
  await page.fill('#text', text);
  await rested();
}

/** Drops a file onto the header of the page. */
async function drop(name: string, bytes: Uint8Array): Promise<void> {
  const overlay = await page.evaluate(
    ([name, base64]) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([Uint8Array.from(atob(base64), (char) => char.charCodeAt(0))], name));
      const seen: boolean[] = [];
      for (const type of ['dragover', 'drop']) {
        const event = new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true });
        document.querySelector('header')?.dispatchEvent(event);
        seen.push(event.defaultPrevented, document.getElementById('overlay')?.hidden === false);
      }
      return seen;
    },
    [name, Buffer.from(bytes).toString('base64')] as const,
  );
  // The overlay is shown during the drag and hidden after the drop. Both events are canceled, so the browser does not open the file.
  expect(overlay).toEqual([true, true, true, false]);
  await page.waitForFunction((name) => {
    const places = ['summary', 'problems', 'tensors-file'].map((id) => document.getElementById(id)?.textContent);
    return places.some((text) => text?.includes(name));
  }, name);
  await rested();
}

/** Records all text that an element gets from now on. The result reads the record. */
async function listen(id: string): Promise<() => Promise<string[]>> {
  const key = `heard-${id}`;
  await page.evaluate(
    ([id, key]) => {
      const node = document.getElementById(id)!;
      const heard: string[] = [];
      Object.assign(globalThis, { [key]: heard });
      const observer = new MutationObserver(() => heard.push(node.textContent));
      observer.observe(node, { childList: true, characterData: true, subtree: true });
    },
    [id, key] as const,
  );
  return () => page.evaluate((key) => (globalThis as unknown as Record<string, string[]>)[key]!, key);
}

/** Fails unless the page shows the figures, bytes and codes that the package computes. */
async function expectSame(values: Float32Array, options: QuantizeOptions): Promise<void> {
  const q = sp.quantize(values, options);
  const measures = sp.compare(values, q);
  for (const name of [
    'mse',
    'rmse',
    'meanAbsoluteError',
    'maxAbsoluteError',
    'relativeL2',
    'sqnrDb',
    'cosine',
  ] as const) {
    expect([name, await figure(`figure-${name}`)]).toEqual([name, measures[name]]);
  }
  expect(await figure('bytes-codes')).toBe(sp.pack(q).length);
  expect(await figure('bytes-scales')).toBe(4 * q.scale.length);
  const restored = sp.dequantize(q);
  const rows = await cells();
  expect(rows.length).toBe(Math.min(16, values.length));
  const parts = partsOf(options.granularity ?? { kind: 'per-tensor' }, options.shape ?? [values.length]);
  const partOf = new Map(
    [...q.scale.keys()].flatMap((part) => [...elementsOf(parts, part)].map((i) => [i, part] as const)),
  );
  for (const [i, [index, , code, , shown, , ...scale]] of rows.entries()) {
    expect([index, code, shown]).toEqual([String(i), String((q.data as Int8Array)[i]), formatReal(restored[i]!, 6)]);
    // A scale stands where it begins.
    const part = partOf.get(i)!;
    const begins = part === partOf.get(i - 1) ? ['', ''] : [String(part), formatReal(q.scale[part]!, 4)];
    expect(scale).toEqual(parts.count === 1 ? [] : begins);
  }
}

describe('the demo page', () => {
  it('opens with normally distributed numbers in int4, and requests only its own files', async () => {
    const asked: string[] = [];
    await open('', {
      prepare: async () => {
        page.on('request', (request) => asked.push(new URL(request.url()).pathname));
      },
    });
    await drawn();
    expect(await page.locator('#ladder tr').count()).toBe(0);
    expect(await page.textContent('h1')).toBe('What 4 bits do to 4,096 numbers');
    expect(await page.textContent('#bits-value')).toContain('int4');
    expect(await page.locator('#histogram .levels text').count()).toBe(16);
    const values = generate({ distribution: 'normal', size: 4096, seed: 1, rowsDiffer: false });
    const sqnr = sp.compare(values, sp.quantize(values, { dtype: 'int4' })).sqnrDb;
    // The numbers come from Math.log and Math.cos, which may differ in the last bit between the browser and Node.
    expect(await figure('figure-sqnrDb')).toBeCloseTo(sqnr, 3);
    expect(asked.filter((name) => !/^\/(numbers\/|theme\.js|assets\/[\w.-]+\.(js|css|wasm|svg))$/.test(name))).toEqual(
      [],
    );
    // A closed section is computed when it is opened.
    await page.click('#closer-ladder > summary');
    await page.waitForSelector('#ladder tr');
  });

  it('has a Content-Security-Policy that keeps the numbers on the device, and tells the visitor', async () => {
    await open();
    const policy = await page.getAttribute('meta[http-equiv="Content-Security-Policy"]', 'content');
    for (const rule of [
      "default-src 'none'",
      "script-src 'self' 'wasm-unsafe-eval'",
      "connect-src 'self'",
      "style-src 'self'",
    ]) {
      expect(policy).toContain(rule);
    }
    expect(await page.textContent('.private')).toContain('Your numbers never leave this device');
    expect(await page.textContent('.foot')).toContain('no file or number leaves it');
  });

  it('shows the figures, bytes and codes that the API computes', async () => {
    const rows = Array.from({ length: 4 }, (_, row) => [...noise(12, row + 1)].map((x) => x * (row + 1)));
    const text = rows.map((row) => row.join(' ')).join('\n');
    const values = Float32Array.from(rows.flat());
    const shape = [4, 12];
    const cases: [hash: string, options: QuantizeOptions][] = [
      ['', { dtype: 'int4' }],
      ['bits=8&scheme=asymmetric&signed=no', { dtype: 'uint8', scheme: 'asymmetric' }],
      ['bits=3&granularity=per-channel', { dtype: 'int3', granularity: { kind: 'per-channel', axis: 0 } }],
      ['granularity=per-group&groupSize=8', { dtype: 'int4', granularity: { kind: 'per-group', groupSize: 8 } }],
      [
        'granularity=per-group&groupSize=2&groupAxis=0&scheme=asymmetric&includeZero=no',
        {
          dtype: 'int4',
          scheme: 'asymmetric',
          includeZero: false,
          granularity: { kind: 'per-group', groupSize: 2, axis: 0 },
        },
      ],
      [
        'bits=16&rounding=reciprocal&symmetricRange=full',
        { dtype: 'int16', rounding: 'reciprocal', symmetricRange: 'full' },
      ],
    ];
    await open();
    await paste(text);
    for (const [hash, options] of cases) {
      await page.evaluate(
        (hash) =>
          new Promise((done) => {
            addEventListener('popstate', done, { once: true });
            location.hash = `data=own&${hash}`;
          }),
        hash,
      );
      await rested();
      await expectSame(values, { shape, ...options });
    }
  });

  it('changes levels, codes and figures while the bits slider moves', async () => {
    await open();
    const seen = new Set<string>();
    for (const stop of [0, 1, 2, 3]) {
      await page.evaluate((value) => {
        const slider = document.getElementById('bits') as HTMLInputElement;
        slider.value = String(value);
        // An input event without a change event: the slider is still moving.
        slider.dispatchEvent(new Event('input', { bubbles: true }));
      }, stop);
      await page.waitForFunction(
        (levels) => {
          // Levels whose labels have no room are in one path.
          const rest = document.querySelector('#histogram .levels path')?.getAttribute('d') ?? '';
          const labels = document.querySelectorAll('#histogram .levels text').length;
          return labels + rest.split('M').length - 1 === levels && labels >= levels / 2;
        },
        2 ** (stop + 2),
      );
      seen.add((await cells()).map((row) => row.slice(2, 5).join()).join());
      expect(await page.textContent('h1')).toContain(`What ${stop + 2} bits`);
    }
    expect(seen.size).toBe(4);
  });

  it('shows the SQNR of each range method, and what the chosen one clips', async () => {
    await open('distribution=heavy-tailed&range=mse', { sections: 'all' });
    const values = generate({ ...defaultSettings, distribution: 'heavy-tailed' });
    const methods = ['min-max', { percentile: 99.9 }, 'mse', 'entropy'] as const;
    const made = methods.map((range) => sp.quantize(values, { dtype: 'int4', range }));
    const whole = made[0]?.scale[0] as number;
    const rows = await page.$$eval('#methods tr', (all) =>
      all.map((row) => [...row.children].map((c) => c.textContent)),
    );
    expect(rows).toEqual(
      made.map((q, i) => [
        ['min-max', 'percentile', 'least error', 'entropy'][i],
        `${formatReal((100 * (q.scale[0] as number)) / whole)}\u00a0%`,
        formatDecibels(sp.compare(values, q).sqnrDb),
      ]),
    );
    expect(await page.textContent('#methods .current th')).toBe('least error');
    expect(await page.$$eval('#clipping circle', (marks) => marks.length)).toBe(4);
    expect(await page.textContent('#clipping-caption')).toContain('Least error gains 6.62 dB over min-max');
    expect(await figure('figure-sqnrDb')).toBe(sp.compare(values, made[2] as never).sqnrDb);
    // The histogram marks the clipped regions.
    expect(await page.textContent('#histogram')).toContain('clipped');

    await page.selectOption('#range-method', 'min-max');
    await rested();
    expect(await page.textContent('#methods .current th')).toBe('min-max');
    expect(await page.textContent('#histogram')).not.toContain('clipped');
  });

  it('compares linear codes with NF4, FP4 and learned codebooks at every bit width', async () => {
    await open('distribution=heavy-tailed&granularity=per-group&groupSize=32', { sections: 'all' });
    const values = generate({ ...defaultSettings, distribution: 'heavy-tailed' });
    const told = (await page.textContent('#codes desc')) as string;
    const granularity = { kind: 'per-group', groupSize: 32 } as const;
    const expected = (list: readonly (readonly [number, number])[]) =>
      list.map(([bits, sqnr]) => `${bits} bits ${formatDecibels(sqnr)}`).join(', ');
    const linear = (range: 'min-max' | 'mse') =>
      expected(
        ([2, 3, 4, 5, 6, 7, 8] as const).map((bits) => {
          const q = sp.quantize(values, { dtype: `int${bits}`, shape: [16, 256], granularity, range });
          return [bits, sp.compare(values, q).sqnrDb] as const;
        }),
      );
    const codes = (codebook: 'nf4' | 'fp4' | { learn: number }) =>
      sp.compare(values, sp.quantizeCodebook(values, { codebook, blockSize: 32 })).sqnrDb;
    const learned = expected([2, 3, 4, 5, 6].map((bits) => [bits, codes({ learn: 2 ** bits })] as const));
    expect(told).toBe(
      `int, min-max: ${linear('min-max')}. best range (mse): ${linear('mse')}. learned codes: ${learned}. ` +
        `NF4: ${expected([[4, codes('nf4')]])}. FP4: ${expected([[4, codes('fp4')]])}.`,
    );
    expect(await page.$$eval('#codes-legend li', (items) => items.map((item) => item.textContent))).toEqual([
      'int, min-max',
      'best range (mse)',
      'learned codes',
      'NF4',
      'FP4',
    ]);
  });

  it('draws a band instead of lines if the levels are too close', async () => {
    await open('bits=8');
    expect(await page.locator('#histogram .band').count()).toBe(1);
    expect(await page.locator('#histogram .levels text').allTextContents()).toEqual(['−128', '127', '0']);
    expect((await page.getAttribute('#histogram .levels .marks', 'd'))?.match(/M/g)).toHaveLength(256);
  });

  it('draws the levels of the chosen channel', async () => {
    await open('granularity=per-channel&rowsDiffer=yes');
    const first = await page.textContent('#histogram-caption');
    await page.focus('#part');
    await page.keyboard.press('ArrowRight');
    await rested();
    const second = await page.textContent('#histogram-caption');
    expect(first).toContain('Channel 0, 256 numbers');
    expect(second).toContain('Channel 1, 256 numbers');
    expect(/scale (\S+)/.exec(first!)![1]).not.toBe(/scale (\S+)/.exec(second!)![1]);
  });

  it('counts the clipped numbers when the levels cover less than the range', async () => {
    await open();
    await paste('-10 -1 0 1 2 3 4 5 6 10');
    expect(await figure('figure-clipped')).toBe(0);
    await page.fill('#cover', '50');
    await rested();
    // The levels go from -5.7 to 5 in steps of 0.71. Three numbers (-10, 6 and 10) are more than half a step beyond them.
    expect(await figure('figure-clipped')).toBeCloseTo(0.3, 10);
    expect(await page.locator('#histogram .beyond rect').count()).toBe(2);
  });

  it('reads pasted numbers with any separators', async () => {
    await open();
    await paste('x = [1.5, -2e-1; .25]\t"7"|−3');
    expect(await page.textContent('h1')).toContain('5 numbers');
    expect((await cells()).map((row) => row[1])).toEqual(['1.5', '-0.2', '0.25', '7', '-3']);
    expect(await page.textContent('#text-hint')).toContain('Skipped 1 word that isn’t a number: “x”');
  });

  it('quantizes a .npy file dropped anywhere on the page', async () => {
    await open('granularity=per-channel&bits=5');
    const values = noise(60);
    await drop('weights.npy', npy('<f4', '(5, 12)', values.buffer));
    expect(await page.textContent('#summary')).toContain('weights.npy · 5 × 12');
    await expectSame(values, { shape: [5, 12], dtype: 'int5', granularity: { kind: 'per-channel', axis: 0 } });
  });

  it('lists the tensors of a dropped .safetensors file and quantizes the chosen one', async () => {
    await open();
    const weights = noise(24);
    const bits = Uint16Array.from({ length: 32 }, (_, i) => 0x3c00 + i * 77 - (i % 2) * 0x8000);
    const narrow = Uint16Array.from({ length: 8 }, (_, i) => 0x3f80 + i * 5);
    await drop(
      'tiny.safetensors',
      safetensors({
        bias: { dtype: 'F32', shape: [3], data: Float32Array.of(1, 2, 3) },
        weight: { dtype: 'F32', shape: [4, 6], data: weights },
        half: { dtype: 'F16', shape: [4, 8], data: bits },
        brain: { dtype: 'BF16', shape: [8], data: narrow },
        steps: { dtype: 'I64', shape: [1], data: BigInt64Array.of(5n) },
      }),
    );
    expect(await page.locator('#tensor option').count()).toBe(5);
    expect(await page.locator('#tensor option:disabled').allTextContents()).toEqual(['steps · I64 1 (no floats)']);
    // The page chooses the first matrix by itself.
    expect(await page.textContent('#summary')).toContain('weight in tiny.safetensors');
    await expectSame(weights, { shape: [4, 6], dtype: 'int4' });
    for (const [label, from, data, widened] of [
      ['half', 'float16', bits, sp.castToFloat32(bits, 'float16')],
      ['brain', 'bfloat16', narrow, sp.castToFloat32(narrow, 'bfloat16')],
    ] as const) {
      await page.selectOption('#tensor', { index: label === 'half' ? 2 : 3 });
      await page.waitForFunction((name) => document.getElementById('summary')?.textContent.startsWith(name), label);
      await rested();
      expect(Array.from(sp.quantize(data, { dtype: 'int4', from }).data as Int8Array)).toEqual(
        Array.from(sp.quantize(widened, { dtype: 'int4' }).data as Int8Array),
      );
      await expectSame(widened, { dtype: 'int4' });
      expect(await figure('bytes-before')).toBe(data.byteLength);
      expect(await page.textContent('#snippet')).toContain(`from: '${from}'`);
    }
  });

  it('loads the sample model from its own server', async () => {
    await open();
    await source('file');
    await page.click('#sample');
    await page.waitForFunction(() => document.getElementById('summary')?.textContent.includes('digits.safetensors'));
    expect(await page.locator('#tensor option').count()).toBeGreaterThan(1);
    expect(await page.textContent('#problems')).toBe('');
  });

  it('reports that the sample model is not on the server', async () => {
    await open();
    await page.route('**/digits.safetensors', (route) => route.fulfill({ status: 404 }));
    await source('file');
    await page.click('#sample');
    await page.waitForSelector('.problem');
    expect(await page.textContent('.problem')).toContain('not on this server');
    expect(complaints.splice(0)).toEqual([expect.stringContaining('404')]);
  });

  it('reads an unknown file as raw float32 if its size is a multiple of 4, and says so', async () => {
    await open();
    const values = noise(50);
    await drop('weights.bin', new Uint8Array(values.buffer));
    expect(await page.textContent('#summary')).toContain('Read as raw float32');
    await expectSame(values, { dtype: 'int4' });
  });

  it('quantizes a sample of large data while a control moves, and all of it at rest', async () => {
    await open();
    const values = noise(300_000);
    const said = await listen('basis');
    await source('file');
    await page.setInputFiles('#file', { name: 'large.f32', mimeType: '', buffer: Buffer.from(values.buffer) });
    await page.waitForFunction(() => document.getElementById('basis')?.textContent === 'all 300,000 numbers');
    expect((await said()).slice(-2)).toEqual(['a sample: 262,144 of 300,000', 'all 300,000 numbers']);
    await expectSame(values, { dtype: 'int4' });
    await page.fill('#goto', '299999');
    await rested();
    expect((await cells())[0]![1]).toBe(formatReal(values[299_999]!, 6));
  });

  it('explains why it cannot read a file, and keeps the numbers that it had', async () => {
    await open();
    await drop('good.npy', npy('<f4', '(8,)', noise(8).buffer));
    const broken = safetensors({ w: { dtype: 'F32', shape: [2], data: new Float32Array(2) } }).subarray(0, -3);
    const cases: [name: string, bytes: Uint8Array, message: RegExp][] = [
      ['photo.png', Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a), /PNG picture.*This page reads/],
      ['model.gguf', Buffer.from('GGUF\x03\0\0\0'), /Could not read model\.gguf.*the file ends inside/],
      ['odd.bin', Uint8Array.of(1, 2, 3, 4, 5), /5 bytes are not a whole number of float32/],
      ['empty.npy', new Uint8Array(), /is empty/],
      ['words.txt', Buffer.from('no digits here'), /text without numbers/],
      ['cut.safetensors', broken, /Could not read cut\.safetensors/],
      ['cut.npy', npy('<f4', '(8,)', noise(8).buffer).subarray(0, -1), /Could not read cut\.npy/],
    ];
    for (const [name, bytes, message] of cases) {
      await drop(name, bytes);
      expect(await page.locator('.problem').count()).toBe(1);
      expect(await page.textContent('.problem')).toMatch(message);
      expect(await page.textContent('#summary')).toContain('good.npy');
    }
    await page.click('.problem >> text=Close');
    expect(await page.textContent('#problems')).toBe('');
    const values = noise(8, 3);
    await drop('next.npy', npy('<f4', '(8,)', values.buffer));
    expect(await page.textContent('#problems')).toBe('');
    await expectSame(values, { dtype: 'int4' });
  });

  it('explains that NaN is refused, still shows the numbers, and offers to saturate', async () => {
    await open();
    await paste('1 2 nan 4 -inf 3');
    expect(await page.textContent('.problem')).toContain('2 numbers are NaN or infinite');
    expect(await page.textContent('.problem')).toContain('index 2');
    // Nothing speaks of codes or results that are not there.
    expect(await page.isVisible('text=Measured on')).toBe(false);
    expect(await page.textContent('#probe-words')).toBe('Point at a bar to see its numbers.');
    expect(await page.textContent('#figure-sqnrDb')).toBe('–');
    expect((await cells())[2]!.slice(1, 3)).toEqual(['NaN', '–']);
    await page.click('text=Saturate them');
    await rested();
    expect(await page.textContent('#problems')).toBe('');
    await expectSame(Float32Array.of(1, 2, Number.NaN, 4, Number.NEGATIVE_INFINITY, 3), {
      dtype: 'int4',
      nonFinite: 'saturate',
    });
    expect(await page.evaluate(() => document.activeElement?.id)).toBe('result');
  });

  it('draws valid charts for zeros, constants, NaN, and the largest and smallest floats', async () => {
    await open('nonFinite=saturate', { sections: 'all' });
    for (const text of ['0', '0 0 0', '5 5 5', 'nan nan', '3e38 -3e38', '1e-45 -1e-45', '-7']) {
      await paste(text);
      expect(await page.textContent('#problems')).toBe('');
      expect(await page.textContent('#histogram-caption')).toContain('scale');
      const attributes = await page.$$eval('svg.chart *', (nodes) =>
        nodes.flatMap((node) => [...node.attributes].map(({ value }) => value)),
      );
      expect(attributes.filter((value) => /NaN|Infinity|undefined/.test(value))).toEqual([]);
    }
  });

  it('stores the settings but no data in the address, and goes back and forward', async () => {
    await open();
    await paste('0.123456 0.654321');
    await page.check('input[name="scheme"][value="asymmetric"]');
    await page.check('input[name="granularity"][value="per-channel"]');
    await rested();
    expect(new URL(page.url()).hash).toBe('#data=own&scheme=asymmetric&granularity=per-channel');
    expect(decodeURIComponent(page.url())).not.toContain('123456');
    await page.goBack();
    await expect.poll(() => page.isChecked('input[name="granularity"][value="per-tensor"]')).toBe(true);
    expect(await page.isChecked('input[name="scheme"][value="asymmetric"]')).toBe(true);
    await page.goBack();
    await page.goBack();
    expect(new URL(page.url()).hash).toBe('');
    await expect.poll(() => page.textContent('#summary')).toContain('Normal');
    for (let i = 0; i < 3; i++) await page.goForward();
    await expect.poll(() => page.isChecked('input[name="granularity"][value="per-channel"]')).toBe(true);
    expect(await page.textContent('h1')).toContain('2 numbers');
  });

  it('adds one history entry for one drag of a slider', async () => {
    await open();
    const before = await page.evaluate(() => history.length);
    await page.focus('#bits');
    for (let i = 0; i < 4; i++) await page.keyboard.press('ArrowRight');
    // The address is updated asynchronously.
    await expect.poll(() => new URL(page.url()).hash).toBe('#bits=8');
    expect(await page.evaluate(() => history.length)).toBe(before + 1);
  });

  it('opens a link with settings, and ignores invalid ones', async () => {
    await open('bits=6&distribution=uniform&scheme=diagonal&groupSize=7&seed=1e9&__proto__=x&part=-4');
    expect(await page.textContent('h1')).toContain('What 6 bits');
    expect(await page.textContent('#summary')).toContain('Uniform, seed 1');
    expect(await page.isChecked('input[name="scheme"][value="symmetric"]')).toBe(true);
  });

  it('explains that a link does not include the numbers it was made for', async () => {
    await open('data=own&bits=3');
    expect(await page.textContent('.problem')).toContain('A link carries settings, never data');
    expect(await page.textContent('h1')).toBe('What 3 bits do to 4,096 numbers');
  });

  it('goes on where the browser draws no frames, as in a tab that nobody sees', async () => {
    await open();
    await page.evaluate(() => {
      window.requestAnimationFrame = () => 0;
      const bits = document.querySelector('#bits') as HTMLInputElement;
      bits.value = bits.min;
      bits.dispatchEvent(new Event('input', { bubbles: true }));
    });
    const words = () => page.evaluate(() => document.querySelector('h1')?.textContent);
    await expect.poll(words).toBe('What 2 bits do to 4,096 numbers');
  });

  it('can be used by keyboard alone, with the focus always visible', async () => {
    await open('', { sections: 'all' });
    const stops: string[] = [];
    for (let i = 0; i < 120; i++) {
      await page.keyboard.press('Tab');
      const stop = await page.evaluate(() => {
        const node = document.activeElement as HTMLElement | null;
        if (node === null || node === document.body) return undefined;
        // The span beside a radio button shows its focus.
        const drawn = node.matches('.segments input') ? (node.nextElementSibling as HTMLElement) : node;
        const { outlineStyle, outlineWidth } = getComputedStyle(drawn);
        const box = drawn.getBoundingClientRect();
        const seen = box.width > 0 && box.bottom > 0 && box.top < innerHeight;
        const ring = outlineStyle !== 'none' && Number.parseFloat(outlineWidth) >= 2;
        const name = node.id || node.getAttribute('name') || node.dataset.bits || node.textContent;
        return { name, good: seen && (ring || node.id === 'skip') };
      });
      if (stop === undefined) break;
      expect(stop).toMatchObject({ good: true });
      if (stops.includes(stop.name!)) break;
      stops.push(stop.name!);
    }
    const wanted = [
      'skip',
      'Scalepoint',
      'Learn',
      'Your model',
      'Your numbers',
      'Search',
      'Speed',
      'Guide',
      'theme',
      'bar',
      'bits',
      'codes',
      'granularity',
      'source',
      'distribution',
      'size',
      'More settings',
      'scheme',
      'signed',
    ];
    expect(stops.slice(0, wanted.length)).toEqual(wanted);
    for (const id of [
      'cover',
      'rounding',
      'seed',
      'another',
      'rowsDiffer',
      'logCounts',
      'link',
      'reset',
      'bar',
      '2',
      '16',
      'NF4',
      'Q4_0',
      'window',
      'goto',
      'next',
      'copy',
      'download',
    ]) {
      expect(stops).toContain(id);
    }

    await page.focus('#bits');
    await page.keyboard.press('Home');
    await page.focus('input[name="scheme"]:checked');
    await page.keyboard.press('ArrowRight');
    await rested();
    await expect.poll(() => new URL(page.url()).hash).toBe('#bits=2&scheme=asymmetric');
    await page.focus('#includeZero:enabled');
    await page.keyboard.press('Space');
    await rested();
    await expect.poll(() => new URL(page.url()).hash).toBe('#bits=2&scheme=asymmetric&includeZero=no');
    await page.focus('#next');
    await page.keyboard.press('Enter');
    await rested();
    expect((await cells())[0]![0]).toBe('16');
    await page.focus('#skip');
    await page.keyboard.press('Enter');
    expect(await page.evaluate(() => document.activeElement?.id)).toBe('result');
  });

  it('has no accessibility violations in the light and the dark theme', async () => {
    const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
    const check = async (what: string) => {
      // Code that the debugger evaluates is not subject to the page's policy.
      await page.evaluate(`if (!globalThis.axe) { ${axe} }`);
      const violations = await page.evaluate(async () => {
        const run = (
          globalThis as unknown as {
            axe: {
              run(
                options: object,
              ): Promise<{ violations: { id: string; nodes: { html: string; failureSummary: string }[] }[] }>;
            };
          }
        ).axe;
        const { violations } = await run.run({ resultTypes: ['violations'], preload: false });
        return violations.map(
          ({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.html} ${node.failureSummary}`).join('; ')}`,
        );
      });
      expect([what, ...violations]).toEqual([what]);
    };
    // Colors and layout do not depend on each other, so each theme has a width of its own.
    const looks = [
      { colorScheme: 'light', width: 1280 },
      { colorScheme: 'dark', width: 360 },
    ] as const;
    const checkLooks = async (what: string) => {
      for (const { colorScheme, width } of looks) {
        await page.setViewportSize({ width, height: 900 });
        await page.emulateMedia({ colorScheme });
        // Charts follow in the next frames.
        await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
        await rested();
        await check(`${colorScheme} ${width} ${what}`);
      }
    };
    await open('granularity=per-group', { sections: 'all' });
    await page.click('#closer-twin summary');
    await rested();
    await checkLooks('groups');
    await paste('1 2 nan');
    await checkLooks('problem');
    await page.click('text=Saturate them');
    await drop('tiny.safetensors', safetensors({ w: { dtype: 'F32', shape: [2, 2], data: noise(4) } }));
    await checkLooks('file');
  });

  it('does not scroll horizontally at widths from 320 pixels', async () => {
    const height = 740;
    await open('granularity=per-group&bits=16&scheme=asymmetric', { width: 320, height, sections: 'all' });
    await page.click('#closer-twin summary');
    await drop(
      `${'a-very-long-name-without-any-break'.repeat(4)}.safetensors`,
      safetensors({
        [`${'layers.0.attention.'.repeat(8)}weight`]: { dtype: 'F32', shape: [8, 64], data: noise(512) },
      }),
    );
    // From wide to narrow, so that what keeps the width of before is too wide.
    for (const width of [320, 1920, 1024, 768, 360]) {
      await page.setViewportSize({ width, height });
      // Charts follow in the next frames.
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      await rested();
      const { scroll, client, wide } = await page.evaluate(() => ({
        scroll: document.documentElement.scrollWidth,
        client: document.documentElement.clientWidth,
        // Scrolling boxes may hold wider elements.
        wide: [...document.querySelectorAll('body *')]
          .filter(
            (node) =>
              node.closest('.scroll, select, .hidden') === null && node.getBoundingClientRect().right > innerWidth + 1,
          )
          .map((node) => `${node.tagName}#${node.id}.${node.getAttribute('class')}`),
      }));
      expect([width, scroll - client, ...wide]).toEqual([width, 0]);
    }
  });

  it('keeps the histogram visible above the controls on a phone', async () => {
    await open('', { width: 360, height: 740 });
    await page.locator('#rounding').scrollIntoViewIfNeeded();
    const [picture, control] = await Promise.all([
      page.locator('#histogram').boundingBox(),
      page.locator('#rounding').boundingBox(),
    ]);
    expect(picture!.y).toBeGreaterThanOrEqual(0);
    expect(picture!.y + picture!.height).toBeLessThan(control!.y);
  });

  it('follows the theme of the system until one is chosen, and remembers the choice', async () => {
    await open('', { colorScheme: 'dark' });
    const background = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    const dark = await background();
    await page.selectOption('#theme', 'light');
    const light = await background();
    expect(light).not.toBe(dark);
    await page.reload();
    await drawn();
    expect(await background()).toBe(light);
    await page.selectOption('#theme', 'system');
    expect(await background()).toBe(dark);
  });

  it('announces one sentence when the controls rest', async () => {
    await open();
    await expect.poll(() => page.textContent('#live')).toContain('int4');
    const said = await listen('live');
    await page.focus('#bits');
    for (let i = 0; i < 3; i++) await page.keyboard.press('ArrowRight');
    await expect.poll(said).toHaveLength(1);
    await page.waitForTimeout(300);
    expect(await said()).toEqual([
      expect.stringMatching(/^int7, symmetric, per-tensor: SQNR [\d.]+ dB, largest error/),
    ]);
  });

  it('waits for the end of a movement, but not after a choice', async () => {
    await open();
    /** The delays of the timers that the page starts meanwhile, without that of the announcement. */
    const delays = async (act: () => Promise<void>) => {
      await page.evaluate(() => {
        const timers: number[] = [];
        const { setTimeout } = globalThis;
        const start = (call: TimerHandler, delay = 0) => {
          timers.push(delay);
          return setTimeout(call, delay);
        };
        Object.assign(globalThis, { timers, setTimeout: start, realSetTimeout: setTimeout });
      });
      await act();
      await rested();
      return page.evaluate(() => {
        const { timers, realSetTimeout } = globalThis as unknown as { timers: number[]; realSetTimeout: unknown };
        Object.assign(globalThis, { setTimeout: realSetTimeout });
        return timers.filter((delay) => delay < 900);
      });
    };
    const chosen = await delays(() => page.check('input[name="scheme"][value="asymmetric"]'));
    expect(chosen.length).toBeGreaterThan(0);
    expect(Math.max(...chosen)).toBe(0);
    await page.focus('#bits');
    // On a busy machine a movement may be over before the page comes to wait for its end.
    let longest = 0;
    for (let i = 0; i < 8 && longest === 0; i++) {
      longest = Math.max(...(await delays(() => page.keyboard.press(i % 2 === 0 ? 'ArrowRight' : 'ArrowLeft'))));
    }
    expect(longest).toBeGreaterThan(0);
  });

  it('says so where there is nothing to draw', async () => {
    await open('', { sections: 'all' });
    await paste('5 5 5');
    expect(await page.textContent('#histogram-caption')).toContain('all numbers are equal');
    for (const chart of ['codes', 'errors']) {
      expect(await page.textContent(`#${chart} .note`)).toBe('Every number is restored exactly.');
    }
    // The number line opens where the numbers are.
    expect(await page.locator('#numberline .dots circle').count()).toBe(3);
  });

  it('explains why entropy gains nothing on small groups', async () => {
    await open('granularity=per-group&groupSize=128&range=entropy', { sections: 'all' });
    expect(await page.$$eval('#methods tr', (rows) => rows.map((row) => row.children[1]?.textContent).at(-1))).toBe(
      '100\u00a0%',
    );
    expect(await page.textContent('#clipping-caption')).toContain('with 128 numbers most bins are empty');
    await page.check('input[name="granularity"][value="per-tensor"]');
    await rested();
    expect(await page.textContent('#clipping-caption')).not.toContain('bins are empty');
  });

  it('shows which codes the numbers of a bar became, to the pointer and to the keyboard', async () => {
    await open('bits=2');
    const words = () => page.textContent('#probe-words');
    expect(await words()).toContain('Point at a bar');
    const box = (await page.locator('#histogram').boundingBox())!;
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    await expect.poll(words).toMatch(/to .*: \d+ numbers → code 0 \(0\)/);
    expect(await page.locator('#histogram .probed-bar').count()).toBe(1);
    await page.mouse.move(0, 0);
    await expect.poll(words).toContain('Point at a bar');
    await page.focus('#bar');
    await page.keyboard.press('Home');
    // The lowest number of this data is −4.33, which is the code −2 of scale 4.33.
    await expect.poll(words).toMatch(/^−4\.33 to .*: 1 number → code −1 \(−4\.33\)/);
    expect(await page.getAttribute('#bar', 'aria-valuetext')).toBe(await words());
  });

  it('quantizes to NF4, float8 and blocks as the package does', async () => {
    const values = generate(defaultSettings);
    await open('codes=nf4&granularity=per-group&groupSize=64');
    const nf4 = sp.quantizeCodebook(values, { codebook: 'nf4', blockSize: 64 });
    expect(await figure('figure-sqnrDb')).toBeCloseTo(sp.compare(values, nf4).sqnrDb, 3);
    expect(await figure('bytes-after')).toBe(4096 / 2 + 4 * 64);
    expect(await page.textContent('h1')).toBe('What NF4 does to 4,096 numbers');
    await page.check('input[name="codes"][value="blocks"]');
    await page.selectOption('#block', 'Q4_K');
    await rested();
    const q4k = sp.quantizeBlocks(values, 'Q4_K', { shape: [16, 256] });
    expect(await figure('figure-sqnrDb')).toBeCloseTo(sp.compare(values, q4k).sqnrDb, 3);
    expect(await figure('figure-bitsPerWeight')).toBe(4.5);
    expect(await page.textContent('#histogram-caption')).toMatch(/^Block 0, 256 numbers/);
    // Ranks of values are no codes.
    expect(await page.locator('#histogram .levels text').count()).toBe(0);
    await page.check('input[name="codes"][value="float8"]');
    await rested();
    expect(await figure('figure-sqnrDb')).toBeGreaterThan(30);
    // Moving the bits means integers.
    await page.focus('#bits');
    await page.keyboard.press('ArrowRight');
    await rested();
    expect(await page.textContent('h1')).toContain('What 5 bits do');
    // Rows that do not fill blocks are explained, with a way out.
    await paste('1 2 3');
    await page.check('input[name="codes"][value="blocks"]');
    await rested();
    expect(await page.textContent('.problem')).toContain('do not fill blocks of Q4_K');
    await page.click('text=Use integers');
    await rested();
    expect(await page.textContent('#problems')).toBe('');
  });

  it('asks what commas mean, and refuses JSON that is no list', async () => {
    await open();
    await source('text');
    await expect.poll(() => page.textContent('#summary')).toContain('2 × 8');
    await paste('1,5 2,7');
    // The example that was there before is still shown.
    expect(await page.textContent('#summary')).toContain('2 × 8');
    expect(await page.textContent('#comma')).toContain('The comma in “1,5”');
    await page.click('[data-comma="decimal"]');
    await rested();
    expect((await cells()).map((row) => row[1])).toEqual(['1.5', '2.7']);
    expect(await page.isHidden('#comma')).toBe(true);
    await paste('{"a": [1, 2]}');
    expect(await page.textContent('#text-hint')).toContain('not a list of numbers');
    expect(await page.textContent('h1')).toContain('2 numbers');
  });

  it('gives every slider, field and chart a name of its own', async () => {
    await open('granularity=per-group', { sections: 'all' });
    const session = await context.newCDPSession(page);
    const { nodes } = await session.send('Accessibility.getFullAXTree');
    const named = (role: string) =>
      nodes.filter((node) => node.role?.value === role && node.ignored === false).map((node) => node.name?.value);
    expect(named('slider').sort()).toEqual([
      'Bar of the histogram',
      'Bits',
      'Group size',
      'How many',
      'Levels cover',
      'Move along',
      'Show group',
    ]);
    expect(named('combobox').sort()).toEqual(['Axis', 'Distribution', 'Range', 'Rounding', 'Theme']);
    expect(named('spinbutton').sort().reverse()).toEqual(['Seed of the made numbers', 'Go to index']);
  });

  it('leaves the main thread free while numbers are made, pasted and dragged through', async () => {
    await open('', { sections: 'all' });
    const all = (numbers: string) =>
      page.waitForFunction((text) => document.getElementById('basis')?.textContent === text, `all ${numbers} numbers`);
    await page.evaluate(() => {
      const text = Array.from({ length: 1_000_000 }, (_, i) => (i % 1000) / 8).join('\n');
      Object.assign(window, { million: text });
    });
    await expectShortTasks(browser, page, async () => {
      await page.focus('#size');
      await page.keyboard.press('Home');
      await all('256');
      await page.keyboard.press('End');
      await all('1,048,576');
      for (const [slider, key] of [
        ['cover', 'ArrowLeft'],
        ['window', 'ArrowLeft'],
        ['bits', 'ArrowRight'],
      ] as const) {
        await page.focus(`#${slider}`);
        for (let i = 0; i < 3; i++) await page.keyboard.press(key);
      }
      // Figures of a million numbers at rest are computed once.
      await rested();
    });
    await expectShortTasks(browser, page, async () => {
      await page.evaluate(() => {
        const data = new DataTransfer();
        data.setData('text/plain', (window as unknown as { million: string }).million);
        const paste = new ClipboardEvent('paste', { clipboardData: data, bubbles: true });
        // A slider has the focus, which takes no text.
        setTimeout(() => document.getElementById('bits')?.dispatchEvent(paste));
      });
      await all('1,000,000');
      await rested();
    });
  });

  it('lists the levels and bins of the histogram in tables', async () => {
    await open('bits=3&logCounts=yes');
    await page.click('#closer-twin summary');
    await rested();
    const last = (id: string) =>
      page.$$eval(`#${id} tr`, (rows) =>
        rows.map((row) => Number(row.lastElementChild!.textContent!.replace(/,/g, ''))),
      );
    // The tables are filled in the frame after they are opened.
    await expect.poll(() => last('twin-levels')).toHaveLength(8);
    const levels = await last('twin-levels');
    expect(levels.reduce((a, b) => a + b)).toBe(4096);
    expect((await last('twin-bins')).reduce((a, b) => a + b)).toBe(4096);
    expect(await page.textContent('#histogram desc')).toMatch(
      /^4,096 numbers from −4.33 to .* Over them 8 levels from/,
    );
  });

  it('changes the bit width from the table of bit widths, and keeps the focus there', async () => {
    await open('', { sections: 'all' });
    expect(await page.getAttribute('[data-bits="4"]', 'aria-pressed')).toBe('true');
    await page.focus('[data-bits="6"]');
    await page.keyboard.press('Enter');
    await rested();
    expect(await page.textContent('h1')).toContain('What 6 bits');
    expect(await page.evaluate(() => (document.activeElement as HTMLElement).dataset.bits)).toBe('6');
    expect(await page.getAttribute('[data-bits="6"]', 'aria-pressed')).toBe('true');
  });

  it('copies code, and a link to the settings', async () => {
    await open('bits=5');
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.click('#copy');
    const copied = () => page.evaluate(() => navigator.clipboard.readText());
    await expect.poll(copied).toContain("dtype: 'int5'");
    await page.click('#link');
    await expect.poll(copied).toBe(`${server.url}numbers/#bits=5`);
  });

  it('saves the packed codes', async () => {
    await open('bits=3');
    const values = noise(21);
    await drop('weights.npy', npy('<f4', '(3, 7)', values.buffer));
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('#download')]);
    expect(download.suggestedFilename()).toBe('weights.int3.bin');
    const saved = readFileSync(await download.path());
    expect([...saved]).toEqual([...sp.pack(sp.quantize(values, { dtype: 'int3', shape: [3, 7] }))]);
  });

  it('resets the settings and keeps the numbers', async () => {
    await open('bits=2&scheme=asymmetric');
    await paste('1 2 3');
    await page.click('#reset');
    await rested();
    expect(await page.textContent('h1')).toBe('What 4 bits do to 3 numbers');
    expect(new URL(page.url()).hash).toBe('#data=own');
  });

  it('works in any folder of a server that sends no special headers', async () => {
    const elsewhere = await serve({ folder: path('build'), port: 0, policy: '' });
    try {
      await open('', { url: `${elsewhere.url}demo/` });
      expect(await page.textContent('#about-tier')).toContain('core');
      expect(await page.evaluate(() => crossOriginIsolated)).toBe(false);
    } finally {
      await leave();
      await elsewhere.close();
    }
  });

  it('explains why the core does not load', async () => {
    await open('', {
      prepare: async () => {
        await page.route('**/*.wasm', (route) => route.fulfill({ status: 404, body: '' }));
      },
    });
    await page.waitForSelector('.problem');
    expect(await page.textContent('.problem')).toMatch(/core did not load.*load the page again/);
    // Playwright does not report what a worker's requests write to the console.
    complaints = complaints.filter((complaint) => !complaint.includes('404'));
  });
});

// ------------------------------------------------------------------------------------------------------- parts without a page

/** A data set of the page. */
const dataOf = (values: Float32Array, shape: readonly number[]): DataSet => ({
  title: 'test',
  values,
  shape,
  stored: { name: 'float32', bytes: values.byteLength },
  origin: { kind: 'generated' },
  stem: 'test',
});

describe('the modules of the demo page', () => {
  it('find numbers in texts of many kinds', () => {
    const cases: [text: string, numbers: number[], shape: number[]][] = [
      ['1, 2;3 4\t5', [1, 2, 3, 4, 5], [5]],
      ['0.5,0.25,-1', [0.5, 0.25, -1], [3]],
      ['1,5,2,7', [1, 5, 2, 7], [4]],
      ['[[1, 2], [3, 4.5]]', [1, 2, 3, 4.5], [2, 2]],
      ['[1.5]', [1.5], [1]],

      ['1 2\n3 4\n\n5 6\n', [1, 2, 3, 4, 5, 6], [3, 2]],
      ['1 2\n3', [1, 2, 3], [3]],
      ['1\n2\n3', [1, 2, 3], [3]],
      ['[[1.0f, -2.5e3],\r\n [+.5, 7.]]', [1, -2500, 0.5, 7], [2, 2]],
      ['NaN inf -Infinity', [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY], [3]],
      ['layer1 w2 0x10 1e 1.2.3 -', [], [0]],
      ['', [], [0]],
    ];
    for (const [text, numbers, shape] of cases) {
      const result = readText(text);
      if (result.kind !== 'numbers') throw new Error(`${text}: ${result.kind}`);
      expect([text, Array.from(result.parsed.values), result.parsed.shape]).toEqual([text, numbers, shape]);
    }
    expect(readText('a b c d 1')).toMatchObject({ parsed: { ignored: ['a', 'b', 'c'], ignoredCount: 4 } });
  });

  it('ask what a comma means if it can mean several things', () => {
    const cases: [text: string, word: string, readings: Comma[]][] = [
      ['1,5 2,7', '1,5', ['separates', 'decimal']],
      ['1,5; -2,7e3', '1,5', ['separates', 'decimal']],
      ['1,234.5', '1,234.5', ['separates', 'thousands']],
      ['1,234 5,678', '1,234', ['separates', 'decimal', 'thousands']],
      ['1,234,567 2', '1,234,567', ['separates', 'thousands']],
    ];
    for (const [text, word, readings] of cases) {
      expect([text, readText(text)]).toEqual([text, { kind: 'question', question: { word, readings } }]);
    }
    const values = (text: string, comma: Comma) => {
      const result = readText(text, comma);
      return result.kind === 'numbers' ? Array.from(result.parsed.values) : result;
    };
    expect(values('1,5 2,7', 'decimal')).toEqual([1.5, Math.fround(2.7)]);
    expect(values('1,5 2,7', 'separates')).toEqual([1, 5, 2, 7]);
    expect(values('1,234.5 -2,000,000', 'thousands')).toEqual([1234.5, -2_000_000]);
    // An answer to another text does not apply.
    expect(values('1,234.5', 'decimal')).toMatchObject({ kind: 'question' });
  });

  it('refuse JSON that is no list of numbers', () => {
    for (const text of ['{"a": 1, "b": 2}', '[{"x": 1}]', '["1", 2]', '[1, null]', '[[1, 2], [3]]', '{"a": [1, 2']) {
      expect([text, readText(text).kind]).toEqual([text, 'refused']);
    }
  });

  it('write every setting into the address and read it back', () => {
    const settings: Settings = {
      data: 'own',
      distribution: 'outliers',
      size: 16384,
      seed: 77,
      rowsDiffer: true,
      codes: 'blocks',
      block: 'Q6_K',
      bits: 16,
      signed: false,
      scheme: 'asymmetric',
      granularity: 'per-group',
      channelAxis: 1,
      groupAxis: 0,
      groupSize: 64,
      range: 'entropy',
      cover: 35,
      rounding: 'reciprocal',
      symmetricRange: 'full',
      includeZero: false,
      nonFinite: 'saturate',
      part: 12,
      logCounts: true,
    };
    expect(parseHash(`#${formatHash(settings)}`)).toEqual(settings);
    expect(formatHash(defaultSettings)).toBe('');
    for (const hash of ['', '#', '#result', '#bits=99&seed=-1&signed=maybe&cover=0&part=1.5&size=', '#%E0%A4%A']) {
      expect(parseHash(hash)).toEqual(defaultSettings);
    }
  });

  it('generate the same numbers from the same seed, and others from another seed', () => {
    for (const { name } of distributions) {
      const make = (seed: number) => generate({ distribution: name, size: 4096, seed, rowsDiffer: false });
      expect(make(5)).toEqual(make(5));
      expect(make(5)).not.toEqual(make(6));
      const { notFinite, min, max } = statisticsOf(make(5));
      expect(notFinite).toBe(0);
      expect(max).toBeGreaterThan(min);
    }
    const { mean } = statisticsOf(generate({ distribution: 'normal', size: 65536, seed: 1, rowsDiffer: false }));
    // The mean of n standard normal numbers has standard deviation 1 / sqrt(n). Beyond 5 of these lies one seed in two million.
    expect(Math.abs(mean)).toBeLessThan(5 / 256);
  });

  it('agree with the core on which elements share a scale', () => {
    const shapes = [[24], [4, 6], [2, 3, 5], [1, 7], [3, 1, 4]];
    for (const shape of shapes) {
      const values = noise(shape.reduce((a, b) => a * b));
      for (const [axis] of shape.entries()) {
        for (const granularity of [
          { kind: 'per-tensor' } as const,
          { kind: 'per-channel', axis } as const,
          { kind: 'per-group', groupSize: 2, axis } as const,
          { kind: 'per-group', groupSize: 100, axis } as const,
        ]) {
          const { scale } = sp.quantize(values, { shape, granularity });
          const parts = partsOf(granularity, shape);
          expect(parts.count).toBe(scale.length);
          const byRun = new Map<number, number[]>();
          for (const { start, length, part, step } of runsOf(parts)) {
            for (let i = 0; i < length; i++) {
              const at = part + i * step;
              byRun.set(at, [...(byRun.get(at) ?? []), start + i]);
            }
          }
          for (let part = 0; part < parts.count; part++) {
            const elements = [...elementsOf(parts, part)];
            expect(byRun.get(part)).toEqual(elements);
            const largest = Math.max(...elements.map((i) => Math.abs(values[i]!)));
            expect(scale[part]).toBe(Math.fround(largest / 127));
          }
        }
      }
    }
  });

  it('take a sample of at most the limit, and map its elements to those of the data', () => {
    for (const [shape, granularity] of [
      [[10_000], { kind: 'per-tensor' }],
      [[100, 90], { kind: 'per-channel', axis: 0 }],
      [[100, 90], { kind: 'per-group', groupSize: 32, axis: 1 }],
      [[9_000], { kind: 'per-group', groupSize: 32, axis: 0 }],
      [[4, 4, 700], { kind: 'per-channel', axis: 2 }],
    ] as const) {
      const values = noise(shape.reduce<number>((a, b) => a * b, 1));
      const sample = takeSample(values, shape, granularity, 1000);
      const size = sample.shape.reduce((a, b) => a * b);
      expect(sample.values.length).toBe(size);
      expect(size).toBeGreaterThan(100);
      expect(size).toBeLessThanOrEqual(1000);
      let previous = -1;
      for (let i = 0; i < size; i++) {
        const at = sample.position(i);
        expect(at).toBeGreaterThan(previous);
        expect(sample.values[i]).toBe(values[at]);
        previous = at;
      }
    }
    const whole = takeSample(noise(10), [10], { kind: 'per-tensor' }, 10);
    expect(whole.values).toEqual(noise(10));
  });

  it('count the bytes of packed codes, scales and zero points', () => {
    const values = noise(7 * 33);
    const data = dataOf(values, [7, 33]);
    for (const change of [
      {},
      { bits: 3 },
      { bits: 16, signed: false, scheme: 'asymmetric' },
      { granularity: 'per-group', groupSize: 8, scheme: 'asymmetric' },
    ] as Partial<Settings>[]) {
      const settings = { ...defaultSettings, ...change };
      const q = sp.quantize(values, quantizeOptions(settings, data.shape));
      const bytes = countBytes(data, settings);
      expect(bytes.codes).toBe(sp.pack(q).length);
      expect(bytes.scales).toBe(q.scale.byteLength);
      const wide = (q.data as Int8Array).BYTES_PER_ELEMENT;
      expect(bytes.zeroPoints).toBe(settings.scheme === 'symmetric' ? 0 : q.zeroPoint.length * wide);
      expect(bytes.bitsPerWeight).toBeCloseTo(
        ((bytes.codes + bytes.scales + bytes.zeroPoints) * 8) / values.length,
        12,
      );
    }
  });

  it('extract one part of an evaluation with its own codes', () => {
    const values = noise(6 * 10);
    const settings: Settings = { ...defaultSettings, granularity: 'per-channel', channelAxis: 1 };
    const evaluation = evaluate(sp, dataOf(values, [6, 10]), settings, values.length);
    const slice = sliceOf(evaluation, 4);
    expect(Array.from(slice.values)).toEqual([4, 14, 24, 34, 44, 54].map((i) => values[i]));
    expect(Array.from(slice.codes)).toEqual([4, 14, 24, 34, 44, 54].map((i) => evaluation.codes?.[i]));
    expect(slice.levels.scale).toBe(evaluation.scale[4]);
    expect(sliceOf(evaluation, 99).part).toBe(9);
  });

  it('write code that gives the same results as the page', async () => {
    const values = noise(4 * 16);
    const data = dataOf(values, [4, 16]);
    for (const change of [
      {},
      { bits: 8 },
      { bits: 5, signed: false, scheme: 'asymmetric', includeZero: false, rounding: 'fused' },
      { granularity: 'per-group', groupSize: 8, symmetricRange: 'full' },
      { granularity: 'per-channel', cover: 60, rounding: 'reciprocal', nonFinite: 'saturate' },
      { granularity: 'per-channel', channelAxis: 1, cover: 35, bits: 2 },
    ] as Partial<Settings>[]) {
      const settings = { ...defaultSettings, ...change };
      const code = snippet(data, settings)
        .replace(/^import .*$/gm, '')
        .replace(/^const weights = new Float32Array\(64\); \/\/ your numbers$/m, '');
      expect(code).not.toContain('import');
      const run = new Function(
        'load',
        'weights',
        `return (async () => { ${code}; return { q, restored, sqnrDb, bytes }; })()`,
      );
      const { q, restored, sqnrDb, bytes } = await run(load, values);
      const evaluation = evaluate(sp, data, settings, values.length);
      expect(q.dtype).toBe(evaluation.dtype);
      expect(Array.from(q.data)).toEqual(Array.from(evaluation.codes ?? []));
      expect(restored).toEqual(evaluation.restored);
      expect(sqnrDb).toBe(evaluation.comparison.sqnrDb);
      expect(bytes.length).toBe(evaluation.bytes.codes);
    }
  });

  it('quote the names of tensors in code', () => {
    const data: DataSet = { ...dataOf(noise(4), [4]), origin: { kind: 'file', tensor: "it's \\ odd\nname" } };
    expect(snippet(data, defaultSettings)).toContain("readTensor(file, 'it\\'s \\\\ odd\\nname')");
  });

  it('format numbers for people', () => {
    expect([0, 1.23456789, -0.00001234, 1e7, Number.NaN, Number.NEGATIVE_INFINITY].map((x) => formatReal(x))).toEqual([
      '0',
      '1.235',
      '-1.234e-5',
      '1e7',
      'NaN',
      '-∞',
    ]);
    expect([0, 999, 2052, 67_100, 999_600, 5e9].map(formatBytes)).toEqual([
      '0\u00a0B',
      '999\u00a0B',
      '2.05\u00a0kB',
      '67.1\u00a0kB',
      '1.00\u00a0MB',
      '5.00\u00a0GB',
    ]);
    const spaced = [0, 0.00001, 0.0123, 1].map((share) => formatShare(share).replaceAll('\u00a0', ' '));
    expect(spaced).toEqual(['0 %', '< 0.01 %', '1.23 %', '100 %']);
    expect([bitsOf(-8, 4), bitsOf(7, 4), bitsOf(200, 8), bitsOf(-1, 3)]).toEqual(['1000', '0111', '11001000', '111']);
    expect(ticks(-1, 1, 4)).toEqual([-1, -0.5, 0, 0.5, 1]);
    expect(ticks(0, 0, 4)).toEqual([0]);
  });
});

// Inputs of ONNX models on the page: sizes of dimensions, arrays and pictures.
import { readFileSync } from 'node:fs';
import * as ort from 'onnxruntime-web/wasm';
import type { Page } from 'playwright';
import { describe, expect, it } from 'vitest';
import { relativeText } from '../../../../web/demo/model/outputs.js';
import { pictureNumbers, pictureShape } from '../../../../web/demo/model/picture-input.js';
import { compareModels, quantizeModel } from '../../../../web/src/model.js';
import * as onnx from '../../formats/onnx/encoder.js';
import { npy } from '../../support/npz.js';
import { startSite } from '../site.js';

const site = startSite();
let page: Page;
const text = (id: string) => page.textContent(`#${id}`);
const fileOf = (name: string, content: Uint8Array, mimeType = '') => ({ name, mimeType, buffer: Buffer.from(content) });

async function openWith(model: Uint8Array): Promise<void> {
  page = await site.open('model/');
  await page.setInputFiles('#file', fileOf('model.onnx', model));
  await page.waitForSelector('#outputs:visible');
}

async function compare(): Promise<void> {
  await page.click('#outputs-run');
  // The page is drawn with the next frame.
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  await page.waitForSelector('#outputs-cancel', { state: 'hidden' });
}

describe('the shape of pictures', () => {
  it.each([
    [[1, 3, 8, 6], { height: 8, width: 6, channels: 3, isLast: false }],
    [[2, 8, 6, 1], { height: 8, width: 6, channels: 1, isLast: true }],
    [[1, 4, 8, 8], undefined],
    [[1, 3, 8], undefined],
  ] as const)('of %j', (shape, expected) => {
    expect(pictureShape(shape)).toEqual(expected);
  });

  it('has its channels where the input has them, and each picture of a batch is the same', () => {
    const pixels = Uint8ClampedArray.of(255, 0, 51, 255, 0, 102, 255, 255);
    const numbers = (count: number, shape: readonly number[]) =>
      [...pictureNumbers(pixels, count, pictureShape(shape)!)].map((value) => Math.round(value * 255));
    expect(numbers(1, [1, 3, 1, 2])).toEqual([255, 0, 0, 102, 51, 255]);
    const last = { height: 1, width: 2, channels: 3, isLast: true };
    expect([...pictureNumbers(pixels, 1, last)].map((value) => Math.round(value * 255))).toEqual([
      255, 0, 51, 0, 102, 255,
    ]);
    expect(numbers(2, [2, 1, 1, 2])).toEqual([102, 119, 102, 119]);
  });
});

it('offers sizes that the model leaves open as fields, once it has run, and folds norms by samples', async () => {
  await openWith(onnx.product('MatMul', [96, 64], ['n', 96], ['n', 64])());
  expect(await page.locator('[name="outputs-size"]').count()).toBe(0);
  await compare();
  expect(await text('outputs-basis')).toContain('Guessed: n = 1.');
  expect(await page.inputValue('[data-name="n"]')).toBe('1');
  await page.fill('[data-name="n"]', '5');
  await page.press('[data-name="n"]', 'Tab');
  await compare();
  expect(await text('outputs-basis')).toBe('Inputs: x (random, 5 × 96). Real inputs tell more.');
  expect(await page.inputValue('[data-name="n"]')).toBe('5');
  expect(await site.axe('#outputs')).toEqual([]);
  // A .npy file is the only input.
  const array = npy('<f4', '(3, 96)', Float32Array.from({ length: 288 }, (_, i) => Math.sin(i)).buffer);
  await page.setInputFiles('#outputs-file', fileOf('mine.npy', array));
  await compare();
  expect(await text('outputs-basis')).toBe('Inputs from mine.npy: x (3 × 96).');

  // Samples move a large channel from a norm into the weights behind it, as in the package.
  const width = 32;
  const scaled = (name: string, dims: readonly number[], seed: number, factor: number) => {
    const values = onnx.weights(width * (dims[1] ?? 1), seed).map((value, i) => {
      const channel = dims.length === 1 ? i : Math.floor(i / width);
      return (dims.length === 1 ? 1 + value : value) * (channel === 5 ? factor : 1);
    });
    return onnx.tensor({ name, dims, raw: onnx.rawOf(values) });
  };
  const model = onnx.model({
    nodes: [
      { op: 'LayerNormalization', in: ['x', 'g', 'b'], out: ['n'] },
      { op: 'MatMul', in: ['n', 'w'], out: ['y'] },
    ],
    initializers: [scaled('g', [width], 1, 300), scaled('b', [width], 2, 300), scaled('w', [width, width], 3, 1 / 300)],
    inputs: [['x', ['rows', width]]],
    outputs: [['y', ['rows', width]]],
  });
  const samples = npy('<f4', '(8, 4, 32)', onnx.weights(8 * 4 * width, 9, 1).buffer);
  await page.setInputFiles('#file', fileOf('norms.onnx', model));
  await expect.poll(() => text('model-name')).toBe('norms.onnx');
  await page.click('#more summary');
  await page.setInputFiles('#data-file', fileOf('samples.npy', samples));
  await expect
    .poll(() => text('data-words'))
    .toBe('1 norm folded by the samples in samples.npy, which brings the outputs closer.');
  expect(await text('model-command')).toContain('--to q8 --fold-outliers --samples samples.npy');
  const [saved] = await Promise.all([page.waitForEvent('download'), page.click('#model-run')]);
  ort.env.wasm.numThreads = 1;
  const run = { runtime: ort, samples: { files: new File([samples], 'samples.npy') } };
  const folded = await quantizeModel(model, { to: 'q8', foldOutliers: true, run, workers: 0 });
  expect(Buffer.compare(readFileSync(await saved.path()), await folded.bytes())).toBe(0);
});

it('runs a model of pictures on a picture of the visitor', async () => {
  const model = onnx.product('Conv', [64, 3, 8, 8], [1, 3, 16, 16], [1, 64, 9, 9])();
  await openWith(model);
  // A picture of the input's size is drawn as it is.
  const { base64, pixels } = await page.evaluate(async () => {
    const canvas = new OffscreenCanvas(16, 16);
    const context = canvas.getContext('2d') as OffscreenCanvasRenderingContext2D;
    const image = context.createImageData(16, 16);
    for (let i = 0; i < image.data.length; i++) image.data[i] = i % 4 === 3 ? 255 : (i * 37) % 256;
    context.putImageData(image, 0, 0);
    const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: 'image/png' })).arrayBuffer());
    return { base64: btoa(String.fromCharCode(...bytes)), pixels: [...image.data] };
  });
  expect(await page.isEnabled('#outputs-run')).toBe(true);
  await page.setInputFiles('#outputs-file', fileOf('cat.png', Buffer.from(base64, 'base64'), 'image/png'));
  await compare();
  expect(await text('outputs-problem')).toBe('');
  expect(await text('outputs-basis')).toBe('Inputs from cat.png: x (1 × 3 × 16 × 16).');
  const data = pictureNumbers(Uint8ClampedArray.from(pixels), 1, pictureShape([1, 3, 16, 16])!);
  ort.env.wasm.numThreads = 1;
  const made = await (await quantizeModel(model, { to: 'q8', workers: 0 })).bytes();
  const inputs = { x: { data, shape: [1, 3, 16, 16] } };
  const report = await compareModels(model, made, { run: { runtime: ort, inputs }, workers: 0 });
  expect(await text('outputs-verdict')).toContain(relativeText(report.outputs?.[0]?.error.relativeL2 ?? 0));
  // A file that is none, and a model without an input of pictures.
  await page.setInputFiles('#outputs-file', fileOf('no.png', Uint8Array.of(1, 2, 3), 'image/png'));
  await compare();
  expect(await text('outputs-problem')).toBe('q8 could not be compared: no.png is no picture that this browser reads.');
});

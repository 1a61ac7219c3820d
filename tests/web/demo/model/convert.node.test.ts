// The page for model files: folders of language models, and checkpoints of diffusion models, which become GGUF.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright';
import { afterAll, describe, expect, it } from 'vitest';
import { modelInFolder } from '../../../../web/demo/shared/folder.js';
import { quantizeModel } from '../../../../web/src/model.js';
import { safetensors, weights } from '../../support/models.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../../support/tiny-huggingface.js';
import { startSite } from '../site.js';

const site = startSite();
const place = mkdtempSync(join(tmpdir(), 'scalepoint-convert-'));
afterAll(() => rmSync(place, { recursive: true, force: true }));

let page: Page;

/** A model with its configuration and tokenizer, and files that do not belong to it. */
function folder(): string {
  const path = join(place, 'tiny');
  mkdirSync(path, { recursive: true });
  const tensors = [...decoderWeights()].map(([name, { shape, values }]) => [
    name,
    { dtype: 'F32', shape, data: values },
  ]);
  writeFileSync(join(path, 'model.safetensors'), safetensors(Object.fromEntries(tensors)));
  writeFileSync(join(path, 'config.json'), JSON.stringify(decoderConfig('LlamaForCausalLM')));
  writeFileSync(join(path, 'tokenizer.json'), JSON.stringify(plainTokenizer()));
  writeFileSync(join(path, '.gitattributes'), 'x');
  writeFileSync(join(path, 'picture.png'), 'x');
  return path;
}

const names = ['model.safetensors', 'config.json', 'tokenizer.json'] as const;

async function save(): Promise<{ name: string; bytes: Buffer }> {
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#model-run')]);
  return { name: download.suggestedFilename(), bytes: readFileSync(await download.path()) };
}

const tensorNames = () => page.$$eval('#model-rows .name', (cells) => cells.map(({ textContent }) => textContent));

describe('the page for model files', () => {
  it('makes GGUF of a model whose config.json is chosen with it', async () => {
    const path = folder();
    page = await site.open('model/');
    await page.setInputFiles(
      '#file',
      names.map((name) => join(path, name)),
    );
    await expect.poll(tensorNames).toContain('blk.0.attn_q.weight');
    await page.click('#more summary');
    expect(
      await page.$$eval('#model-target optgroup', (groups) =>
        groups.map((group) => (group as HTMLOptGroupElement).label),
      ),
    ).toEqual([
      ...['integers', 'small floats', 'ComfyUI', 'MLX', 'GPTQ and AWQ', 'floats of 16 and 32 bits'].map(
        (family) => `safetensors: ${family}`,
      ),
      ...[
        'simple blocks',
        'k-quants',
        'i-quants',
        'small floats',
        'two or three values',
        'floats of 16 and 32 bits',
      ].map((family) => `GGUF: ${family}`),
      'transformers.js',
    ]);
    expect(await page.inputValue('#model-target')).toBe('Q4_K_M');
    const { name, bytes } = await save();
    expect(name).toBe('model-Q4_K_M.gguf');
    const list = names.map((file) => new File([readFileSync(join(path, file))], file));
    const expected = await (await quantizeModel(list, { to: 'Q4_K_M', workers: 0 })).bytes();
    expect(Buffer.compare(bytes, expected)).toBe(0);
    await page.selectOption('#model-target', 'int8');
    await expect.poll(tensorNames).toContain('model.layers.0.self_attn.q_proj.weight');
    expect((await save()).name).toBe('model.int8.safetensors');
    expect(site.complaints).toEqual([]);
  });

  it('shows no empty parts if the tokenizer is missing, all of them once there is a plan, and none of these after it fails', async () => {
    const path = folder();
    page = await site.open('model/');
    await page.setInputFiles(
      '#file',
      names.slice(0, 2).map((name) => join(path, name)),
    );
    await expect.poll(() => page.textContent('main')).toContain('tokenizer.json is missing');
    expect(await page.isVisible('#bytes')).toBe(false);
    await page.click('#more summary');
    await page.selectOption('#model-target', 'int8');
    await expect.poll(() => page.isVisible('#bytes-kinds th')).toBe(true);
    await page.click('#model-rows button.name:has-text("self_attn.q_proj")');
    await expect.poll(() => page.textContent('#look-facts')).toMatch(/becomes|stays/);
    const figures = () =>
      page.evaluate(() => {
        const ids = ['model-size', 'model-totals', 'model-expectation', 'model-status', 'model-notes', 'look-facts'];
        const cells = [...document.querySelectorAll('#model-rows [data-column="After"], #model-rows .keep')];
        return [...ids.map((id) => document.getElementById(id)), ...cells].map((node) => node?.textContent?.trim());
      });
    expect((await figures()).join(' ')).toMatch(/exactly.*kB/);
    await page.selectOption('#model-target', 'Q4_K_M');
    await expect.poll(() => page.textContent('#problems')).toContain('tokenizer.json is missing');
    await expect.poll(async () => (await figures()).join('')).toMatch(/^\d+ × \d+ · F32$/);
    expect(await page.isVisible('#bytes')).toBe(false);
  });

  it('removes what an earlier visit left behind, and says so', async () => {
    page = await site.open('model/');
    const put = () =>
      page.evaluate(async () => {
        const root = await navigator.storage.getDirectory();
        for (const name of ['scalepoint-a', 'mine']) await root.getFileHandle(name, { create: true });
      });
    await put();
    await page.reload();
    const words = 'Removed a temporary file that an earlier visit left in this browser.';
    await expect.poll(() => page.textContent('#tidied')).toBe(words);
    await page.mouse.move(5, 5);
    const left = () =>
      page.evaluate(async () => {
        const root = await navigator.storage.getDirectory();
        const left: string[] = [];
        for await (const name of (root as unknown as { keys(): AsyncIterable<string> }).keys()) left.push(name);
        return left;
      });
    expect(await left()).toEqual(['mine']);
    expect(await page.textContent('#tidied')).toBe(words);
  });

  it('takes a folder that is dropped, with its name', async () => {
    const path = folder();
    page = await site.open('model/');
    const session = await page.context().newCDPSession(page);
    const data = { items: [], files: [path], dragOperationsMask: 1 };
    for (const type of ['dragEnter', 'dragOver', 'drop'] as const) {
      await session.send('Input.dispatchDragEvent', { type, x: 200, y: 200, data });
    }
    await expect.poll(tensorNames).toContain('blk.0.attn_q.weight');
    const { bytes } = await save();
    const expected = await quantizeModel(join(path, 'model.safetensors'), { to: 'Q4_K_M', workers: 0 });
    expect(Buffer.compare(bytes, await expected.bytes())).toBe(0);
    expect(bytes.includes('tiny')).toBe(true);
  });

  it('shows who reads a checkpoint of a diffusion model', async () => {
    page = await site.open('model/');
    const wide = [8, 256] as const;
    const bytes = safetensors({
      'double_blocks.0.img_attn.proj.weight': weights('BF16', wide, 1),
      'double_blocks.0.img_attn.qkv.weight': weights('BF16', wide, 2),
      'img_in.weight': weights('BF16', wide, 3),
    });
    await page.setInputFiles('#file', { name: 'flux.safetensors', mimeType: '', buffer: Buffer.from(bytes) });
    await expect.poll(() => page.textContent('#model-name')).toContain('flux.safetensors');
    await expect.poll(() => page.isEnabled('#model-run')).toBe(true);
    expect((await save()).name).toBe('flux-Q4_K_M.gguf');
    await expect.poll(() => page.textContent('#readers')).toMatch(/ComfyUI.*stable-diffusion\.cpp/s);
  });
});

describe('the model in a folder', () => {
  const chosen = (...paths: string[]) =>
    modelInFolder(paths.map((path) => ({ path: `m/${path}`, file: new File([], path.split('/').at(-1)!) }))).map(
      ({ path }) => path.slice(2),
    );

  it('is an index with its files, or the file called model, with what describes it', () => {
    expect(chosen('a-1.safetensors', 'a-2.safetensors', 'a.safetensors.index.json', 'config.json', 'x.bin')).toEqual([
      'a-1.safetensors',
      'a-2.safetensors',
      'a.safetensors.index.json',
      'config.json',
    ]);
    expect(chosen('model.safetensors', 'consolidated.safetensors', 'tokenizer.model')).toEqual([
      'model.safetensors',
      'tokenizer.model',
    ]);
    expect(chosen('flux.safetensors', 'README.md', '.gitattributes', 'onnx/model.onnx')).toEqual([
      'flux.safetensors',
      'README.md',
    ]);
    const parts = ['1_Pooling/config.json', '2_Dense/config.json', '2_Dense/model.safetensors'];
    expect(chosen('model.safetensors', 'modules.json', ...parts, '2_Dense/README.md')).toEqual([
      'model.safetensors',
      'modules.json',
      ...parts,
    ]);
  });

  it('is the transformer or the unet of a pipeline of diffusers', () => {
    const file = 'diffusion_pytorch_model.safetensors';
    const pipeline = ['model_index.json', 'README.md', `vae/${file}`, 'text_encoder/model.safetensors'];
    for (const part of ['transformer', 'unet']) {
      const own = [`${part}/${file}`, `${part}/config.json`];
      expect(chosen(...pipeline, ...own, `${part}/diffusion_pytorch_model.fp16.safetensors`)).toEqual(own);
    }
    const shards = [1, 2].map((n) => `transformer/diffusion_pytorch_model-0000${n}-of-00002.safetensors`);
    const sharded = [...shards, `transformer/${file}.index.json`];
    expect(chosen(...pipeline, ...sharded, `unet/${file}`)).toEqual(sharded);
    expect(chosen(...pipeline)).toEqual(['model_index.json']);
  });

  it('is that of the folder onnx, as for transformers.js, if there is no other', () => {
    expect(chosen('config.json', 'tokenizer.json', 'onnx/model.onnx', 'onnx/model_q4.onnx')).toEqual([
      'onnx/model.onnx',
      'config.json',
      'tokenizer.json',
    ]);
  });

  it('is one of PyTorch if there is no other', () => {
    expect(chosen('pytorch_model.bin', 'training_args.bin', 'config.json')).toEqual([
      'pytorch_model.bin',
      'config.json',
    ]);
    expect(chosen('pytorch_model.bin', 'model.safetensors')).toEqual(['model.safetensors']);
    expect(chosen('p-1.bin', 'p-2.bin', 'p.bin.index.json')).toEqual(['p-1.bin', 'p-2.bin', 'p.bin.index.json']);
  });

  it('is several files if nothing tells which, and one of any kind if there is none', () => {
    expect(chosen('a.safetensors', 'b.safetensors', 'config.json')).toEqual(['a.safetensors', 'b.safetensors']);
    expect(chosen('weights.h5', 'config.json')).toEqual(['weights.h5']);
  });
});

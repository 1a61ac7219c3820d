// Results that are folders, on the page for models.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { planModel, quantizeModel } from '../../../../web/src/model.js';
import { expectBytes, safetensors, weights } from '../../support/models.js';
import { putSmol } from '../../support/smol.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../../support/tiny-huggingface.js';
import { startSite } from '../site.js';

const site = startSite();
const folder = mkdtempSync(join(tmpdir(), 'scalepoint-folders-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it('begins a model for WebLLM in a new folder of the one that the visitor chooses, and removes it after a cancel', async () => {
  const page = await site.open('model/', {}, async (page) => {
    await page.addInitScript(() => {
      Object.assign(globalThis, {
        showDirectoryPicker: async () =>
          (await navigator.storage.getDirectory()).getDirectoryHandle('out', { create: true }),
      });
    });
  });
  await putSmol(join(folder, 'smol'));
  const files = ['model.safetensors', 'config.json', 'tokenizer.json'].map((name) => join(folder, 'smol', name));
  await page.setInputFiles('#file', files);
  await page.click('.settings > summary');
  await page.selectOption('#model-target', 'mlc-q4f16_1');
  const { totals, files: planned } = await planModel(join(folder, 'smol/model.safetensors'), { to: 'mlc-q4f16_1' });
  await expect
    .poll(() => page.$eval('#model-size', (data) => Number((data as HTMLDataElement).value)))
    .toBe(totals.bytesAfter);
  await expect.poll(() => page.textContent('#model-command')).toContain('--to mlc-q4f16_1');
  // The presets are those of the usual format.
  await expect.poll(() => page.textContent('#offers')).toContain('Q8_0');
  await page.click('#model-run');
  await expect.poll(() => page.textContent('#readers')).toContain('SmolLM2-360M-Instruct-q4f16_1-MLC');
  const written = () =>
    page.evaluate(async () => {
      const namesOf = async (folder: FileSystemDirectoryHandle) => {
        const names: string[] = [];
        for await (const name of (folder as unknown as { keys(): AsyncIterable<string> }).keys()) names.push(name);
        return names;
      };
      const out = await (await navigator.storage.getDirectory()).getDirectoryHandle('out');
      const names = await namesOf(out);
      const marks = names.filter((name) => name.startsWith('.'));
      const folders = names.filter((name) => !marks.includes(name));
      const inside = await Promise.all(folders.map(async (name) => namesOf(await out.getDirectoryHandle(name))));
      return { folders, marks, files: inside.flat() };
    });
  await expect.poll(async () => (await written()).files).toContain('mlc-chat-config.json');
  const { folders, marks } = await written();
  expect({ folders, marks }).toEqual({
    folders: ['model-q4f16_1-MLC'],
    marks: ['.scalepoint-page-model-q4f16_1-MLC.partial'],
  });
  const names = planned.map(({ name }) => name.slice(name.indexOf('/') + 1));
  for (const name of (await written()).files) expect(names).toContain(name.replace(/\.crswap$/, ''));
  await page.click('#model-cancel');
  await expect.poll(() => page.textContent('#model-status')).toContain('Cancelled. Nothing was saved.');
  expect(await written()).toEqual({ folders: [], marks: [], files: [] });
});

it('writes a folder for transformers.js with what lies in its own folder', async () => {
  const page = await site.open('model/', {}, async (page) => {
    await page.addInitScript(() => {
      Object.assign(globalThis, {
        showDirectoryPicker: async () =>
          (await navigator.storage.getDirectory()).getDirectoryHandle('place', { create: true }),
      });
    });
  });
  const source = join(folder, 'tiny');
  mkdirSync(source);
  const tensors = [...decoderWeights()].map(
    ([name, { shape, values }]) => [name, { dtype: 'F32', shape, data: values }] as const,
  );
  writeFileSync(join(source, 'model.safetensors'), safetensors(Object.fromEntries(tensors)));
  writeFileSync(join(source, 'config.json'), JSON.stringify(decoderConfig('LlamaForCausalLM')));
  writeFileSync(join(source, 'tokenizer.json'), JSON.stringify(plainTokenizer()));
  const files = ['model.safetensors', 'config.json', 'tokenizer.json'].map((name) => join(source, name));
  await page.setInputFiles('#file', files);
  await page.click('.settings > summary');
  await page.selectOption('#model-target', 'onnx:q4');
  await expect.poll(() => page.textContent('#model-command')).toContain('--to onnx:q4');
  await page.click('#model-run');
  await expect.poll(() => page.textContent('#model-status')).toContain('Saved model-q4-ONNX');
  const savedFiles = () =>
    page.evaluate(async () => {
      const place = await (await navigator.storage.getDirectory()).getDirectoryHandle('place');
      const found: Record<string, number[]> = {};
      const walk = async (within: FileSystemDirectoryHandle, path: string): Promise<void> => {
        const all = within as unknown as { entries(): AsyncIterable<[string, FileSystemHandle]> };
        for await (const [name, handle] of all.entries()) {
          if (handle.kind === 'directory') await walk(handle as FileSystemDirectoryHandle, `${path}${name}/`);
          else {
            const file = await (handle as FileSystemFileHandle).getFile();
            found[path + name] = [...new Uint8Array(await file.arrayBuffer())];
          }
        }
      };
      await walk(place, '');
      return found;
    });
  const output = join(folder, 'made');
  await quantizeModel(files[0]!, { to: 'onnx:q4', output });
  const names = ['config.json', 'onnx/model_q4.onnx', 'tokenizer.json'];
  const saved = await savedFiles();
  expect(Object.keys(saved).sort()).toEqual(names.map((name) => `model-q4-ONNX/${name}`));
  for (const name of names) {
    const bytes = Uint8Array.from(saved[`model-q4-ONNX/${name}`]!);
    expectBytes(bytes, new Uint8Array(readFileSync(join(output, name))), name);
  }
  // A GGUF file of blocks is turned back into a folder, too.
  const blocks = join(folder, 'tiny.gguf');
  await quantizeModel(files[0]!, { to: 'Q8_0', missingBytes: 'keep', output: blocks });
  await page.setInputFiles('#file', [blocks]);
  await expect.poll(() => page.textContent('#model-facts')).toContain('GGUF');
  await page.selectOption('#model-target', 'bfloat16');
  await page.click('#model-again');
  await expect.poll(() => page.textContent('#model-command')).toContain('tiny.gguf --to bfloat16 --requantize');
  await page.click('#model-run');
  await expect.poll(() => page.textContent('#model-status')).toContain('Saved tiny-bfloat16');
  expect(await page.textContent('#readers')).toContain('load_file("tiny-bfloat16/model.safetensors")');
  const all = await savedFiles();
  const own = await quantizeModel(blocks, { to: 'bfloat16', requantize: true, workers: 0 });
  expect(own.files.map(({ name }) => name)).toContain('config.json');
  expect(Object.keys(all).filter((name) => name.startsWith('tiny')).length).toBe(own.files.length);
  for (const { name } of own.files)
    expectBytes(Uint8Array.from(all[`tiny-bfloat16/${name}`]!), await own.bytes(name), name);
});

it('removes what a save that was cut off left in the chosen folder, and nothing else', async () => {
  const page = await site.open('model/', {}, async (page) => {
    await page.addInitScript(() => {
      Object.assign(globalThis, {
        showDirectoryPicker: async () =>
          (await navigator.storage.getDirectory()).getDirectoryHandle('out', { create: true }),
      });
    });
  });
  const markOf = (name: string) => `.scalepoint-page-${name}.partial`;
  // As a killed Chromium leaves them: an empty file under the name of the result, and what was written beside it.
  const ours = ['cut.gguf', 'cut.gguf.crswap', markOf('cut.gguf'), 'part-MLC/b.bin', 'part-MLC/b.bin.crswap'];
  const stays = [
    // The command line may be at work.
    '.scalepoint-0123abcd-7-0123abcd.partial',
    // A part of a result that is whole, and an empty file that the visitor put beside it.
    ...[markOf('part-MLC'), 'part-MLC/a.bin', 'part-MLC/empty.txt'],
    // A save of another tab.
    ...['busy.gguf', 'busy.gguf.crswap', markOf('busy.gguf')],
    // Somebody else's.
    ...['other.gguf', 'other.gguf.crswap', 'whole.gguf'],
  ];
  await page.evaluate(
    async ([names, busy]) => {
      const root = await navigator.storage.getDirectory();
      const out = await root.getDirectoryHandle('out', { create: true });
      for (const path of names) {
        const [name = '', folder] = path.split('/').reverse();
        const place = folder === undefined ? out : await out.getDirectoryHandle(folder, { create: true });
        const file = await place.getFileHandle(name, { create: true });
        if (!/a\.bin|crswap|whole\.gguf$/.test(name)) continue;
        const stream = await file.createWritable();
        await stream.write('content');
        await stream.close();
      }
      void navigator.locks.request(busy, () => new Promise(() => {}));
    },
    [[...ours, ...stays, markOf('whole.gguf')], markOf('busy.gguf')] as const,
  );
  const model = (seed: number) => Buffer.from(safetensors({ 'x.weight': weights('F32', [16, 64], seed) }));
  await page.setInputFiles(
    '#file',
    [1, 2].map((i) => ({ name: `m${i}.safetensors`, mimeType: '', buffer: model(i) })),
  );
  await page.click('#several-run');
  await expect.poll(() => page.textContent('#several-status')).toBe('2 of 2 models saved.');
  expect(await page.textContent('#tidied')).toBe(
    'Removed cut.gguf, which a save that was cut off left in the folder out. ' +
      'part-MLC, which a save that was cut off left in the folder out, is unfinished.',
  );
  expect(await page.isVisible('#tidied')).toBe(true);
  const found = await page.evaluate(async () => {
    const out = await (await navigator.storage.getDirectory()).getDirectoryHandle('out');
    const paths: string[] = [];
    const walk = async (folder: FileSystemDirectoryHandle, prefix: string) => {
      const entries = folder as unknown as { entries(): AsyncIterable<[string, FileSystemHandle]> };
      for await (const [name, handle] of entries.entries()) {
        if (handle.kind === 'file') paths.push(prefix + name);
        else await walk(handle as FileSystemDirectoryHandle, `${name}/`);
      }
    };
    await walk(out, '');
    return paths;
  });
  const results = ['m1.config.json', 'm1.int8.safetensors', 'm2.config.json', 'm2.int8.safetensors'];
  expect(found.sort()).toEqual([...stays, ...results].sort());
});

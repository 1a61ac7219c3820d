// Statistics on the page for model files: made from a story, they decide about the codes as they do in the package.
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { Tokenizer } from '@huggingface/tokenizers';
import { expect, it } from 'vitest';
import { codeOf, commandOf, hashOf, initialChoice } from '../../../../web/demo/model/choice.js';
import { calibrateModel, quantizeModel } from '../../../../web/src/model.js';
import { path, startSite } from '../site.js';

const site = startSite();
const folder = 'web/demo/public/samples/storyteller';
const files = ['model.safetensors', 'config.json', 'tokenizer.json', 'tokenizer_config.json'].map((name) =>
  path(`${folder}/${name}`),
);

it('names statistics in the command and the code, and leaves them out of links', () => {
  const statistics = { file: new File([], 'a b.gguf'), method: 'importance' } as const;
  const choice = { ...initialChoice('gguf'), statistics };
  expect(commandOf('m.gguf', 'gguf', choice)).toBe("npx scalepoint quantize m.gguf --to Q4_K_M --imatrix 'a b.gguf'");
  expect(codeOf('m.gguf', 'gguf', choice)).toContain('importance: "a b.gguf",');
  expect(commandOf('m.gguf', 'gguf', { ...choice, statistics: { ...statistics, method: 'gptq' } })).toContain(
    "--method gptq --moments 'a b.gguf'",
  );
  expect(hashOf('gguf', choice)).toBe('');
  const folds = { ...initialChoice('onnx'), statistics: { ...statistics, method: 'fold', norms: [{}] } } as const;
  expect(commandOf('m.onnx', 'onnx', folds)).toMatch(/--to q8 --fold-outliers --samples 'a b\.gguf'$/);
  expect(codeOf('m.onnx', 'onnx', folds)).toContain('foldOutliers: true,\n  run: { samples: { files: "a b.gguf" } },');
});

it('makes an importance matrix from a story, and quantizes by it with the bytes of the package', async () => {
  const page = await site.open('model/');
  await page.setInputFiles('#file', files);
  await page.click('#more summary');
  await page.selectOption('#model-target', 'Q2_K');
  await page.check('#option-search');
  await page.click('#data-make');
  await expect.poll(() => page.textContent('#data-words')).toMatch(/^Columns are weighted by story\.imatrix\.gguf/);
  expect(await page.textContent('#model-command')).toContain('--search best --imatrix story.imatrix.gguf');
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#model-run')]);
  // The same matrix, made by the package of the same tokens: those after the ones by which results are judged.
  const model = files.map((name) => new File([readFileSync(name)], basename(name)));
  const parsed = files.slice(2).map((name) => JSON.parse(readFileSync(name, 'utf8')) as object);
  const { ids } = new Tokenizer(parsed[0] as object, parsed[1] as object).encode(
    readFileSync(path('web/demo/model/stories.txt'), 'utf8'),
    { add_special_tokens: false },
  );
  const matrix = await calibrateModel(model, 'tokens', {
    tokenizer: { encode: () => ids.slice(4096, 8192) },
    chunkSize: 256,
    workers: 0,
  });
  const importance = new File([await matrix.blob()], 'story.imatrix.gguf');
  const expected = await quantizeModel(model, { to: 'Q2_K', importance, search: 'best', workers: 0 });
  expect(Buffer.compare(readFileSync(await download.path()), await expected.bytes())).toBe(0);
  expect(await site.axe('#data-field')).toEqual([]);
  await page.click('#data-remove');
  await expect.poll(() => page.textContent('#model-command')).not.toContain('imatrix');
});

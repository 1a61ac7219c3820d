// The question *Where shall it run?*: programs, memory, and the types that follow from them.
import { join } from 'node:path';
import type { Page } from 'playwright';
import { describe, expect, it } from 'vitest';
import { type PlannedTarget, programsOf, recommend, usualAmong } from '../../../../web/demo/model/programs.js';
import { formatBytes } from '../../../../web/demo/shared/format.js';
import { planModel } from '../../../../web/src/model.js';
import { formats } from '../../../../web/src/tooling.js';
import { path, startSite } from '../site.js';

const site = startSite();
const folder = path('web/demo/public/samples/storyteller');
const files = ['model.safetensors', 'config.json', 'tokenizer.json', 'tokenizer_config.json'].map((name) =>
  join(folder, name),
);

describe('programs', () => {
  const model = { format: 'safetensors', other: 'gguf', folders: ['onnx-folder'] } as const;

  it('are those that the tables of targets name, with the targets that they read', () => {
    const programs = programsOf(model, 'llama');
    expect([...programs.keys()]).toEqual(
      expect.arrayContaining(['transformers.js', 'mlx-lm', 'vLLM', 'ComfyUI', 'llama.cpp', 'Ollama', 'Python']),
    );
    for (const [program, targets] of programs) {
      for (const { format, name } of targets) {
        const info = formats.find((one) => one.name === format);
        expect(
          info?.readers?.(name, 'FILE').map((one) => one.program),
          name,
        ).toContain(program);
      }
    }
    expect(programs.get('llama.cpp')?.map(({ format }) => format)).not.toContain('safetensors');
    expect(programsOf(model, undefined).has('vLLM')).toBe(true);
    expect(programsOf(model, undefined, false).has('vLLM')).toBe(false);
    expect(programsOf({ format: 'gguf' }, undefined).has('transformers.js')).toBe(false);
    // Programs of diffusion models are those of their architecture.
    expect(programsOf(model, 'flux').has('stable-diffusion.cpp')).toBe(true);
    for (const name of ['vLLM', 'mlx-lm', 'transformers'])
      expect(programsOf(model, 'flux').has(name), name).toBe(false);
    expect(programs.has('stable-diffusion.cpp')).toBe(false);
  });
});

describe('recommendations', () => {
  const target = (name: string, bytesAfter: number, preset?: 'small' | 'balanced' | 'safe'): PlannedTarget => {
    const usual = preset === undefined ? { isUsual: true } : { preset };
    return { name, format: 'gguf', bytesAfter, bytesBefore: 16e9, converted: 9, ...usual };
  };
  const planned = [
    target('Q2_K', 2.7e9, 'small'),
    target('Q4_K_M', 4.4e9, 'balanced'),
    target('Q6_K', 6e9),
    target('Q8_0', 7.7e9, 'safe'),
  ];
  const names = (memory?: number) => recommend(planned, memory).map(({ name, title }) => `${title}: ${name}`);

  it('are the smallest, the balanced and the largest type that fits', () => {
    expect(names()).toEqual(['Small: Q2_K', 'Balanced: Q4_K_M', 'Largest: Q8_0']);
    expect(names(16e9)).toEqual(['Small: Q2_K', 'Balanced: Q4_K_M', 'Largest that fits: Q8_0']);
    expect(names(8e9)).toEqual(['Small: Q2_K', 'Balanced: Q4_K_M', 'Largest that fits: Q6_K']);
    // Where the balanced one is the largest, it is named once.
    expect(names(6e9)).toEqual(['Small: Q2_K', 'Balanced: Q4_K_M']);
    expect(names(4e9)).toEqual(['Largest that fits: Q2_K']);
    expect(names(2e9)).toEqual(['Smallest: Q2_K']);
    expect(recommend(planned, 2e9)[0]?.reason).toBe(
      `Does not leave a quarter of ${formatBytes(2e9)} free. No usual type is smaller.`,
    );
    // Of two types of one size the usual one is enough.
    const alike = planned.slice(1, 3).map((one) => ({ ...one, bytesAfter: 4e9 }));
    expect(recommend(alike, undefined).map(({ name }) => name)).toEqual(['Q4_K_M']);
    // What changes nothing, or is not smaller, is no recommendation.
    for (const change of [{ converted: 0 }, { bytesBefore: 2e9 }]) {
      expect(
        recommend(
          planned.map((one) => ({ ...one, ...change })),
          undefined,
        ),
      ).toEqual([]);
    }
  });
});

describe('the panel', () => {
  let page: Page;
  const cards = () =>
    page.$$eval('#recommended .offer', (all) =>
      all.map((one) =>
        [...one.querySelectorAll('.offer-title, .offer-target, .offer-size')].map((part) => part.textContent),
      ),
    );

  it('recommends types of a program with the sizes that the plan has, and chooses one', async () => {
    page = await site.open('model/');
    await page.setInputFiles('#file', files);
    await page.waitForSelector('#where-program');
    expect(await page.isVisible('#offers')).toBe(true);
    await page.selectOption('#where-program', 'mlx-lm');
    await page.waitForSelector('#recommended .offer');
    // None of the usual types of the page is one of this program.
    const chosen = await page.inputValue('#model-target');
    const found = await cards();
    expect(found.map(([, name]) => name)).toContain(chosen);
    for (const [, name = '', size] of found) {
      const { totals } = await planModel(folder, { to: name as 'mlx-4bit' });
      expect(size).toBe(formatBytes(totals.bytesAfter));
    }
    await page.selectOption('#where-program', 'llama.cpp');
    await expect.poll(async () => (await cards()).map(([, name]) => name)).toContain('Q4_K_M');
    expect(await page.inputValue('#model-target')).toBe('Q4_K_M');
    await page.click('#recommended .offer:last-child');
    expect(await page.inputValue('#model-target')).toBe((await cards()).at(-1)?.[1]);
    expect(await site.axe('#where')).toEqual([]);
    // The browser remembers the program.
    page = await site.open('model/');
    await page.evaluate(() => localStorage.setItem('scalepoint-program', 'llama.cpp'));
    await page.reload();
    await page.setInputFiles('#file', files);
    await page.waitForSelector('#recommended .offer');
    await page.selectOption('#where-program', '');
    await page.waitForSelector('#offers');
  });

  it('says why a program cannot run a result', async () => {
    page = await site.open('model/');
    await page.evaluate(() => localStorage.clear());
    await page.setInputFiles('#file', path('web/demo/public/samples/digits.safetensors'));
    await page.waitForSelector('#where-program');
    await page.selectOption('#where-program', 'ComfyUI');
    await page.waitForSelector('#where-words:visible');
    await expect.poll(() => page.textContent('#where-words')).toMatch(/^ComfyUI cannot run a result of this model\. ./);
  });
});

it('usual types are presets and common ones, or all where none is', () => {
  const [all] = [programsOf({ format: 'onnx' }, undefined).get('transformers.js') ?? []];
  expect(usualAmong(all).length).toBeGreaterThan(1);
  expect(usualAmong(all.map(({ preset: _, isUsual: __, ...one }) => one))).toHaveLength(all.length);
});

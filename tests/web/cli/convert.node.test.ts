// Folders and checkpoints to GGUF on the command line.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { beforeEach, describe, expect, it } from 'vitest';
import { safetensors, weights } from '../support/models.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../support/tiny-huggingface.js';
import { type TowerCase, towerCases, towerTensors } from '../support/towers.js';
import { path, run, useFolder } from './support.js';

const tensors = Object.fromEntries(
  [...decoderWeights()].map(([name, { shape, values }]) => [name, { dtype: 'F32', shape, data: values }]),
);

describe('the command line', () => {
  useFolder();
  beforeEach(() => {
    mkdirSync(path('tiny'));
    writeFileSync(path('tiny/model.safetensors'), safetensors(tensors));
    writeFileSync(path('tiny/config.json'), JSON.stringify(decoderConfig('LlamaForCausalLM')));
    writeFileSync(path('tiny/tokenizer.json'), JSON.stringify(plainTokenizer()));
  });

  it('makes GGUF of a folder, in one step or in two', async () => {
    expect(await run(['tiny', '--to', 'q4_k_m,f32', '--quiet'])).toMatchObject({ code: 0, stdout: '', stderr: '' });
    expect(await run(['tiny/tiny-F32.gguf', '--to', 'Q4_K_M', '-o', 'two.gguf', '--quiet'])).toMatchObject({
      code: 0,
    });
    expect(Buffer.compare(readFileSync(path('tiny/tiny-Q4_K_M.gguf')), readFileSync(path('two.gguf')))).toBe(0);
  });

  it('tells what a folder can become, plans it, and compares it with its result', async () => {
    expect((await run(['inspect', 'tiny/model.safetensors'])).stdout).toContain(
      'LlamaForCausalLM, which can become GGUF',
    );
    const { stdout } = await run(['plan', 'tiny', '--to', 'Q8_0', '--json']);
    const { format, architecture, tensors: planned } = JSON.parse(stdout);
    expect({ format, architecture }).toEqual({ format: 'gguf', architecture: 'llama' });
    expect(planned.find(({ name }: { name: string }) => name === 'blk.0.attn_q.weight')).toMatchObject({
      sources: ['model.layers.0.self_attn.q_proj.weight'],
      to: 'Q8_0',
    });
    await run(['tiny', '--to', 'F32', '-o', 'f32.gguf', '--quiet']);
    expect((await run(['compare', 'tiny', 'f32.gguf'])).stdout).toMatch(/30 tensors compared\n.*exact/);
  });

  it('mentions its own options in errors, and writes nothing', async () => {
    const { model, ...others } = plainTokenizer() as { model: { vocab: Record<string, number> } };
    const vocab = Object.fromEntries(Object.entries(model.vocab).map(([text, id]) => [text.replace('<0x', '<x'), id]));
    writeFileSync(path('tiny/tokenizer.json'), JSON.stringify({ ...others, model: { ...model, vocab } }));
    const refused = await run(['tiny', '--to', 'Q8_0']);
    expect(refused).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/--missing-bytes keep converts it all the same/),
    });
    expect(readdirSync(path('tiny'))).toHaveLength(3);
    const kept = await run(['tiny', '--to', 'Q8_0', '--missing-bytes', 'keep', '--quiet']);
    expect(kept).toMatchObject({ code: 0 });
    expect(await run(['tiny', '--to', 'Q8_0', '--group-size', '32'])).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/--group-size: only for safetensors files;/),
    });
    expect(await run(['tiny', '--to', 'int8', '--missing-bytes', 'keep'])).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/--missing-bytes: only for GGUF files;/),
    });
  });

  it('makes the file of a vision tower, and says in the other one that it is left out', async () => {
    const tower = towerCases.find(({ name }) => name === 'LLaVA') as TowerCase;
    const language = Object.fromEntries(Object.entries(tensors).map(([name, own]) => [`language_model.${name}`, own]));
    writeFileSync(path('tiny/model.safetensors'), safetensors({ ...towerTensors(tower), ...language }));
    const text = { ...decoderConfig('LlamaForCausalLM'), model_type: 'llama' };
    writeFileSync(path('tiny/config.json'), JSON.stringify({ ...tower.config, text_config: text }));
    writeFileSync(path('tiny/preprocessor_config.json'), JSON.stringify(tower.preprocessor));
    const whole = await run(['tiny', '--to', 'Q8_0']);
    expect(whole).toMatchObject({ code: 0, stdout: expect.stringContaining('wrote tiny/tiny-Q8_0.gguf') });
    expect(whole.stderr).toMatch(
      /the vision tower is left out \(45 tensors\); --mmproj with --to F16 makes a second file of it/,
    );
    const second = await run(['tiny', '--to', 'F16', '--mmproj']);
    expect(second.stderr).toBe('');
    expect(second).toMatchObject({ code: 0, stdout: expect.stringContaining('wrote tiny/mmproj-tiny-F16.gguf') });
    expect(await run(['compare', 'tiny', 'tiny/mmproj-tiny-F16.gguf'])).toMatchObject({ code: 0 });
    const planned = await run(['plan', 'tiny', '--to', 'Q8_0', '--mmproj', '--json']);
    expect(JSON.parse(planned.stdout)).toMatchObject({ format: 'gguf', architecture: 'clip' });
    expect(await run(['tiny', '--to', 'Q4_K_M', '--mmproj'])).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/--to: .*F16.*BF16.*Q8_0/),
    });
    expect(await run(['tiny', '--to', 'F16', '--mmproj', '--rule', 'x=keep'])).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/--rule "x=keep": not together with --mmproj/),
    });
  });

  it('makes GGUF of a checkpoint, and says who reads it', async () => {
    writeFileSync(
      path('flux.safetensors'),
      safetensors({ 'double_blocks.0.img_attn.proj.weight': weights('BF16', [8, 256]) }),
    );
    const { code, stdout, stderr } = await run(['flux.safetensors', '--to', 'Q4_K_S']);
    expect(code).toBe(0);
    expect(stdout).toContain('wrote flux-Q4_K_S.gguf');
    expect(stderr).toContain('follows the tools of ComfyUI-GGUF for flux');
  });
});

// --lora on the command line.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { beforeEach, describe, expect, it } from 'vitest';
import { quantizeModel } from '../../../web/src/model.js';
import { pair, spellings, weight } from '../support/lora.js';
import { safetensors } from '../support/models.js';
import { path, run, useFolder } from './support.js';

const module = 'model.layers.0.mlp.up_proj';
const model = safetensors({ [`${module}.weight`]: weight([64, 128], 1) });
const first = safetensors(spellings.peft(module, pair(64, 128, 4, 2), 128, 0));
const second = safetensors(spellings.kohya(module, pair(64, 128, 2, 5), 128, 1));
const config = { peft_type: 'LORA', r: 4, lora_alpha: 8 };

describe('--lora', () => {
  useFolder();
  beforeEach(() => {
    writeFileSync(path('model.safetensors'), model);
    mkdirSync(path('adapter'));
    writeFileSync(path('adapter/adapter_model.safetensors'), first);
    writeFileSync(path('adapter/adapter_config.json'), JSON.stringify(config));
    writeFileSync(path('style.safetensors'), second);
  });

  it('merges adapters, of folders and of files, with their strengths', async () => {
    const args = ['model.safetensors', '--to', 'int8', '-o', 'out.safetensors'];
    const { code, stderr } = await run([...args, '--lora', 'adapter:-0.5', '--lora', 'style.safetensors']);
    expect(code).toBe(0);
    expect(stderr).toContain(
      'with "adapter_model.safetensors" (1 weight, strength -0.5) and "style.safetensors" (1 weight, strength 1) added',
    );
    const lora = [{ file: path('adapter'), strength: -0.5 }, { file: path('style.safetensors') }];
    const want = await quantizeModel(path('model.safetensors'), { to: 'int8', lora, workers: 0 });
    expect(Buffer.compare(readFileSync(path('out.safetensors')), await want.bytes())).toBe(0);
  });

  it('plans, and carries out a saved plan', async () => {
    const lora = ['--lora', 'adapter:.25'];
    const plan = await run([
      'plan',
      'model.safetensors',
      '--to',
      'int8',
      ...lora,
      '--save-plan',
      'plan.json',
      '--json',
    ]);
    expect(JSON.parse(plan.stdout).notes).toContainEqual(expect.objectContaining({ kind: 'adaptersMerged' }));
    // A plan names no files.
    expect(readFileSync(path('plan.json'), 'utf8')).not.toContain('adapter"');
    const without = await run(['model.safetensors', '--plan', 'plan.json', '-o', 'planned.safetensors']);
    expect(without).toMatchObject({ code: 2, stderr: expect.stringContaining('--lora') });
    await run(['model.safetensors', '--plan', 'plan.json', ...lora, '-o', 'planned.safetensors']);
    await run(['model.safetensors', '--to', 'int8', ...lora, '-o', 'direct.safetensors']);
    const [planned, direct] = ['planned', 'direct'].map((name) => readFileSync(path(`${name}.safetensors`)));
    expect(Buffer.compare(planned!, direct!)).toBe(0);
  });

  it.each([
    [['--lora', ''], 2, '--lora: expected a name of a file, got ""'],
    [['--lora', 'style.safetensors:'], 2, '--lora: expected a name of a file'],
    [['--lora', 'missing.safetensors'], 1, 'missing.safetensors'],
    [['--lora', 'other.safetensors'], 1, '1 of its 1 layers match no weight of the model: "lora_unet_elsewhere"'],
  ])('refuses %j, and writes nothing', async (lora, code, text) => {
    writeFileSync(path('other.safetensors'), safetensors(spellings.kohya('elsewhere', pair(4, 4, 1, 1), 4, 1)));
    const refused = await run(['model.safetensors', '--to', 'int8', '-o', 'out.safetensors', ...lora]);
    expect(refused).toMatchObject({ code, stderr: expect.stringContaining(text) });
    expect(existsSync(path('out.safetensors'))).toBe(false);
  });

  it('is no option of split', async () => {
    const split = await run(['split', 'model.safetensors', '-o', 'parts.safetensors', '--lora', 'adapter']);
    expect(split).toMatchObject({ code: 2, stderr: expect.stringContaining('scalepoint quantize') });
  });
});

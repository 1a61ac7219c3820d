// Where the bytes of a model are: kinds and blocks by the names of tensors, and the largest saving.
import { expect, it } from 'vitest';
import {
  keptGroups,
  kindBytes,
  layerKind,
  mergedSlices,
  sliceBytes,
  slicesOf,
  sumOf,
} from '../../../../web/demo/model/bytes.js';
import { planModel } from '../../../../web/src/model.js';
import { safetensors, weights } from '../../support/models.js';
import { startSite } from '../site.js';

const site = startSite();

const tensor = (name: string, bytesBefore: number, bytesAfter: number) => {
  return { name, bytesBefore, bytesAfter, shape: [1], from: 'F32', to: 'I8' };
};

it('tells the kind of a layer by its name, in the words of several formats', () => {
  const kinds = {
    embedding: [
      'model.embed_tokens.weight',
      'token_embd.weight',
      'transformer.wte.weight',
      'lm_head.weight',
      'output.weight',
    ],
    attention: [
      'model.layers.0.self_attn.q_proj.weight',
      'blk.3.attn_output.weight',
      'h.0.attn.c_attn.weight',
      'x.0.query.bias',
    ],
    mlp: ['model.layers.0.mlp.up_proj.weight', 'blk.0.ffn_down.weight', 'h.0.mlp.c_proj.weight', 'fc1.weight'],
    norm: [
      'model.norm.weight',
      'blk.0.attn_norm.weight',
      'h.0.ln_1.weight',
      'layers.0.post_attention_layernorm.weight',
      'bn1.bias',
    ],
    other: ['conv.weight', 'onnx::MatMul_12'],
  };
  for (const [kind, names] of Object.entries(kinds)) {
    for (const name of names) expect([name, layerKind(name)]).toEqual([name, kind]);
  }
});

it('has a slice for each block, and merges neighbors without losing bytes', () => {
  const tensors = [
    tensor('model.embed_tokens.weight', 400, 400),
    ...Array.from({ length: 30 }, (_, i) => [
      tensor(`model.layers.${i}.self_attn.q_proj.weight`, 40, 10),
      tensor(`model.layers.${i}.mlp.up_proj.weight`, 80, 20),
    ]).flat(),
  ];
  const slices = slicesOf(tensors);
  expect(slices.map(({ label }) => label).slice(0, 3)).toEqual(['embeddings', 'block 0', 'block 1']);
  expect(slices).toHaveLength(31);
  expect(slices[2]?.kinds.mlp).toEqual({ before: 80, after: 20 });
  const merged = mergedSlices(slices, 8);
  expect(merged).toHaveLength(8);
  expect(merged[1]?.label).toBe('block 3 to 6');
  expect(sumOf(merged.map(sliceBytes))).toEqual({ before: 4000, after: 1300 });
  expect(kindBytes(merged)).toEqual(kindBytes(slices));
  // Stacks are told apart by the part of their names that differs.
  for (const [a, b] of [
    ['encoder', 'decoder'],
    ['model.double_blocks', 'model.single_blocks'],
  ] as const) {
    const stacks = slicesOf([tensor(`${a}.0.weight`, 4, 1), tensor(`${b}.0.weight`, 4, 1)]);
    expect(stacks.map(({ label }) => label)).toEqual([a, b].map((name) => `${name.replace('model.', '')} 0`));
  }
  // Without numbered blocks, modules are slices.
  expect(slicesOf([tensor('fc1.weight', 4, 1), tensor('fc1.bias', 1, 1)]).map(({ label }) => label)).toEqual(['fc1']);
});

/** A model whose embedding is most of it. */
const heavy = safetensors({
  'model.embed_tokens.weight': weights('F32', [512, 128]),
  'model.layers.0.mlp.up_proj.weight': weights('F32', [128, 128], 2),
});

it('groups what is kept by kind, type and reason, without what was kept by hand', async () => {
  const { tensors } = await planModel(heavy, { to: 'int8' });
  const [group] = keptGroups(tensors, new Set());
  expect(group).toMatchObject({ kind: 'embedding', type: 'F32', reason: 'embedding', bytes: 512 * 128 * 4 });
  expect(keptGroups(tensors, new Set(['model.embed_tokens.weight']))).toEqual([]);
});

it('takes the largest saving with one click, and takes it back', async () => {
  const page = await site.open('model/');
  await page.setInputFiles('#file', { name: 'heavy.safetensors', mimeType: '', buffer: Buffer.from(heavy) });
  const words = () => page.textContent('#bytes-saving');
  await expect
    .poll(words)
    .toMatch(
      /^262.kB of this is the embedding, kept as float32 because vLLM expects floats there\. Make it bfloat16: 131.kB less\.$/,
    );
  const height = () => page.$eval('#more', (node) => node.getBoundingClientRect().top + scrollY);
  const before = await height();
  await page.click('#bytes-take');
  const rules = [{ match: '^(model\\.embed_tokens\\.weight)$', to: 'bfloat16' }];
  const { totals } = await planModel(heavy, { to: 'int8', rules });
  await expect.poll(() => page.getAttribute('#model-size', 'value')).toBe(String(totals.bytesAfter));
  await expect.poll(words).toBe('This saving is in the settings.');
  expect(await height()).toBe(before);
  expect(await page.textContent('#bytes-kinds tr:first-child')).toMatch(/Embeddings and output262.kB131.kB89.%/);
  expect(await site.axe('#bytes')).toEqual([]);
  await page.focus('#bytes-undo');
  await page.keyboard.press('Enter');
  await expect.poll(words).toMatch(/131.kB less/);
});

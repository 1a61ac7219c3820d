// Results of a given size on the command line, and files of rules.
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { inspectModel, quantizeModel } from 'scalepoint/model';
import { beforeEach, expect, it } from 'vitest';
import * as onnx from '../formats/onnx/encoder.js';
import { safetensors } from '../support/models.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../support/tiny-huggingface.js';
import { tinyLlama } from '../support/tiny-llama.js';
import { path, run, useFolder } from './support.js';

useFolder();
const model = tinyLlama({ rows: 8 });
beforeEach(() => writeFile(path('tiny.gguf'), model));

const size = async (name: string) => (await stat(path(name))).size;

it('makes a result of a size, called by it', async () => {
  const { code, stdout } = await run(['tiny.gguf', '--target-size', '33 kB']);
  expect(code).toBe(0);
  expect(stdout).toMatch(/predicted error 0\.\d+, the least in this size[\s\S]*wrote tiny-33kB\.gguf/);
  expect(await size('tiny-33kB.gguf')).toBeLessThanOrEqual(33_000);
  const bits = await run(['quantize', 'tiny.gguf', '--target-bpw', '4.5', '--json']);
  const { output, totals, fit, to } = JSON.parse(bits.stdout);
  expect(output).toBe('tiny-4.5bpw.gguf');
  expect(to).toMatch(/^(Q|IQ)\d/);
  expect(totals.bitsPerWeight).toBeLessThanOrEqual(4.5);
  expect(fit).toMatchObject({ bytes: await size(output), bound: fit.error });
  expect(fit.rules[0]).toMatch(/^\^token_embd\\\.weight\$=\w+$/);
});

it('shows it without writing, and saves the rules to be edited and given back', async () => {
  const planned = await run([
    'plan',
    'tiny.gguf',
    '--target-bpw',
    '5',
    '--save-rules',
    'rules.txt',
    '--rule',
    'ffn_up=q8_0',
  ]);
  expect(planned.code).toBe(0);
  expect(planned.stdout).toMatch(/ffn_up\.weight +F16 → Q8_0[\s\S]*predicted error[\s\S]*wrote rules\.txt/);
  expect(await readdir(path('.'))).toEqual(['rules.txt', 'tiny.gguf']);
  const text = await readFile(path('rules.txt'), 'utf8');
  expect(text).toMatch(/^ffn_up=Q8_0\n(\^[^\s=]+\$=\w+\n)+$/);
  await writeFile(path('edited.txt'), `# mine\nattn_v=q6_k\n${text}`);
  const given = await run(['tiny.gguf', '--to', 'q4_k_m', '--rules', 'edited.txt', '--rule', 'attn_q=keep', '--quiet']);
  expect([given.code, given.stderr]).toEqual([0, '']);
  const lines = text
    .trim()
    .split('\n')
    .map((line) => line.split('=') as [string, string]);
  const rules = [
    { match: /attn_q/, keep: true as const },
    { match: /attn_v/, to: 'Q6_K' },
    ...lines.map(([source, to]) => ({ match: new RegExp(source), to })),
  ];
  const same = await (await quantizeModel(model, { to: 'Q4_K_M', rules })).bytes();
  expect(await readFile(path('tiny-Q4_K_M.gguf'))).toEqual(Buffer.from(same));
  const again = await run(['plan', 'tiny.gguf', '--target-bpw', '5', '--save-rules', 'rules.txt']);
  expect([again.code, again.stderr]).toEqual([
    1,
    expect.stringMatching(/rules.txt" exists already, nothing was written/),
  ]);
});

it('mixes 4 and 8 bits of ONNX', async () => {
  await writeFile(path('model.onnx'), onnx.product('MatMul', [256, 256], [3, 256], [3, 256])());
  const { totals: small } = JSON.parse((await run(['plan', 'model.onnx', '--to', 'q4', '--json'])).stdout);
  const { totals: large } = JSON.parse((await run(['plan', 'model.onnx', '--to', 'q8-blocks', '--json'])).stdout);
  for (const [bytes, to] of [
    [small.bytesAfter + 20, 'q4'],
    [large.bytesAfter + 20, 'q8-blocks'],
  ] as const) {
    const { stdout } = await run(['model.onnx', '--target-size', String(bytes), '--json', '--force']);
    const { fit, totals } = JSON.parse(stdout);
    expect(fit.rules[0]).toMatch(new RegExp(`=${to}$`));
    expect(totals.bytesAfter).toBeLessThanOrEqual(bytes);
  }
});

it.each([
  [['--target-size', '10kB'], /--target-size: expected at least \d+ bytes, got "10kB";/],
  [['--target-size', 'big'], /--target-size: expected a number of bytes or a string such as 5GB or 1.9GiB, got "big";/],
  [['--target-bpw', '-1'], /--target-bpw: expected a number of bits such as 4.5, got "-1"/],
  [['--target-bpw', '4', '--target-size', '1MB'], /--target-bpw: not together with --target-size/],
  [['--target-divergence', '0'], /--target-divergence: expected a number of nats such as 0.01, got "0"/],
  [['--target-divergence', '1', '--target-bpw', '4'], /--target-divergence: not together with --target-bpw/],
  [['--target-divergence', '1'], /--target-divergence: only with --moments: no divergence is known/],
  [['--to', 'copy', '--target-size', '1MB'], /--target-size: not together with --to copy/],
  [
    ['--to', 'Q4_0', '--save-rules', 'r'],
    /--save-rules: only with --target-size, --target-bpw, --target-divergence or --min-output; see/,
  ],
  [['--to', 'Q4_0,Q8_0', '--target-bpw', '5', '--save-rules', 'r'], /--to: expected 1 type with --save-rules, got 2/],
  [['--to', 'Q4_0', '--rules', 'bad.txt'], /--rules: line 2: expected REGEX=TYPE or REGEX=keep, got "blk"/],
  [['--to', 'Q4_0', '--rules', 'wrong.txt'], /--rule "blk=Q9": expected F32, .* for GGUF, got "Q9"/],
])('refuses %s', async (words, message) => {
  await writeFile(path('bad.txt'), 'a=Q8_0\nblk\n');
  await writeFile(path('wrong.txt'), 'blk=Q9\n');
  const { code, stderr } = await run(['tiny.gguf', ...words]);
  expect([code, stderr]).toEqual([2, expect.stringMatching(message)]);
});

it('makes GGUF of a folder if the output is called so', async () => {
  const folder = decoderWeights();
  const tensors = [...folder].map(
    ([name, { shape, values }]) => [name, { dtype: 'F32', shape, data: values }] as const,
  );
  await mkdir(path('folder'));
  await writeFile(path('folder', 'model.safetensors'), safetensors(Object.fromEntries(tensors)));
  await writeFile(path('folder', 'config.json'), JSON.stringify(decoderConfig('LlamaForCausalLM')));
  await writeFile(path('folder', 'tokenizer.json'), JSON.stringify(plainTokenizer()));
  for (const command of ['plan', 'quantize']) {
    const { stdout } = await run([command, 'folder', '--target-bpw', '10', '-o', 'out.gguf', '--json']);
    expect(JSON.parse(stdout)).toMatchObject({ output: 'out.gguf', to: expect.stringMatching(/^I?Q\d/) });
  }
  expect((await inspectModel(path('out.gguf'))).format).toBe('gguf');
});

it('takes a number of bytes', async () => {
  const { stdout } = await run(['plan', 'tiny.gguf', '--target-size', '33000', '--json']);
  const { fit, output } = JSON.parse(stdout);
  expect(fit.bytes).toBeLessThanOrEqual(33_000);
  expect(output).toBe('tiny-33000B.gguf');
});

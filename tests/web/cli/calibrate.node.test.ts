// Calibrations of ONNX models in processes that are killed.
import { existsSync } from 'node:fs';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import * as onnx from '../formats/onnx/encoder.js';
import { path, start, useFolder } from './support.js';

useFolder();

it('scalepoint calibrate --resume goes on after the process is killed, with the same bytes', async () => {
  const columns = 256;
  const model = onnx.product('MatMul', [columns, 5], ['n', columns], ['n', 5])();
  await writeFile(path('m.onnx'), model);
  const line = (i: number) => JSON.stringify({ x: [Array.from(onnx.weights(columns, i + 1, 2))] });
  await writeFile(path('samples.jsonl'), Array.from({ length: 400 }, (_, i) => line(i)).join('\n'));
  const command = (output: string, ...more: string[]) => {
    return ['calibrate', 'm.onnx', '--data', 'samples.jsonl', '--moments', '--ranges', '-q', '-o', output, ...more];
  };
  expect((await (await start(command('whole.gguf'))).outcome).stderr).toBe('');
  const state = path('.parts.gguf.resume');
  const { child, outcome } = await start(command('parts.gguf', '--resume'));
  while (!existsSync(state) && child.exitCode === null) await new Promise((resolve) => setTimeout(resolve, 1));
  child.kill('SIGKILL');
  await outcome;
  // On a fast machine, the run may have ended before.
  if (!existsSync(path('parts.gguf'))) {
    expect(existsSync(state)).toBe(true);
    const resumed = await (await start(command('parts.gguf', '--resume', '--force'))).outcome;
    expect([resumed.code, resumed.stderr]).toEqual([0, '']);
  }
  for (const end of ['', '.moments.safetensors', '.ranges.safetensors']) {
    expect((await readFile(path(`parts.gguf${end}`))).equals(await readFile(path(`whole.gguf${end}`))), end).toBe(true);
  }
  expect((await readdir(path())).filter((name) => name.includes('resume'))).toEqual([]);
});

it('scalepoint calibrate --ranges prints a command that works, also for a model without products', async () => {
  const lstm = onnx.model({
    nodes: [{ op: 'LSTM', in: ['x', 'w', 'r'], out: ['y'], attributes: { hidden_size: 32 } }],
    initializers: [onnx.floatTensor('w', [1, 128, 40], 1, 0.3), onnx.floatTensor('r', [1, 128, 32], 2, 0.3)],
    inputs: [['x', [5, 1, 40]]],
    outputs: [['y', [5, 1, 1, 32]]],
  });
  const product = onnx.product('MatMul', [40, 64], [5, 1, 40], [5, 1, 64])();
  const x = Array.from({ length: 5 }, (_, i) => [Array.from(onnx.weights(40, i + 1, 2))]);
  await writeFile(path('samples.jsonl'), JSON.stringify({ x }));
  for (const [name, model] of [
    ['lstm', lstm],
    ['product', product],
  ] as const) {
    await writeFile(path(`${name}.onnx`), model);
    const args = ['calibrate', `${name}.onnx`, '--data', 'samples.jsonl', '--ranges', '-o', `${name}.gguf`];
    const { stdout, stderr } = await (await start(args)).outcome;
    expect(stderr).toBe('');
    const [, line] = /: scalepoint (.* --ranges .*)\n/.exec(stdout) ?? [];
    if (name === 'lstm') expect([line, stdout]).toEqual([undefined, expect.stringContaining('has no use for them')]);
    else expect((await (await start(line?.split(' ') ?? [])).outcome).code).toBe(0);
  }
});

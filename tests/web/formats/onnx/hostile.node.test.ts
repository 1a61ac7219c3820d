// Models whose files lead to others, and that state shapes of any size.
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readFloats } from 'scalepoint/model';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { feedsFrom } from '../../../../web/src/formats/onnx/run/inputs.js';
import * as onnx from './encoder.js';

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-onnx-'));
});
afterAll(() => rm(folder, { recursive: true }));

const entry = (key: string, value: string) => onnx.bytes(13, [...onnx.text(1, key), ...onnx.text(2, value)]);
const weights = onnx.weights(32 * 32);
const model = onnx.model({
  nodes: [{ op: 'MatMul', in: ['x', 'w'], out: ['y'] }],
  initializers: [
    onnx.tensor({ name: 'w', dims: [32, 32], more: [...entry('location', 'model.onnx_data'), ...onnx.int(14, 1)] }),
  ],
  inputs: [['x', [1, 32]]],
  outputs: [['y', [1, 32]]],
});

it('may be in the cache of the hub, whose files are links to blobs of the same repository alone', async () => {
  const repository = join(folder, 'models--someone--model');
  const snapshot = join(repository, 'snapshots', 'c0ffee', 'onnx');
  const other = join(folder, 'models--another--model', 'blobs');
  for (const path of [snapshot, join(repository, 'blobs', 'inside'), other]) await mkdir(path, { recursive: true });
  const data = new Uint8Array(weights.buffer);
  await writeFile(join(repository, 'blobs', 'aa'), model);
  await writeFile(join(repository, 'blobs', 'bb'), data);
  await symlink('../../../blobs/aa', join(snapshot, 'model.onnx'));
  const link = join(snapshot, 'model.onnx_data');
  await symlink('../../../blobs/bb', link);
  expect((await readFloats(join(snapshot, 'model.onnx'), 'w')).data).toEqual(weights);
  // Files of other repositories, and of other places in this one.
  for (const target of [join(other, 'bb'), join(repository, 'bb'), join(repository, 'blobs', 'inside', 'bb')]) {
    await writeFile(target, data);
    await rm(link);
    await symlink(target, link);
    await expect(readFloats(join(snapshot, 'model.onnx'), 'w')).rejects.toMatchObject({
      code: 'BAD_FILE',
      message: expect.stringMatching(/is a link to another place/),
    });
  }
});

it('gets no made-up inputs of more values than memory holds', () => {
  class Tensor {}
  const given = {
    arrays: new Map(),
    pathOf: (name: string) => `inputs.${name}`,
    dimensions: {},
    seed: 1,
    isStrict: false,
  };
  const feeds = (...shapes: (readonly number[])[]) =>
    feedsFrom(
      { Tensor } as never,
      shapes.map((shape, i) => ({ name: `x${i}`, isTensor: true, type: 'float32', shape })),
      { limits: new Map(), channels: new Map() } as never,
      given as never,
    );
  expect(Object.keys(feeds([2, 3], [4]).values)).toEqual(['x0', 'x1']);
  for (const shape of [
    [2 ** 26 + 1],
    [2 ** 30, 2 ** 30, 2 ** 30],
    [2 ** 31 - 1, 2 ** 31 - 1, 2 ** 31 - 1, 2 ** 31 - 1, ...Array.from({ length: 40 }, () => 2 ** 30)],
  ]) {
    expect(() => feeds([2], shape)).toThrow(/^inputs\.x1: .*takes more than the 67108864 values that are made up/);
  }
});

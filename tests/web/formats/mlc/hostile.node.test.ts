// Indices of MLC that are damaged or lie. Every one is refused with a typed error, before anything large is allocated.
import { createHash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspectModel, planModel, readFloats, ScalepointError, verifyModel } from 'scalepoint/model';
import { beforeAll, expect, it } from 'vitest';
import { rejectionOf } from '../../support/models.js';

let place: string;
beforeAll(async () => {
  place = await mkdtemp(join(tmpdir(), 'mlc-'));
  await writeFile(join(place, 'params_shard_0.bin'), shard);
  return () => rm(place, { recursive: true });
});

type Json = Record<string, unknown>;

/** Codes 0 to 15 of four groups, their scales, and a norm. */
const shard = new Uint8Array(64 + 8 + 8);
for (let i = 0; i < 64; i++) shard[i] = 16 * ((2 * i + 1) % 16) + ((2 * i) % 16);
new Uint16Array(shard.buffer, 64, 4).set([0x3c00, 0x3800, 0xbc00, 0]);
new Uint16Array(shard.buffer, 72, 4).set([0x3f80, 0x4000, 0, 0]);

const md5Of = (bytes: Uint8Array) => createHash('md5').update(bytes).digest('hex');

const records: readonly Json[] = [
  { name: 'a.q_weight', shape: [2, 8], dtype: 'uint32', format: 'f32-to-bf16', nbytes: 64, byteOffset: 0 },
  { name: 'a.q_scale', shape: [2, 2], dtype: 'float16', format: 'f32-to-bf16', nbytes: 8, byteOffset: 64 },
  { name: 'norm.weight', shape: [4], dtype: 'float32', format: 'f32-to-bf16', nbytes: 8, byteOffset: 72 },
];

const sound: Json = {
  metadata: { ParamSize: 3, ParamBytes: 88, BitsPerParam: 5.4 },
  records: [{ dataPath: 'params_shard_0.bin', format: 'raw-shard', nbytes: 80, records, md5sum: md5Of(shard) }],
};

let written = 0;

async function index(content: unknown): Promise<string> {
  const path = join(place, `index-${written++}.json`);
  await writeFile(path, typeof content === 'string' ? content : JSON.stringify(content));
  return path;
}

/** The index with other values in its shard, or in one of its arrays. */
const shardWith = (more: Json): Json => ({ ...sound, records: [{ ...(sound.records as Json[])[0], ...more }] });
const arrayWith = (i: number, more: Json): Json =>
  shardWith({ records: records.map((one, at) => (at === i ? { ...one, ...more } : one)) });

it('reads a sound one: codes from -7 to 8 times their scales, and float32 as bfloat16', async () => {
  const path = await index(sound);
  const { tensors, metadata, format } = await inspectModel(path);
  expect(format).toBe('mlc');
  expect(metadata.ParamBytes).toBe(88);
  expect(tensors.map(({ name, dtype }) => `${name} ${dtype}`)).toEqual([
    'a.q_weight U32',
    'a.q_scale F16',
    'norm.weight BF16',
  ]);
  const { data, shape } = await readFloats(path, 'a.weight');
  expect(shape).toEqual([2, 64]);
  const scales = [1, 0.5, -1, 0];
  // Products with a scale of 0 may be -0.
  expect([...data].map((x) => x + 0)).toEqual(
    Array.from({ length: 128 }, (_, i) => ((i % 16) - 7) * scales[i >> 5]! + 0),
  );
  expect([...(await readFloats(path, 'norm.weight')).data]).toEqual([1, 2, 0, 0]);
  expect((await verifyModel(path)).problems).toEqual([]);
});

it('is read from a list of files, the index anywhere among them', async () => {
  const text = JSON.stringify(sound);
  const files = [
    new File([shard], 'params_shard_0.bin'),
    new File(['{ "model_type": "llama" }'], 'mlc-chat-config.json'),
    new File([text], 'ndarray-cache.json'),
    new File([text], 'tensor-cache.json'),
  ];
  for (const list of [files, files.toReversed(), files.slice(0, 3)]) {
    const { format, tensors } = await inspectModel(list);
    expect([format, tensors.length]).toEqual(['mlc', 3]);
    expect((await verifyModel(list)).problems).toEqual([]);
    expect((await readFloats(list, 'a.weight')).shape).toEqual([2, 64]);
  }
  // A shard that is not given is named.
  await expect(inspectModel(files.slice(1))).rejects.toThrow(/params_shard_0|tensor-cache.json with its files/);
});

it('compares files with the checksums of the index', async () => {
  const changed = shard.slice();
  changed[3]! ^= 1;
  const list = [new File([JSON.stringify(sound)], 'tensor-cache.json'), new File([changed], 'params_shard_0.bin')];
  const { problems } = await verifyModel(list);
  const sums = { found: md5Of(changed), stated: md5Of(shard) };
  expect(problems).toEqual([
    {
      severity: 'problem',
      kind: 'checksum',
      file: 'params_shard_0.bin',
      text: `its MD5 is ${sums.found}, and the index says ${sums.stated}`,
      ...sums,
    },
  ]);
  // Older indices have none.
  expect((await verifyModel(await index(shardWith({ md5sum: undefined })))).problems).toEqual([]);
});

it('is no source of other results', async () => {
  for (const to of ['mlc-q4f16_1', 'mlc-q4f32_1'] as const)
    expect(await rejectionOf(planModel(await index(sound), { to }))).toMatchObject({ code: 'UNKNOWN_FORMAT' });
});

it('finds scales that are no numbers', async () => {
  const bad = shard.slice();
  new Uint16Array(bad.buffer, 64, 1).set([0x7c00]);
  await writeFile(join(place, 'bad.bin'), bad);
  const { problems } = await verifyModel(await index(shardWith({ dataPath: 'bad.bin', md5sum: md5Of(bad) })));
  expect(problems).toMatchObject([{ kind: 'notFinite', tensor: 'a.q_scale' }]);
});

const text = JSON.stringify(sound);
const hostile: readonly (readonly [what: string, content: unknown])[] = [
  ['no end', text.slice(0, -1)],
  ['no records', { metadata: sound.metadata, files: [] }],
  ['records that are an object', { ...sound, records: {} }],
  ['a shard that is a number', { ...sound, records: [1] }],
  ['a shard without a name', shardWith({ dataPath: undefined })],
  ['a name in another folder', shardWith({ dataPath: '../params_shard_0.bin' })],
  ['an absolute name', shardWith({ dataPath: '/etc/passwd' })],
  ['a name with a drive', shardWith({ dataPath: 'C:params_shard_0.bin' })],
  ['a name with a control character', shardWith({ dataPath: 'params\u0000.bin' })],
  ['an empty name', shardWith({ dataPath: '' })],
  ['a shard that is there twice', { ...sound, records: [...(sound.records as Json[]), ...(sound.records as Json[])] }],
  ['a missing shard', shardWith({ dataPath: 'params_shard_1.bin' })],
  ['a shard of another size', shardWith({ nbytes: 81 })],
  ['a size that is a text', shardWith({ nbytes: '80' })],
  ['a negative size', shardWith({ nbytes: -80 })],
  ['arrays that are no list', shardWith({ records: { length: 3 } })],
  ['an array that is null', shardWith({ records: [null] })],
  ['an array without a name', arrayWith(0, { name: 7 })],
  ['two arrays of one name', arrayWith(1, { name: 'a.q_weight' })],
  ['a negative dimension', arrayWith(0, { shape: [-2, -8] })],
  ['a dimension that is no number', arrayWith(0, { shape: ['2', 8] })],
  ['many dimensions', arrayWith(0, { shape: [1, 1, 1, 1, 1, 1, 1, 2, 8] })],
  ['dimensions whose product overflows', arrayWith(0, { shape: [2 ** 40, 2 ** 40] })],
  ['more elements than bytes', arrayWith(0, { shape: [2, 9] })],
  ['an array beyond the end', arrayWith(2, { byteOffset: 73 })],
  ['a huge offset', arrayWith(2, { byteOffset: Number.MAX_SAFE_INTEGER })],
  ['an offset between numbers', arrayWith(2, { byteOffset: 0.5 })],
  ['arrays that overlap', arrayWith(1, { byteOffset: 60 })],
  ['an unknown type', arrayWith(0, { dtype: 'float8' })],
  ['a type of another object', arrayWith(0, { dtype: 'constructor' })],
  ['an unknown encoding', arrayWith(0, { format: 'zip' })],
];

it.each(hostile)('refuses %s', async (_what, content) => {
  const error = await rejectionOf(inspectModel(await index(content)));
  expect(error).toBeInstanceOf(ScalepointError);
  expect(['BAD_FILE', 'UNKNOWN_FORMAT', 'IO', 'NOT_FOUND']).toContain((error as ScalepointError).code);
});

it('refuses every beginning of an index', async () => {
  for (let length = 0; length < text.length; length += 7) {
    const error = await rejectionOf(inspectModel(await index(text.slice(0, length))));
    expect(error, `${length}`).toBeInstanceOf(ScalepointError);
  }
});

it.each([
  ['codes without scales', arrayWith(1, { name: 'b.q_scale' })],
  ['scales for other groups', arrayWith(1, { shape: [4, 1] })],
  ['scales of another type', arrayWith(1, { dtype: 'uint32', shape: [2, 1] })],
])('leaves %s as they are', async (_what, content) => {
  const path = await index(content);
  expect(await rejectionOf(readFloats(path, 'a.weight'))).toMatchObject({ code: 'NOT_FOUND' });
  expect((await inspectModel(path)).tensors).toHaveLength(3);
});

// Files of torch.save become safetensors, bit for bit: archives and legacy files, types, views, checkpoints, models in several files.
import { mkdtempSync } from 'node:fs';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deflateRawSync } from 'node:zlib';
import { inspectModel, quantizeModel, verifyModel } from 'scalepoint/model';
import { afterAll, describe, expect, it } from 'vitest';
import { safetensors } from '../../support/models.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../../support/tiny-huggingface.js';
import {
  archive,
  call,
  dict,
  global,
  legacy,
  ordered,
  type Py,
  type Storage,
  tensor,
  tensorsOf,
  tuple,
} from '../../support/torch-file.js';

const folder = mkdtempSync(join(tmpdir(), 'scalepoint-pytorch-'));
afterAll(() => rm(folder, { recursive: true }));

const bytesOf = (array: ArrayBufferView) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength).slice();
const noise = (length: number, seed = 1) =>
  Uint8Array.from({ length }, (_, i) => (i * 73 * seed + (i >> 3) * 29) & 255);

let keys = 0;
const storageOf = (type: string, bytes: Uint8Array, elementBytes: number): Storage => ({
  type,
  key: String(keys++),
  count: bytes.length / elementBytes,
  bytes,
});
const floats = (length: number, seed = 1): Storage =>
  storageOf('FloatStorage', bytesOf(Float32Array.from({ length }, (_, i) => Math.sin(i * seed + 1))), 4);

const copied = async (file: Uint8Array<ArrayBuffer>) => {
  const result = await quantizeModel(file, { to: 'copy' });
  return { ...result, tensors: tensorsOf(await result.bytes()) };
};

/** Elements of a storage at strides, one after the other. */
function gathered({ bytes }: Storage, shape: readonly number[], strides: readonly number[], offset: number, size = 4) {
  const out: number[] = [];
  const go = (axis: number, at: number) => {
    if (axis === shape.length) out.push(...bytes.subarray(at * size, (at + 1) * size));
    else for (let i = 0; i < (shape[axis] as number); i++) go(axis + 1, at + i * (strides[axis] as number));
  };
  go(0, offset);
  return Uint8Array.from(out);
}

const forms: Record<string, (value: Py, storages: readonly Storage[]) => Uint8Array<ArrayBuffer>> = {
  archive,
  'an archive with another folder': (value, storages) => archive(value, storages, { folder: 'my model' }),
  'an archive without a byte order': (value, storages) => archive(value, storages, { order: undefined }),
  'a packed archive': (value, storages) => archive(value, storages, { deflate: deflateRawSync }),
  legacy: (value, storages) => legacy(value, storages),
};

describe.each(Object.entries(forms))('a file of PyTorch, %s', (form, write) => {
  const own = (storage: Storage): Storage => ({ ...storage, isLegacy: form === 'legacy' });

  it('has every type', async () => {
    const types: [string, number, string][] = [
      ['DoubleStorage', 8, 'F64'],
      ['FloatStorage', 4, 'F32'],
      ['HalfStorage', 2, 'F16'],
      ['BFloat16Storage', 2, 'BF16'],
      ['LongStorage', 8, 'I64'],
      ['IntStorage', 4, 'I32'],
      ['ShortStorage', 2, 'I16'],
      ['CharStorage', 1, 'I8'],
      ['ByteStorage', 1, 'U8'],
      ['BoolStorage', 1, 'BOOL'],
      ['ComplexFloatStorage', 8, 'C64'],
    ];
    const untyped: [string, number, string][] = [
      ['float8_e4m3fn', 1, 'F8_E4M3'],
      ['float8_e5m2', 1, 'F8_E5M2'],
      ['float8_e4m3fnuz', 1, 'F8_E4M3FNUZ'],
      ['float8_e5m2fnuz', 1, 'F8_E5M2FNUZ'],
      ['float8_e8m0fnu', 1, 'F8_E8M0'],
      ['uint16', 2, 'U16'],
      ['uint32', 4, 'U32'],
      ['uint64', 8, 'U64'],
    ];
    const storages: Storage[] = [];
    const entries: Record<string, Py> = {};
    const expected: Record<string, object> = {};
    for (const [i, [type, size, dtype]] of [...types, ...untyped].entries()) {
      const isTyped = type.endsWith('Storage');
      const bytes = dtype === 'BOOL' ? Uint8Array.from({ length: 12 }, (_, k) => k & 1) : noise(12 * size, i + 3);
      const storage = own(storageOf(isTyped ? type : 'UntypedStorage', bytes, isTyped ? size : 1));
      storages.push(storage);
      entries[`t.${type}`] = tensor(storage, [3, 4], isTyped ? {} : { dtype: type });
      expected[`t.${type}`] = { dtype, shape: [3, 4], bytes };
    }
    expect((await copied(write(ordered(entries), storages))).tensors).toEqual(expected);
  });

  it('has views: shared, permuted, cut, repeated, scalars and empty ones', async () => {
    const storage = own(floats(60));
    const views: Record<string, [number[], number[], number]> = {
      whole: [[6, 10], [10, 1], 0],
      turned: [[10, 6], [1, 10], 0],
      permuted: [[5, 3, 4], [1, 20, 5], 0],
      rows: [[2, 10], [10, 1], 20],
      columns: [[6, 3], [10, 1], 4],
      steps: [[6, 5], [10, 2], 1],
      repeated: [[4, 7], [0, 1], 3],
      scalar: [[], [], 59],
      one: [[1, 5], [99, 1], 55],
      empty: [[0, 7], [7, 1], 60],
    };
    const entries = Object.fromEntries(
      Object.entries(views).map(([name, [shape, strides, offset]]) => [
        name,
        tensor(storage, shape, { strides, offset }),
      ]),
    );
    const { tensors, report } = await copied(write(dict(entries), [storage]));
    expect(tensors).toEqual(
      Object.fromEntries(
        Object.entries(views).map(([name, [shape, strides, offset]]) => [
          name,
          {
            dtype: 'F32',
            shape,
            bytes: shape.includes(0) ? new Uint8Array(0) : gathered(storage, shape, strides, offset),
          },
        ]),
      ),
    );
    expect(report.notes.filter(({ kind }) => kind === 'sharedBytes')).toEqual([]);
  });

  it('has parameters, and other values that are left out', async () => {
    const [a, b, c] = [own(floats(6)), own(floats(4, 2)), own(floats(2, 3))];
    const hooks = call('collections', 'OrderedDict', []);
    const scalar = call('numpy.core.multiarray', 'scalar', [
      call('numpy', 'dtype', ['f8', false, true], tuple(3, '<', null, null, null, -1, -1, 0)),
      call('_codecs', 'encode', ['\u0000ÿ', 'latin1']),
    ]);
    const state = dict({
      a: call('torch._utils', '_rebuild_parameter', [tensor(a, [2, 3]), true, hooks]),
      b: call('torch._utils', '_rebuild_parameter_with_state', [tensor(b, [4]), true, hooks, dict({ x: 1 })]),
      c: call('torch._tensor', '_rebuild_from_type_v2', [
        global('torch._utils', '_rebuild_parameter'),
        global('torch.nn.parameter', 'Parameter'),
        tuple(tensor(c, [2]), true, hooks),
        null,
      ]),
      steps: 12345678901234567890n,
      loss: scalar,
      shape: call('torch', 'Size', [tuple(1, 2)]),
      rate: { float: 0.1 },
      names: ['x', tuple(), true],
    });
    const { tensors, report } = await copied(write(state, [a, b, c]));
    expect(Object.keys(tensors)).toEqual(expect.arrayContaining(['a', 'b', 'c']));
    expect(tensors.b).toEqual({ dtype: 'F32', shape: [4], bytes: b.bytes });
    expect(report.notes).toContainEqual(
      expect.objectContaining({ kind: 'leftOut', keys: ['steps', 'loss', 'shape', 'rate', 'names'] }),
    );
  });

  /** The state of an optimizer: tensors of each parameter, by its number. */
  const optimizer = (tensors: Py) => {
    const numbered: Py = new Map<Py, Py>([
      [0, tensors],
      [1, tensors],
    ]);
    return dict({ state: numbered, param_groups: [dict({ lr: { float: 0.1 }, params: [0, 1] })] });
  };

  it.each<[string, (state: Py, other: Py) => Py, string[]]>([
    [
      'state_dict',
      (state, other) => dict({ epoch: 3, optimizer: dict({ state: other }), state_dict: state }),
      ['epoch', 'optimizer'],
    ],
    ['model', (state, other) => ordered({ model: state, ema: other }), ['ema']],
    ['module', (state, other) => dict({ module: state, optimizer: other }), ['optimizer']],
    ['model.state_dict', (state) => dict({ model: dict({ state_dict: state }) }), []],
    ['something', (state) => dict({ something: state, n: 1 }), ['n']],
    // Adam's moments of two parameters, as the tutorial of PyTorch saves them.
    [
      'model_state_dict',
      (state, other) =>
        dict({ epoch: 3, model_state_dict: state, optimizer_state_dict: optimizer(other), loss: { float: 0.5 } }),
      ['epoch', 'optimizer_state_dict', 'loss'],
    ],
    ['state_dict', (state, other) => dict({ state_dict: state, optimizer: optimizer(other) }), ['optimizer']],
    // Names in place of numbers, as FSDP has them.
    [
      'network',
      (state, other) =>
        dict({ network: state, optim: dict({ state: dict({ 'a.weight': other, 'b.weight': other }) }) }),
      ['optim'],
    ],
  ])('has its tensors in %s', async (path, around, keys) => {
    const [a, b] = [own(floats(6)), own(floats(3, 5))];
    const value = around(ordered({ 'x.weight': tensor(a, [2, 3]) }), dict({ y: tensor(b, [3]) }));
    const used = keys.some((key) => /^(optim|ema)/.test(key));
    const { tensors, report } = await copied(write(value, used ? [a, b] : [a]));
    expect(tensors).toEqual({ 'x.weight': { dtype: 'F32', shape: [2, 3], bytes: a.bytes } });
    const notes = report.notes.filter(({ kind }) => kind === 'leftOut');
    expect(notes.map((note) => note.keys)).toEqual(keys.length > 0 ? [keys] : []);
    if (notes[0] !== undefined) expect(notes[0].text).toContain(`"${path}"`);
  });

  it('says which tensors share their bytes', async () => {
    const storage = own(floats(6));
    const tied = { 'embed.weight': tensor(storage, [2, 3]), 'head.weight': tensor(storage, [2, 3]) };
    const { tensors, report } = await copied(write(dict(tied), [storage]));
    expect(tensors['head.weight']).toEqual(tensors['embed.weight']);
    expect(report.notes).toContainEqual(
      expect.objectContaining({ kind: 'sharedBytes', tensors: ['embed.weight', 'head.weight'] }),
    );
  });

  it('is quantized as the same tensors in safetensors are', async () => {
    const [a, b] = [own(floats(64 * 96)), own(floats(96 * 32, 7))];
    const model = { 'l.0.weight': tensor(a, [64, 96]), 'l.1.weight': tensor(b, [32, 96], { strides: [1, 32] }) };
    const file = write(dict(model), [a, b]);
    const turned = gathered(b, [32, 96], [1, 32], 0);
    const same = safetensors({
      'l.0.weight': { dtype: 'F32', shape: [64, 96], data: a.bytes },
      'l.1.weight': { dtype: 'F32', shape: [32, 96], data: turned },
    });
    for (const workers of [0, 2]) {
      const [ours, theirs] = await Promise.all(
        [file, same].map(async (one) =>
          (
            await quantizeModel(one, { to: 'int4', granularity: { kind: 'per-group', groupSize: 32 }, workers })
          ).bytes(),
        ),
      );
      expect(tensorsOf(ours as Uint8Array)).toEqual(tensorsOf(theirs as Uint8Array));
    }
    expect((await verifyModel(file)).problems).toEqual([]);
  });
});

describe('a file of PyTorch', () => {
  it('has views of storages, in legacy files', async () => {
    const storage: Storage = { ...floats(10), isLegacy: true };
    const view = { ...storage, view: 4 };
    const file = legacy(dict({ a: tensor(storage, [10]), b: tensor(view, [2, 2], { offset: 1 }) }), [storage]);
    expect((await copied(file)).tensors.b?.bytes).toEqual(storage.bytes.slice(20, 36));
  });

  it('may have the highest byte first', async () => {
    const storage = storageOf('ShortStorage', noise(24), 2);
    const complex = storageOf('ComplexFloatStorage', noise(24, 5), 8);
    const swapped = (bytes: Uint8Array, unit: number) =>
      Uint8Array.from(bytes, (_, i) => bytes[i - (i % unit) + unit - 1 - (i % unit)] as number);
    const value = (isLegacy: boolean) =>
      dict({ a: tensor({ ...storage, isLegacy }, [3, 4]), c: tensor({ ...complex, isLegacy }, [3]) });
    for (const file of [
      archive(value(false), [storage, complex], { order: 'big' }),
      legacy(value(true), [storage, complex], false),
    ]) {
      const { tensors } = await copied(file);
      expect(tensors.a?.bytes).toEqual(swapped(storage.bytes, 2));
      expect(tensors.c?.bytes).toEqual(swapped(complex.bytes, 4));
    }
  });

  it('may be packed, in entries that are read at several places at once', async () => {
    // More than a window of packed bytes, and more tensors than readers.
    const large = storageOf('FloatStorage', bytesOf(new Float32Array(300_000).map((_, i) => Math.sin(i))), 4);
    const small = Array.from({ length: 6 }, (_, i) => floats(4096, i + 1));
    const value = dict({
      large: tensor(large, [75, 4000]),
      turned: tensor(large, [4000, 75], { strides: [1, 4000] }),
      ...Object.fromEntries(small.map((storage, i) => [`small${i}`, tensor(storage, [64, 64])])),
    });
    const options = { to: 'bfloat16', workers: 2 } as const;
    const [plain, packed] = [undefined, deflateRawSync].map((deflate) =>
      archive(value, [large, ...small], deflate === undefined ? {} : { deflate }),
    ) as [Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>];
    const [a, b] = [await quantizeModel(plain, options), await quantizeModel(packed, options)];
    expect(Buffer.from(await b.bytes()).equals(Buffer.from(await a.bytes()))).toBe(true);
  });

  it('may be one tensor, named after the file', async () => {
    const storage = floats(6);
    const path = join(folder, 'embedding.pt');
    await writeFile(path, archive(tensor(storage, [6]), [storage]));
    expect((await inspectModel(path)).tensors).toMatchObject([{ name: 'embedding', dtype: 'F32', shape: [6] }]);
    expect(await inspectModel(archive(tensor(storage, [6]), [storage]))).toMatchObject({
      format: 'pytorch',
      metadata: { format: 'pt' },
      tensors: [{ name: 'tensor' }],
    });
  });

  it('may be a model in several files', async () => {
    const [a, b, c] = [floats(12), floats(6, 3), floats(8, 4)];
    const place = join(folder, 'shards');
    await mkdir(place);
    const files: Record<string, Uint8Array> = {
      'pytorch_model-00001-of-00002.bin': archive(
        ordered({ a: tensor(a, [3, 4], { strides: [1, 3] }), b: tensor(b, [6]) }),
        [a, b],
      ),
      'pytorch_model-00002-of-00002.bin': legacy(ordered({ c: tensor({ ...c, isLegacy: true }, [2, 4]) }), [c]),
      'pytorch_model.bin.index.json': new TextEncoder().encode(
        JSON.stringify({
          metadata: { total_size: 104 },
          weight_map: {
            a: 'pytorch_model-00001-of-00002.bin',
            b: 'pytorch_model-00001-of-00002.bin',
            c: 'pytorch_model-00002-of-00002.bin',
          },
        }),
      ),
      'training_args.bin': new Uint8Array(10),
    };
    for (const [name, bytes] of Object.entries(files)) await writeFile(join(place, name), bytes);
    const given = Object.entries(files)
      .filter(([name]) => name.startsWith('pytorch'))
      .map(([name, bytes]) => new File([bytes as Uint8Array<ArrayBuffer>], name));
    for (const input of [place, join(place, 'pytorch_model.bin.index.json'), given]) {
      const result = await quantizeModel(input, { to: 'copy' });
      expect(tensorsOf(await result.bytes())).toEqual({
        a: { dtype: 'F32', shape: [3, 4], bytes: gathered(a, [3, 4], [1, 3], 0) },
        b: { dtype: 'F32', shape: [6], bytes: b.bytes },
        c: { dtype: 'F32', shape: [2, 4], bytes: c.bytes },
      });
    }
    // The files of safetensors come first.
    await writeFile(
      join(place, 'model.safetensors'),
      safetensors({ z: { dtype: 'F32', shape: [1], data: new Uint8Array(4) } }),
    );
    expect((await inspectModel(place)).tensors.map(({ name }) => name)).toEqual(['z']);
  });

  it('becomes GGUF as the same folder with safetensors does', async () => {
    const weights = decoderWeights({});
    const stored = [...weights].map(([name, { shape, values }]) => ({
      name,
      shape,
      storage: storageOf('FloatStorage', bytesOf(values), 4),
    }));
    const bin = archive(
      ordered(Object.fromEntries(stored.map(({ name, shape, storage }) => [name, tensor(storage, shape)]))),
      stored.map(({ storage }) => storage),
    );
    const same = safetensors(
      Object.fromEntries(
        stored.map(({ name, shape, storage }) => [name, { dtype: 'F32', shape, data: storage.bytes }]),
      ),
    );
    const results: Uint8Array[] = [];
    for (const [name, bytes] of [
      ['pytorch_model.bin', bin],
      ['model.safetensors', same],
    ] as const) {
      const place = join(folder, name === 'model.safetensors' ? 'st' : 'pt', 'tiny');
      await mkdir(place, { recursive: true });
      await writeFile(join(place, 'config.json'), JSON.stringify(decoderConfig('LlamaForCausalLM')));
      await writeFile(join(place, 'tokenizer.json'), JSON.stringify(plainTokenizer()));
      await writeFile(join(place, name), bytes);
      const output = join(place, 'out.gguf');
      await quantizeModel(place, { to: 'Q4_0', output });
      results.push(await readFile(output));
    }
    expect(Buffer.compare(results[0] as Uint8Array, results[1] as Uint8Array)).toBe(0);
  });
});

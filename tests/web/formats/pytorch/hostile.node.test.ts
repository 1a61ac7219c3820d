// Pickles and archives that are made to execute code, to deceive scanners, or to fill the memory. Each is an error that names the place.
import { inspectModel, readFloats, ScalepointError } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { mostPickleBytes, pickleIn } from '../../../../web/src/formats/pytorch/pickle.js';
import { expectProportional } from '../../support/growth.js';
import { zip } from '../../support/npz.js';
import {
  archive,
  call,
  dict,
  global,
  legacy,
  opcodes,
  type Py,
  pickle,
  type Storage,
  tensor,
  tuple,
  uint32,
} from '../../support/torch-file.js';

const text = (value: string) => [...new TextEncoder().encode(value)];
const storage: Storage = { type: 'FloatStorage', key: '0', count: 6, bytes: new Uint8Array(24) };
const good = dict({ w: tensor(storage, [2, 3]) });

const rejection = async (file: Uint8Array<ArrayBuffer>): Promise<ScalepointError> => {
  const error = await inspectModel(file).then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(ScalepointError);
  return error as ScalepointError;
};

/** A whole pickle as the value of an archive, and behind a tensor in it. */
const raw = (...bytes: (number | readonly number[] | Uint8Array | string)[]): Py => {
  const parts = bytes.map((one) => (typeof one === 'number' ? [one] : typeof one === 'string' ? text(one) : one));
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return { raw: all };
};

/** Opcodes, many times. */
const repeated = (opcodes: readonly number[], count: number) => {
  const all = new Uint8Array(opcodes.length * count);
  for (let at = 0; at < all.length; at += opcodes.length) all.set(opcodes, at);
  return all;
};

const short = (value: string) => [0x8c, value.length, ...text(value)];
/** Protocol 4: a name of two texts on the stack. */
const stackGlobal = (module: string, name: string) => [...short(module), ...short(name), 0x93];

const reduced = (module: string, name: string, ...args: Py[]) => opcodes(call(module, name, args));

/** Tricks that fickling and picklescan published, and others, with what the error says. */
const tricks: Record<string, [Py, RegExp]> = {
  'GLOBAL of os.system': [call('os', 'system', ['id']), /asks for "os\.system", which is not read/],
  'GLOBAL of posix.system': [call('posix', 'system', ['id']), /asks for "posix\.system"/],
  'GLOBAL of builtins.eval': [call('builtins', 'eval', ['1']), /asks for "builtins\.eval"/],
  'GLOBAL of __builtin__.exec': [call('__builtin__', 'exec', ['1']), /asks for "__builtin__\.exec"/],
  'a name with dots in its second half': [
    raw(stackGlobal('torch', 'nn.os.system')),
    /asks for "torch\.nn\.os\.system"/,
  ],
  'a module with the dots of a name of the list': [
    call('torch._utils', '_rebuild_tensor_v2.__globals__', []),
    /_rebuild_tensor_v2\.__globals__/,
  ],
  'STACK_GLOBAL with texts from the memo': [
    raw(short('os'), [0x94], short('system'), [0x94, 0x30, 0x30, 0x68, 0, 0x68, 1, 0x93]),
    /asks for "os\.system"/,
  ],
  'STACK_GLOBAL with bytes': [raw([0x43, 2], 'os', [0x43, 6], 'system', 0x93), /not a text/],
  'torch.load within a pickle': [
    call('torch.storage', '_load_from_bytes', [pickle(null)]),
    /asks for "torch\.storage\._load_from_bytes"/,
  ],
  'pickle.loads within a pickle': [call('pickle', 'loads', [pickle(null)]), /asks for "pickle\.loads"/],
  'torch.hub.load': [call('torch.hub', 'load', ['a/b', 'c']), /asks for "torch\.hub\.load"/],
  'torch.jit and runpy': [call('runpy', '_run_code', ['1']), /asks for "runpy\._run_code"/],
  'numpy.testing._private.utils.runstring': [
    call('numpy.testing._private.utils', 'runstring', ['1', dict({})]),
    /asks for "numpy\.testing\._private\.utils\.runstring"/,
  ],
  'getattr of a module': [call('builtins', 'getattr', [global('os', 'path'), 'x']), /asks for "builtins\.getattr"/],
  'operator.attrgetter': [call('operator', 'attrgetter', ['system']), /asks for "operator\.attrgetter"/],
  'functools.partial': [call('functools', 'partial', [null]), /asks for "functools\.partial"/],
  'a class with __reduce__ of a whole module': [
    call('torch.nn.modules.linear', 'Linear', []),
    /asks for "torch\.nn\.modules\.linear\.Linear".*save a state_dict/,
  ],
  'a result that is called': [raw(reduced('argparse', 'Namespace'), 0x29, 0x52), /calls something that is not a name/],
  'a text that is called': [raw(short('os.system'), 0x29, 0x52), /calls something that is not a name/],
  'a type of elements that is called': [call('torch', 'float32', []), /it calls torch\.float32/],
  'a storage class that is called': [call('torch', 'FloatStorage', [3]), /it calls torch\.FloatStorage/],
  'BUILD with __setstate__ of a class': [
    raw(
      opcodes(global('collections', 'OrderedDict')),
      opcodes(dict({ __setstate__: global('collections', 'Counter') })),
      0x62,
    ),
    /sets the state of collections\.OrderedDict/,
  ],
  'BUILD of a number': [raw(0x4b, 1, 0x7d, 0x62), /sets the state of something/],
  'INST of os.system': [raw(0x28, short('id'), 'ios\nsystem\n'), /asks for "os\.system"/],
  'INST of a name of the list': [raw(0x28, 'icollections\nOrderedDict\n'), /opcode 0x69 is not read/],
  'OBJ of a name of the list': [
    raw(0x28, opcodes(global('collections', 'OrderedDict')), 0x6f),
    /opcode 0x6f is not read/,
  ],
  'NEWOBJ of subprocess.Popen': [raw(stackGlobal('subprocess', 'Popen'), 0x29, 0x81), /asks for "subprocess\.Popen"/],
  'NEWOBJ_EX with named arguments': [
    raw(opcodes(global('collections', 'OrderedDict')), 0x29, opcodes(dict({ a: 1 })), 0x92),
    /opcode 0x92 is not read/,
  ],
  EXT1: [raw(0x82, 1), /opcode 0x82 is not read/],
  EXT2: [raw(0x83, 1, 0), /opcode 0x83 is not read/],
  EXT4: [raw(0x84, 1, 0, 0, 0), /opcode 0x84 is not read/],
  'a persistent value in a text': [raw('P0\n'), /opcode 0x50 is not read/],
  'a persistent value that is no storage': [{ persistent: tuple('module', 1) }, /not a storage/],
  'a buffer from outside': [raw(0x97), /opcode 0x97 is not read/],
  'opcodes of protocol 0': [raw("S'os'\n"), /opcode 0x53 is not read/],
  'a wrong version': [raw(0x80, 0), /protocol 0 is not read/],
  'an unknown opcode': [raw(0xff), /opcode 0xff is not read/],
  'an empty stack': [raw(0x52), /missing on the stack/],
  'a value below a mark': [raw(0x4e, 0x28, 0x52), /missing on the stack/],
  'no mark': [raw(0x74), /a mark is missing/],
  'a memo that is not there': [raw(0x6a, uint32(0xffff_ffff)), /the memo has no value 4294967295/],
  'keys without values': [raw(0x7d, 0x28, 0x4e, 0x75), /a key has no value/],
  'keys of a list': [raw(0x5d, 0x28, 0x4e, 0x4e, 0x75), /not a dictionary/],
  'items of a dictionary': [raw(0x7d, 0x28, 0x4e, 0x65), /not a list/],
  'several values at the end': [raw(0x4e, 0x4e), /leaves several values/],
  'a text of 4 GB': [raw(0x58, uint32(0xffff_fff0)), /a length of 4294967280 bytes is too large/],
  'a text of 2^60 bytes': [raw(0x8d, 0, 0, 0, 0, 0, 0, 0, 0x10), /is too large/],
  'a text that is not UTF-8': [raw(0x8c, 1, 0xff), /not UTF-8/],
  'an integer of 2 GB': [raw(0x8b, uint32(0x7fff_ffff)), /an integer has more than 64 bytes/],
  'a name of megabytes': [raw('c', 'a'.repeat(5000), '\nb\n'), /a name has more than/],
  'a negated view': [dict({ w: tensor(storage, [2, 3], { metadata: dict({ neg: true }) }) }), /negated or conjugated/],
  'a tensor without storage': [
    call('torch._utils', '_rebuild_tensor_v2', [null, 0, tuple(), tuple()]),
    /without a storage/,
  ],
  'a tensor of negative size': [dict({ w: tensor(storage, [-2, 3]) }), /wrong offset, size or stride/],
  'a tensor of negative stride': [dict({ w: tensor(storage, [2, 3], { strides: [-3, 1] }) }), /wrong offset/],
  'a tensor of negative offset': [dict({ w: tensor(storage, [2, 3], { offset: -1 }) }), /wrong offset/],
  'a tensor with more strides': [dict({ w: tensor(storage, [2, 3], { strides: [3, 1, 1] }) }), /wrong offset/],
  'a tensor beyond its storage': [
    dict({ w: tensor(storage, [2, 4]) }),
    /tensor "w".* ends 32 bytes into a storage of 24/,
  ],
  'a tensor that begins beyond its storage': [dict({ w: tensor(storage, [1], { offset: 6 }) }), /ends 28 bytes/],
  'a tensor of 2^60 elements': [dict({ w: tensor(storage, [2 ** 30, 2 ** 30], { strides: [0, 0] }) }), /too large/],
  'a tensor that repeats one element': [
    dict({ w: tensor(storage, [2 ** 20, 2 ** 5], { strides: [0, 0] }) }),
    /repeats the elements/,
  ],
  'a strided tensor of gigabytes': [
    dict({ w: tensor(storage, [2 ** 20, 2 ** 10], { strides: [0, 1] }) }),
    /ends|not contiguous/,
  ],
  'a storage of another size': [
    dict({ w: tensor({ ...storage, count: 7 }, [2, 3]) }),
    /has 24 bytes; 7 elements of float32 take 28/,
  ],
  'a storage that is not there': [dict({ w: tensor({ ...storage, key: '../0' }, [2, 3]) }), /data\/\.\.\/0" is not in/],
  'a storage of quantized numbers': [
    dict({ w: tensor({ ...storage, type: 'QInt8Storage', count: 24 }, [2, 3]) }),
    /asks for "torch\.QInt8Storage"/,
  ],
  'a tensor called __metadata__': [dict({ __metadata__: tensor(storage, [6]) }), /no tensor of a result/],
  'a name that is a number': [
    new Map<Py, Py>([
      ['w', tensor(storage, [6])],
      [1, tensor(storage, [6])],
    ]),
    /name of a tensor is not a text/,
  ],
  'names that are all numbers': [new Map<Py, Py>([[1, tensor(storage, [6])]]), /no dictionary of tensors/],
  'nothing but numbers': [dict({ a: 1 }), /no dictionary of tensors/],
  'a list of tensors': [[tensor(storage, [6])], /no dictionary of tensors/],
  'two models': [
    dict({ a: dict({ w: tensor(storage, [6]) }), b: dict({ w: tensor(storage, [6]) }) }),
    /several dictionaries of tensors, "a", "b"/,
  ],
};

describe('a hostile pickle', () => {
  it.each(Object.entries(tricks))('is refused: %s', async (_, [value, message]) => {
    // As the whole value, and within a dictionary beside good tensors.
    const file = archive(value, [storage]);
    const error = await rejection(file);
    expect(error.message).toMatch(message);
    expect(['BAD_FILE', 'UNSUPPORTED_DTYPE']).toContain(error.code);
    expect(error.byteOffset).toBeGreaterThanOrEqual(0);
    expect(error.byteOffset).toBeLessThan(file.length);
  });

  it('is refused in legacy files, with its position', async () => {
    const own = { ...storage, isLegacy: true };
    const file = legacy(dict({ a: call('os', 'system', ['id']), w: tensor(own, [2, 3]) }), [own]);
    const error = await rejection(file);
    expect(error.message).toContain('"os.system"');
    const place = new TextDecoder('latin1').decode(file).indexOf('cos\nsystem');
    expect(error.byteOffset).toBe(place);
    const inArchive = archive(dict({ w: tensor(storage, [2, 3]), a: call('os', 'system', ['id']) }), [storage]);
    expect((await rejection(inArchive)).byteOffset).toBe(
      new TextDecoder('latin1').decode(inArchive).indexOf('cos\nsystem'),
    );
  });

  it('takes bounded time for deep nesting and values that hold themselves', async () => {
    const depth = 1_000_000;
    const nested = raw(repeated([0x5d], depth), repeated([0x61], depth - 1));
    expect((await rejection(archive(nested, []))).message).toMatch(/no dictionary of tensors/);
    const marks = raw(repeated([0x28], depth));
    expect((await rejection(archive(marks, []))).message).toMatch(/leaves several values/);
    const dicts = raw(
      repeated([0x7d, ...short('a')], 300_000),
      opcodes(dict({ w: tensor(storage, [6]) })),
      repeated([0x73], 300_000),
    );
    expect((await rejection(archive(dicts, [storage]))).message).toMatch(/no dictionary of tensors/);
    // A dictionary that holds itself, many times.
    const itself = raw(
      0x7d,
      0x94,
      0x28,
      Array.from({ length: 50_000 }, (_, i) => [0x4a, ...uint32(i), 0x68, 0]).flat(),
      0x75,
    );
    expect((await rejection(archive(itself, []))).message).toMatch(/no dictionary of tensors/);
    // Sixteen levels with sixteen references to the next each: 2^64 ways.
    let levels = [...opcodes(dict({ a: 1 })), 0x94];
    for (let level = 0; level < 16; level++) {
      const keys = Array.from({ length: 16 }, (_, i) => [...short(`k${i}`), 0x68, level]).flat();
      levels = [...levels, 0x30, 0x7d, 0x94, 0x28, ...keys, 0x75];
    }
    expect((await rejection(archive(raw(levels), []))).message).toMatch(/no dictionary of tensors/);
    // Copies of one list of 60,000 values: more than the bound together.
    const copies = raw(
      opcodes(Array.from({ length: 60_000 }, () => null)),
      0x94,
      repeated([...opcodes(global('builtins', 'list')), 0x68, 0, 0x85, 0x52, 0x30], 400),
    );
    expect((await rejection(archive(copies, []))).message).toMatch(/more than 536870912 bytes of memory/);
  });
});

describe('a pickle of many opcodes', () => {
  // Values that are dropped count as well, so that these tests need no memory for them.
  it.each<[string, readonly number[], number]>([
    ['notes in the memo', [0x94], 9e6],
    ['marks', [0x28, 0x30], 17e6],
    ['dictionaries', [0x7d, 0x30], 2e6],
    ['lists of a value', [0x5d, 0x4e, 0x61, 0x30], 2e6],
    ['bytes', [0x43, 0, 0x30], 4e6],
    ['texts', [0x8c, 0, 0x30], 4e6],
    ['names', [...opcodes(global('torch', 'Size')), 0x30], 3e6],
    ['calls', [...opcodes(call('torch', 'device', [])), 0x30], 2e6],
    [
      'tensors that share metadata of many keys',
      [...opcodes(tensor(storage, [6], { metadata: { raw: Uint8Array.of(0x68, 0) } })), 0x30],
      2000,
    ],
  ])('is refused before its values fill the memory: %s', (_, opcodes, count) => {
    const many = pickle(dict(Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`k${i}`, 1]))));
    const { raw: bytes } = raw(many.subarray(0, -1), 0x94, repeated(opcodes, count)) as { raw: Uint8Array };
    expect(bytes.length).toBeLessThan(mostPickleBytes);
    expect(() => pickleIn(bytes, 0)).toThrow(/its values take more than 536870912 bytes of memory/);
  });
});

describe('names of a file', () => {
  it.each<[string, (n: number) => Uint8Array<ArrayBuffer>]>([
    [
      'of one tensor',
      (n) => {
        const names = Array.from({ length: n }, (_, i) => [0x58, ...uint32(7), ...text(String(1e6 + i)), 0x68, 0]);
        const all = raw(opcodes(tensor(storage, [6])), 0x94, 0x30, 0x7d, 0x28, names.flat(), 0x75);
        return archive(all, [storage]);
      },
    ],
    [
      'left out of dictionaries that hold one model',
      (n) => {
        const keys = Array.from({ length: n }, (_, i) => [0x58, ...uint32(7), ...text(String(1e6 + i)), 0x4e]).flat();
        const inner = raw(opcodes(good), 0x94, 0x28, keys, 0x75, 0x30);
        const outer = Array.from({ length: n / 50 }, (_, i) => [
          0x4a,
          ...uint32(i),
          0x7d,
          ...short('model'),
          0x68,
          0,
          0x73,
        ]);
        const named = Array.from({ length: n / 50 }, (_, i) => [
          ...short(`o${i}`),
          0x7d,
          ...short('model'),
          0x68,
          0,
          0x73,
        ]);
        const root = [0x7d, 0x28, ...short('model'), 0x68, 0, ...outer.flat(), ...named.flat(), 0x75];
        return archive(raw((inner as { raw: Uint8Array }).raw, root), [storage]);
      },
    ],
  ])('are read in time that is proportional to their number: %s', async (_, made) => {
    await expectProportional((n) => {
      const file = made(n);
      return () => inspectModel(file);
    }, 10_000);
  });
});

describe('a hostile archive', () => {
  const stored = (entries: readonly (readonly [string, Uint8Array])[]) =>
    zip(
      entries.map(([name, bytes]) => [name, bytes, 0] as const),
      (bytes) => bytes,
    );
  const main = pickle(good);
  const bad = pickle(call('os', 'system', ['id']));

  it('has its pickle once', async () => {
    for (const other of ['archive/data.pkl', 'other/data.pkl', 'data.pkl']) {
      const file = stored([
        ['archive/data.pkl', main],
        [other, bad],
        ['archive/data/0', storage.bytes],
      ]);
      expect((await rejection(file)).message).toMatch(/both in the zip archive/);
    }
  });

  it('has each storage once', async () => {
    const file = archive(good, [storage], { more: [['archive/data/0', storage.bytes, 0]] });
    expect((await rejection(file)).message).toMatch(/"archive\/data\/0" is in the zip archive twice/);
  });

  it('gives the same error with the checksums and flags that stop scanners', async () => {
    const file = archive(call('os', 'system', ['id']), []);
    const end = file.length - 22;
    const list = new DataView(file.buffer).getUint32(end + 16, true);
    const patched = (at: number, value: number) => {
      const copy = file.slice();
      copy[at] = value;
      return copy;
    };
    // A wrong checksum is not looked at: torch.load does not look at it either.
    for (const at of [14, list + 16]) expect((await rejection(patched(at, 0xaa))).message).toContain('"os.system"');
    // Encrypted, by either header; a method that nobody has.
    expect((await rejection(patched(list + 8, 1))).message).toMatch(/encrypted/);
    expect((await rejection(patched(6, 1))).message).toMatch(/encrypted|"os\.system"/);
    expect((await rejection(patched(list + 10, 99))).message).toMatch(/not read \(99\)/);
    // Another name in the local header.
    expect((await rejection(patched(30, 0x62))).message).toMatch(/"os\.system"|has two names/);
  });

  it('has storages that overlap nothing', async () => {
    const file = archive(dict({ a: tensor(storage, [6]), b: tensor({ ...storage, key: '1' }, [6]) }), [
      storage,
      { ...storage, key: '1' },
    ]);
    const view = new DataView(file.buffer);
    // Point the last storage of the list to the place of the other.
    const names = new TextDecoder('latin1').decode(file);
    const at = (name: string) => names.lastIndexOf(name) - 46;
    view.setUint32(at('archive/data/1') + 42, view.getUint32(at('archive/data/0') + 42, true), true);
    expect((await rejection(file)).message).toMatch(/overlaps/);
  });

  it('has as many packed bytes as it says, and whole ones', async () => {
    // Deflate without compression: a last block of plain bytes.
    const packed = (bytes: Uint8Array) =>
      Uint8Array.from([1, ...uint32(bytes.length | (~bytes.length << 16)), ...bytes]);
    const made = (pickled: Uint8Array, elements: Uint8Array, more = 0, pack = packed) =>
      zip(
        [
          ['archive/data.pkl', pickled, 8, pickled.length + more],
          ['archive/data/0', elements, 8, 24],
        ],
        pack,
      );
    const read = (file: Uint8Array<ArrayBuffer>) => readFloats(file, 'w');
    expect((await read(made(main, storage.bytes))).data).toEqual(new Float32Array(6));
    const failure = async (file: Uint8Array<ArrayBuffer>) => {
      const error = await read(file).then(
        () => undefined,
        (reason: unknown) => reason,
      );
      expect(error).toMatchObject({ name: 'ScalepointError', code: 'BAD_FILE' });
      return (error as ScalepointError).message;
    };
    expect(await failure(made(main, storage.bytes, 1))).toMatch(/"archive\/data\.pkl" is smaller/);
    expect(await failure(made(main, storage.bytes, -1))).toMatch(/"archive\/data\.pkl" is larger/);
    expect(await failure(made(main, storage.bytes, 2 ** 31))).toMatch(/cannot be as large as the zip archive says/);
    expect(await failure(made(main, storage.bytes.slice(1)))).toMatch(/"archive\/data\/0" is smaller/);
    expect(await failure(made(main, new Uint8Array(25)))).toMatch(/"archive\/data\/0" is larger/);
    const cut = (bytes: Uint8Array) => packed(bytes).slice(0, -1);
    expect(await failure(made(main, storage.bytes, 0, cut))).toMatch(/damaged/);
    const odd = (bytes: Uint8Array) => packed(bytes).with(0, 7) as Uint8Array<ArrayBuffer>;
    expect(await failure(made(main, storage.bytes, 0, odd))).toMatch(/damaged/);
    expect((await rejection(made(bad, storage.bytes))).message).toContain('"os.system"');
  });

  it('is refused if it is another archive', async () => {
    const other = await rejection(stored([['a.txt', main]]));
    expect([other.code, other.message]).toEqual([
      'UNKNOWN_FORMAT',
      'the file is a zip archive without data.pkl, so torch.save has not written it',
    ]);
    const script = archive(good, [storage], { more: [['archive/constants.pkl', pickle(null), 0]] });
    expect((await rejection(script)).message).toMatch(/TorchScript/);
    expect((await rejection(pickle(null))).message).toMatch(/a pickle that torch\.save has not written/);
    const arrays = stored([['x.npy', main]]);
    expect((await rejection(arrays)).message).toMatch(/looks like a zip archive, such as a \.npz file/);
  });

  it('ends with its pickle, and has a byte order that is known', async () => {
    const file = stored([
      ['archive/data.pkl', Uint8Array.from([...main, ...bad])],
      ['archive/data/0', storage.bytes],
    ]);
    expect((await rejection(file)).message).toMatch(/more bytes follow its end/);
    expect((await rejection(archive(good, [storage], { order: 'middle' }))).message).toMatch(/byte order "middle"/);
  });

  it('is refused wherever it is cut off', async () => {
    const own = { ...storage, isLegacy: true };
    for (const file of [archive(good, [storage]), legacy(dict({ w: tensor(own, [2, 3]) }), [own])]) {
      await inspectModel(file);
      for (let length = 0; length < file.length; length++) await rejection(file.slice(0, length));
    }
  });

  it('may be cut out of legacy files only whole', async () => {
    const own = { ...storage, isLegacy: true };
    const value = dict({ w: tensor(own, [2, 3]) });
    const cases: [Uint8Array<ArrayBuffer>, RegExp][] = [
      [legacy(value, [{ ...own, key: '1' }]), /names one that nothing uses/],
      [legacy(value, [own, own]), /in the list twice/],
      [legacy(value, [{ ...own, count: 5 }]), /has 5 elements in place of 6/],
      [legacy(value, []), /"0" is not in the file/],
      [Uint8Array.from([...legacy(value, [own]), 0]), /more bytes follow the last storage/],
    ];
    for (const [file, message] of cases) expect((await rejection(file)).message).toMatch(message);
  });
});

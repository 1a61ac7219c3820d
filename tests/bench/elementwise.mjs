// Compares the elementwise operations with the memory limit, onnxruntime-web and plain JavaScript.
import { benchWeights, makeLimits, plain, race } from '../../dist/bench.js';
import { makeOrt } from './peers.mjs';

/**
 * One measurement: an operation on n elements, the least time of each contestant, and ratios of these times.
 * @typedef {{ operation: string, n: number, ms: Record<string, number>, ratios: Record<string, number> }} Row
 */

/**
 * Measures the elementwise operations. In `ms`, `ours` works in wasm memory, `js` takes and fills JavaScript arrays, and `fresh` allocates
 * its result.
 * @param {{ load: Function, ort?: object, sizes?: number[], report?: (row: Row) => void }} options
 * @returns {Promise<Row[]>}
 */
export async function elementwise({ load, ort, sizes = [1 << 16, 1 << 20, 1 << 24], report = () => {} }) {
  const sp = await load();
  const limits = await makeLimits();
  const scale = 0.00054;
  const zeroPoint = -3;
  const peer = ort && (await makeOrt(ort, { scale, zeroPoint }));
  const rows = [];
  const add = (operation, n, ms, ratios) => {
    const row = { operation, n, ms, ratios };
    rows.push(row);
    report(row);
  };
  /** Adds what each other way to give and take numbers takes, beside wasm memory and other programs. */
  const addWays = (operation, n, ms) => {
    for (const [way, what] of Object.entries({ js: 'JS in and out', fresh: 'fresh result' })) {
      if (ms[way] === undefined) continue;
      const ratios = { 'wasm memory': ms[way] / ms.ours, ort: ms.ort / ms[way], plain: ms.plain / ms[way] };
      add(`${operation}, ${what}`, n, ms, ratios);
    }
  };
  const given = { range: { scale, zeroPoint } };

  for (const n of sizes) {
    const js = benchWeights(n);
    const codes = new Int8Array(n);
    const restored = new Float32Array(n);
    const x = sp.allocate('float32', n);
    const out = sp.allocate('int8', n);
    const y = sp.allocate('float32', n);
    x.view.set(js);
    limits.prepare(n);
    const rounds = n > 1 << 22 ? 11 : 15;
    const withPeer = (run) => (peer ? { ort: run } : {});

    let ms = await race(
      {
        ours: () => sp.chooseQuantizationParameters(x),
        limit: () => limits.read(n),
        plain: plain.minmax.bind(undefined, js),
      },
      { rounds },
    );
    add('minmax', n, ms, { 'read limit': ms.ours / ms.limit, plain: ms.plain / ms.ours });

    ms = await race(
      {
        ours: () => sp.quantize(x, { ...given, out }),
        js: () => sp.quantize(js, { ...given, out: codes }),
        fresh: () => sp.quantize(js, given),
        limit: () => limits.fourToOne(n),
        divide: () => limits.divide(n),
        plain: plain.plainQuantize.bind(undefined, js, scale, zeroPoint, codes),
        ...withPeer(() => peer.quantize(js)),
      },
      { rounds },
    );
    add('quantize', n, ms, {
      '4-to-1 limit': ms.ours / ms.limit,
      'divider limit': ms.ours / ms.divide,
      ort: ms.ort / ms.ours,
      plain: ms.plain / ms.ours,
    });
    addWays('quantize', n, ms);

    const asymmetric = { scheme: 'asymmetric' };
    ms = await race(
      {
        ours: () => sp.quantize(x, { ...asymmetric, out }),
        js: () => sp.quantize(js, { ...asymmetric, out: codes }),
        fresh: () => sp.quantize(js, asymmetric),
        read: () => limits.read(n),
        limit: () => limits.fourToOne(n),
        plain: plain.rangeAndQuantize.bind(undefined, js, codes),
        ...withPeer(() => peer.rangeAndQuantize(js)),
      },
      { rounds },
    );
    add('range and quantize', n, ms, {
      'read and 4-to-1 limit': ms.ours / (ms.read + ms.limit),
      ort: ms.ort / ms.ours,
      plain: ms.plain / ms.ours,
    });
    addWays('range and quantize', n, ms);

    const q = sp.quantize(x, { ...given, out });
    const qjs = sp.quantize(js, given);
    ms = await race(
      {
        ours: () => sp.dequantize(q, { out: y }),
        js: () => sp.dequantize(qjs, { out: restored }),
        fresh: () => sp.dequantize(qjs),
        limit: () => limits.oneToFour(n),
        plain: plain.plainDequantize.bind(undefined, codes, scale, zeroPoint, restored),
        ...withPeer(() => peer.dequantize(codes)),
      },
      { rounds },
    );
    add('dequantize', n, ms, { '1-to-4 limit': ms.ours / ms.limit, ort: ms.ort / ms.ours, plain: ms.plain / ms.ours });
    addWays('dequantize', n, ms);

    const sum = sp.errorSum();
    ms = await race(
      {
        quantize: () => sp.quantize(x, { ...given, out }),
        ours: () => sp.quantize(x, { ...given, out, errors: sum }),
        apart: () => sp.compare(x, sp.quantize(x, { ...given, out })),
        plain: () => {
          plain.plainQuantize(js, scale, zeroPoint, codes);
          plain.error(js, codes, scale, zeroPoint);
        },
      },
      { rounds },
    );
    add('quantize with error measures', n, ms, { quantize: ms.ours / ms.quantize, plain: ms.plain / ms.ours });
    add('quantize, then compare', n, ms, { quantize: ms.apart / ms.quantize, plain: ms.plain / ms.apart });

    const scales = new Float32Array(n / 32).fill(scale);
    for (const [dtype, levels] of [
      ['int8', 127],
      ['int4', 7],
    ]) {
      const grouped = { dtype, granularity: { kind: 'per-group', groupSize: 32 } };
      const places = { data: out, scale: new Float32Array(n / 32), zeroPoint: new Int32Array(n / 32) };
      ms = await race(
        {
          ours: () => sp.quantize(x, { ...grouped, out: places }),
          asymmetric: () => sp.quantize(x, { ...grouped, ...asymmetric, out: places }),
          js: () => sp.quantize(js, { ...grouped, out: { ...places, data: codes } }),
          limit: () => limits.fourToOne(n),
          plain: plain.groups.bind(undefined, js, 32, levels, codes, scales),
          ...withPeer(() => peer.groups(js, scales)),
        },
        { rounds },
      );
      add(`${dtype} groups of 32`, n, ms, {
        '4-to-1 limit': ms.ours / ms.limit,
        ort: ms.ort / ms.ours,
        plain: ms.plain / ms.ours,
      });
      add(`${dtype} groups of 32, asymmetric`, n, ms, {
        '4-to-1 limit': ms.asymmetric / ms.limit,
        ort: ms.ort / ms.asymmetric,
        plain: ms.plain / ms.asymmetric,
      });
      addWays(`${dtype} groups of 32`, n, ms);
    }
    x.dispose();
    out.dispose();
    y.dispose();
  }

  const small = benchWeights(1024);
  const codes = new Int8Array(1024);
  const ms = await race({
    ours: () => sp.quantize(small, { out: codes }),
    given: () => sp.quantize(small, { ...given, out: codes }),
    plain: plain.plainQuantize.bind(undefined, small, scale, zeroPoint, codes),
    ...(peer ? { ort: () => peer.quantize(small) } : {}),
  });
  add('quantize 1024 floats, JS in and out', 1024, ms, {
    microseconds: ms.ours * 1000,
    ort: ms.ort / ms.ours,
    plain: ms.plain / ms.ours,
  });
  sp.dispose();
  return rows;
}

// Compares ggml's block types in this library with ggml's own functions, both on one thread. They run in turns in one process. The
// library's data are in wasm memory.
//
//   node tests/bench/blocks.mjs [--types Q8_0,Q4_K] [--size 1048576]
import { benchWeights, race } from '../../dist/bench.js';

/** ggml's functions, from the packages in tests/llama (Node on Linux on x64 only); undefined where they are not installed. */
export async function nativeBlocks() {
  const [{ createRequire }, { dirname, join }] = await Promise.all([import('node:module'), import('node:path')]);
  const require = createRequire(new URL('../llama/package.json', import.meta.url));
  let entry;
  try {
    entry = require.resolve('@node-llama-cpp/linux-x64');
  } catch {
    return undefined;
  }
  const ggml = require('koffi').load(join(dirname(entry), '../bins/linux-x64/libggml-base.so'));
  const quantize = ggml.func('size_t ggml_quantize_chunk(int, void *, void *, int64_t, int64_t, int64_t, void *)');
  return {
    quantize: ({ id }, x, blocks, weights) =>
      weights === undefined
        ? quantize(id, x, blocks, 0, 1, x.length, null)
        : quantize(id, x, blocks, 0, x.length / weights.length, weights.length, weights),
    dequantizer(name) {
      const f = ggml.func(`void dequantize_row_${name.toLowerCase().replace(/k$/, 'K')}(void *, void *, int64_t)`);
      return (blocks, x) => f(blocks, x, x.length);
    },
  };
}

/**
 * Measures the block types.
 * @param {{ load: Function, blockTypes: string[], blockTypeInfo: Function, native?: Awaited<ReturnType<typeof nativeBlocks>>,
 *   types?: string[], n?: number, report?: (row: object) => void }} options n: number of weights, a multiple of 256
 * @returns {Promise<object[]>} rows like those of elementwise.mjs
 */
export async function blocks({
  load,
  blockTypes,
  blockTypeInfo,
  native,
  types = blockTypes,
  n = 1 << 20,
  report = () => {},
}) {
  const sp = await load({ blocks: true });
  const js = benchWeights(n);
  const x = sp.allocate('float32', n);
  const y = sp.allocate('float32', n);
  const restored = new Float32Array(n);
  x.view.set(js);
  const rows = [];
  const add = (operation, ms) => {
    const row = {
      operation,
      n,
      ms,
      ratios: { ...(native && { native: ms.native / ms.ours }), 'million a second': n / ms.ours / 1000 },
    };
    rows.push(row);
    report(row);
  };
  for (const type of types) {
    const info = blockTypeInfo(type);
    const out = sp.allocate('uint8', (n / info.elements) * info.bytes);
    const bytes = new Uint8Array(out.length);
    const weights = info.needsWeights ? new Float32Array(256).fill(1) : undefined;
    const options = weights && { weights, shape: [n / 256, 256] };
    const q = sp.quantizeBlocks(x, type, { ...options, out });
    if (native !== undefined) {
      native.quantize(info, js, bytes, weights);
      const ours = out.view;
      if (!bytes.every((byte, i) => byte === ours[i])) throw new Error(`${type}: the bytes differ from ggml's`);
    }
    const dequantize = native?.dequantizer(type);
    const withNative = (run) => (native ? { native: run } : {});
    add(
      `quantize to ${type}`,
      await race({
        ours: () => sp.quantizeBlocks(x, type, { ...options, out }),
        js: () => sp.quantizeBlocks(js, type, { ...options, out: bytes }),
        ...withNative(() => native.quantize(info, js, bytes, weights)),
      }),
    );
    add(
      `dequantize ${type}`,
      await race({
        ours: () => sp.dequantize(q, { out: y }),
        ...withNative(() => dequantize(bytes, restored)),
      }),
    );
    out.dispose();
  }
  sp.dispose();
  return rows;
}

if (globalThis.process?.argv[1]?.endsWith('blocks.mjs')) {
  const [{ parseArgs }, library] = await Promise.all([import('node:util'), import('../../dist/index.js')]);
  const { values } = parseArgs({
    options: { types: { type: 'string' }, size: { type: 'string', default: '1048576' } },
  });
  console.log('type      million weights a second (times native)\n          quantize           dequantize');
  const cell = ({ ratios }) =>
    `${ratios['million a second'].toFixed(0)} (${ratios.native?.toFixed(1) ?? '–'})`.padEnd(19);
  let quantized;
  await blocks({
    ...library,
    native: await nativeBlocks(),
    types: values.types?.split(','),
    n: Number(values.size),
    report(row) {
      if (row.operation.startsWith('quantize')) quantized = row;
      else console.log(`${row.operation.slice(11).padEnd(10)}${cell(quantized)}${cell(row)}`);
    },
  });
}

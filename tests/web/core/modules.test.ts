// The two modules of the core: what each of them has, and that both give the same bytes.
import {
  type BlockTensor,
  type BlockType,
  blockTypeInfo,
  blockTypes,
  load,
  type QuantizedTensor,
  type Scalepoint,
  type WasmModule,
} from 'scalepoint';
import { loadTensors, quantizeModel, readFloats, saveTensors } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { searchedTypes } from '../../../web/src/core/blocks.js';
import type { CoreModule, ModelsModule } from '../../../web/src/core/door.js';
import { compileCore, instantiateCore } from '../../../web/src/core/load.js';
import { safetensors, weights as weightsOf } from '../support/models.js';
import {
  arraysFiles,
  cores,
  expectCode,
  expectRefusal,
  expectSame,
  largeCores,
  Random,
  readBytes,
  wasmFiles,
} from '../support/support.js';

const pairs = cores.map(({ build, sp }, i) => ({ build, small: sp, large: largeCores[i]!.sp }));
const shape = [8, 512];
const x = new Random(41).bell(8 * 512);
const importance = Float32Array.from({ length: 512 }, (_, i) => (i % 5) + 0.5);

/** Options with which each type can be made. */
const optionsOf = (type: BlockType) => (blockTypeInfo(type).needsWeights ? { shape, weights: importance } : { shape });

/** The data of an error about a type that only the large module has. */
const inLargeModule = (type: BlockType) => ({
  expected: { kind: 'oneOf', values: ['Q8_0', 'Q4_0'] },
  got: type,
  hint: { kind: 'load', option: { kind: 'option', option: 'blocks', value: true } },
});

/** Types that only the large module has. */
const largeTypes = blockTypes.filter((type) => type !== 'Q8_0' && type !== 'Q4_0');

/** Results of a layer, an index and importance for the same inputs. */
function layerResults(sp: Scalepoint, q: QuantizedTensor): unknown[] {
  const results: unknown[] = [];
  for (const activations of ['float32', 'int8'] as const) {
    const layer = sp.linear(q, { activations });
    results.push(layer.forward(new Random(5).bell(2 * 512)));
    layer.dispose();
  }
  const index = sp.index(q, { metric: 'cosine' });
  results.push(index.search(x.subarray(0, 512)));
  index.dispose();
  return results;
}

/** Every call for arrays on some inputs. */
const calls: Readonly<Record<string, (sp: Scalepoint) => unknown>> = {
  quantize: (sp) =>
    (['min-max', 'mse', 'entropy', { percentile: 99 }] as const).map((range) =>
      sp.quantize(x, { dtype: 'int4', shape, granularity: { kind: 'per-channel', axis: 0 }, range }),
    ),
  'quantize in groups': (sp) =>
    sp.quantize(x, { dtype: 'uint4', scheme: 'asymmetric', shape, granularity: { kind: 'per-group', groupSize: 32 } }),
  chooseQuantizationParameters: (sp) => sp.chooseQuantizationParameters(x, { range: 'mse' }),
  'dequantize, pack and unpack': (sp) => {
    const q = sp.quantize(x, { dtype: 'int3', shape });
    const packed = sp.pack(q);
    return [sp.dequantize(q), packed, sp.unpack(packed, { dtype: 'int3', shape })];
  },
  quantizeCodebook: (sp) => {
    const nf4 = sp.quantizeCodebook(x, { codebook: 'nf4', range: 'mse', absmaxType: 'int8' });
    const learned = sp.quantizeCodebook(x, { codebook: { learn: 16 }, blockSize: 16, range: 'mse' });
    return [nf4, learned, sp.dequantize(learned), sp.pack(nf4)];
  },
  quantizeBlocks: (sp) =>
    (['Q8_0', 'Q4_0'] as const).map((type) => {
      const q = sp.quantizeBlocks(x, type, { shape });
      const weighted = sp.quantizeBlocks(x, type, { shape, weights: importance });
      return [q, weighted, sp.dequantize(q), sp.compare(x, weighted), layerResults(sp, q)];
    }),
  'compare and errorSum': (sp) => {
    const q = sp.quantize(x, { shape });
    const sum = sp.errorSum();
    sum.add(x, q);
    return [sp.compare(x, q), sp.compare(x, q, { per: 'channel', axis: 0 }), sum.measures()];
  },
  sweep: (sp) => sp.sweep(x, [{ dtype: 'int4' }, { dtype: 'int2', range: 'mse' }, { dtype: 'uint8' }]),
  histogram: (sp) => sp.histogram(x, { bins: 77 }),
  casts: (sp) =>
    (['float16', 'bfloat16', 'float8e4m3fn', 'float8e5m2', 'float4e2m1'] as const).map((format) => {
      const bits = sp.castFloat(x, format, { saturate: true });
      return [bits, sp.castToFloat32(bits, format)];
    }),
  observer: (sp) => {
    const observer = sp.observer({ range: 'mse' });
    observer.observe(x.subarray(0, 1000));
    observer.observe(x.subarray(1000));
    return observer.parameters();
  },
  'linear and index': (sp) =>
    layerResults(sp, sp.quantize(x, { shape, granularity: { kind: 'per-channel', axis: 0 } })),
  'linear in groups': (sp) =>
    layerResults(
      sp,
      sp.quantize(x, { dtype: 'int4', shape, granularity: { kind: 'per-group', groupSize: 32 }, scheme: 'asymmetric' }),
    ),
  matmulFloat: (sp) => {
    const layer = sp.matmulFloat(x, { shape });
    const y = layer.forward(x.subarray(0, 512));
    layer.dispose();
    return y;
  },
};

describe.each(pairs)('the modules of the $build build', ({ small, large }) => {
  it.each(Object.keys(calls))('give the same: %s', (name) => {
    expect(calls[name]!(small)).toStrictEqual(calls[name]!(large));
  });

  it('say which of them they are', () => {
    expect([small.blocks, large.blocks]).toEqual([false, true]);
  });

  it('differ by the types of blocks and their better search, and errors name the call to make', () => {
    const made = (sp: Scalepoint) =>
      blockTypes.filter((type) => {
        try {
          return sp.quantizeBlocks(x, type, optionsOf(type));
        } catch (error) {
          expect(error).toMatchObject({ name: 'RangeError', option: 'type' });
          return false;
        }
      });
    expect(made(large)).toEqual(blockTypes);
    expect(made(small)).toEqual(['Q4_0', 'Q8_0']);
    for (const type of searchedTypes) {
      const best = large.quantizeBlocks(x, type, { shape, search: 'best' });
      expect(large.compare(x, best).mse).toBeLessThanOrEqual(
        large.compare(x, large.quantizeBlocks(x, type, { shape })).mse * (1 + 1e-9),
      );
      const option = type === 'Q4_0' || type === 'Q8_0' ? 'search' : 'type';
      expectRefusal(() => small.quantizeBlocks(x, type, { shape, search: 'best' }), RangeError, option);
    }
  });

  it('pass errors on in one of them alone', () => {
    const granularity = { kind: 'per-channel', axis: 0 } as const;
    const options = { shape: [2, 2], granularity, moments: Float32Array.of(2, 1, 1, 3) };
    const call = () => small.quantize([1, 2, 3, 4.5], options);
    expectRefusal(call, RangeError, 'moments');
    expect(call).toThrow('load({ blocks: true })');
    expect(large.quantize([1, 2, 3, 4.5], options).output).toBeDefined();
  });

  it.each(largeTypes)('restore %s in one of them alone', (type) => {
    const q = large.quantizeBlocks(x, type, optionsOf(type)) as BlockTensor<Uint8Array>;
    const refused: [string, () => unknown][] = [
      ['q.type', () => small.dequantize(q)],
      ['b.type', () => small.compare(x, q)],
      ['b.type', () => small.compare(x, q, { per: 'channel', axis: 0 })],
      ['b.type', () => small.errorSum().add(x, q)],
      ['q.type', () => small.linear(q)],
      ['vectors.type', () => small.index(q)],
      ['type', () => small.quantizeBlocks([], type)],
      ['q.type', () => small.dequantize({ ...q, data: new Uint8Array(0), shape: [0] })],
    ];
    for (const [option, call] of refused) {
      expectRefusal(call, RangeError, option);
      expect(call).toThrow(expect.objectContaining({ problem: expect.objectContaining(inLargeModule(type)) }));
      expect(call).toThrow('load({ blocks: true })');
    }
    expect(large.dequantize(q)).toHaveLength(x.length);
    // Nothing of a refused call stays.
    expectSame(small.dequantize(small.quantize(x)), large.dequantize(large.quantize(x)));
  });

  it('keep any blocks in files, which need none of their floats', async () => {
    const simd = small.simd ? 'on' : 'off';
    const tensors = Object.fromEntries(
      blockTypes.map((type) => [type, large.quantizeBlocks(x, type, optionsOf(type))]),
    );
    const file = await saveTensors(tensors, { core: { simd } });
    expect(await loadTensors(file, { core: { simd } })).toEqual(tensors);
  });

  it('have the calls of the door: all, or those of arrays', async () => {
    const tier = small.simd ? 'simd' : 'scalar';
    const files = { arrays: arraysFiles[tier], core: wasmFiles[tier] };
    const of = async (name: WasmModule) => {
      // Name the file: tests before may have given `load` another one.
      const options = { simd: small.simd ? 'on' : 'off', wasm: files[name] } as const;
      const core = await instantiateCore(name, await compileCore(name, options));
      return {
        core,
        names: Object.keys(core.module).filter((key) => typeof core.module[key as 'isSimd'] === 'function'),
      };
    };
    const [arrays, core] = [await of('arrays'), await of('core')];
    const only = core.names.filter((name) => !arrays.names.includes(name));
    expect(arrays.names.filter((name) => !core.names.includes(name))).toEqual([]);
    const modelsCalls: Record<Exclude<keyof ModelsModule, keyof CoreModule>, true> = {
      addLowRank: true,
      makeArena: true,
      takeFromArena: true,
      startInArena: true,
      rewindArena: true,
      releaseArena: true,
      arenaCapacity: true,
      encodeCopy: true,
      encodeCast: true,
      encodeComfy: true,
      decodeComfy: true,
      encodeMicroscaled: true,
      encodeNvfp4Blocks: true,
      recodeNvfp4Blocks: true,
      decodeNvfp4Blocks: true,
      decodeMicroscaled: true,
      decodeScaledElements: true,
      encodeGgml: true,
      encodeGgmlWithFeedback: true,
      encodeCompressedTensors: true,
      decodeCompressedTensors: true,
      encodeGptq: true,
      encodeGptqWithFeedback: true,
      decodeGptq: true,
      encodeMlc: true,
      decodeMlc: true,
      encodeMlx: true,
      decodeMlx: true,
      decodeBitsAndBytes: true,
      encodeDequantizeLinear: true,
      encodeDequantizeLinearWithFeedback: true,
      decodeDequantizeLinear: true,
      observeDequantizeLinear: true,
      encodeMatmulNbits: true,
      encodeCompressedTensorsWithFeedback: true,
      encodeMatmulBnb4WithFeedback: true,
      encodeMatmulNbitsWithFeedback: true,
      encodeMicroscaledWithFeedback: true,
      encodeMlcWithFeedback: true,
      encodeMlxWithFeedback: true,
      encodeNvfp4BlocksWithFeedback: true,
      decodeMatmulNbits: true,
      encodeMatmulBnb4: true,
      decodeMatmulBnb4: true,
      decodeElements: true,
      observeTile: true,
      sumMagnitudesOfTile: true,
      momentsScratchBytes: true,
      factorScratchBytes: true,
      addMoments: true,
      finishMoments: true,
      factorMoments: true,
      fallingOrder: true,
      feedbackGroups: true,
      checkMoments: true,
      momentsDiagonal: true,
      quantizeByMoments: true,
      sumOutputErrors: true,
      rmsNorm: true,
      layerNorm: true,
      rotate: true,
      attend: true,
      applyGate: true,
      addScaled: true,
      routeExperts: true,
      addSums: true,
      scaleFloats: true,
      capSoftly: true,
      clampFloats: true,
      judgeToken: true,
    };
    expect(only.sort()).toEqual(Object.keys(modelsCalls).sort());
    expect(() => arrays.core.models).toThrow('codecs need the large module');
  });
});

describe('load', () => {
  it('takes a file of either module, and finds out which it is', async () => {
    for (const simd of ['on', 'off'] as const) {
      const tier = simd === 'on' ? 'simd' : 'scalar';
      const large = await load({ simd, wasm: wasmFiles[tier] });
      expect([large.blocks, large.simd]).toEqual([true, simd === 'on']);
      expect(large.quantizeBlocks(x, 'Q6_K', { shape })).toEqual(
        largeCores[0]!.sp.quantizeBlocks(x, 'Q6_K', { shape }),
      );
      const small = await load({ simd, wasm: await readBytes(arraysFiles[tier]) });
      expect([small.blocks, small.simd]).toEqual([false, simd === 'on']);
      for (const sp of [large, small]) sp.dispose();
      expectCode(() => large.quantizeBlocks(x, 'Q6_K'), 'DISPOSED');
    }
  });

  it('asks a function for the module that it needs', async () => {
    const asked: string[] = [];
    const wasm = (tier: 'simd' | 'scalar', module: WasmModule) => {
      asked.push(`${module}-${tier}`);
      return (module === 'core' ? wasmFiles : arraysFiles)[tier];
    };
    const blocks = [];
    for (const options of [{}, { blocks: false }, { blocks: true }, { blocks: true, simd: 'off' as const }]) {
      const sp = await load({ wasm, ...options });
      blocks.push(sp.blocks);
      sp.dispose();
    }
    expect(asked).toEqual(['arrays-simd', 'arrays-simd', 'core-simd', 'core-scalar']);
    expect(blocks).toEqual([false, false, true, true]);
  });

  it('refuses the small file where the large one is needed, and says so', async () => {
    await expect(load({ blocks: true, wasm: arraysFiles.simd })).rejects.toMatchObject({
      code: 'WASM_LOAD',
      message: expect.stringMatching(
        /is the small module .* takes the large one: core-simd\.wasm or core-scalar\.wasm/,
      ),
    });
    await expect(load({ blocks: 1 as never })).rejects.toMatchObject({ option: 'blocks' });
    const model = safetensors({ 'a.weight': weightsOf('F32', [8, 64]) });
    for (const workers of [0, 1]) {
      const options = { to: 'int8', workers } as const;
      await expect(quantizeModel(model, { ...options, core: { wasm: arraysFiles.simd } })).rejects.toMatchObject({
        code: 'WASM_LOAD',
        message: expect.stringContaining('takes the large one'),
      });
      // A function is asked for the large one, and `blocks` decides about arrays alone.
      const given = {
        wasm: (tier: 'simd' | 'scalar', module: WasmModule) => (module === 'core' ? wasmFiles : arraysFiles)[tier],
      };
      const core = { ...given, blocks: false };
      const { bytes } = await quantizeModel(model, { ...options, core });
      expectSame(await bytes(), await (await quantizeModel(model, options)).bytes());
      expect((await readFloats(model, 'a.weight', { core, workers })).data).toHaveLength(512);
    }
  });
});

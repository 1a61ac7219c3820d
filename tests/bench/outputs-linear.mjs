// Outputs of a language model whose linear weights are integers with a scale for each group of 32: by the values alone, by the importance of
// columns, and by GPTQ. A model draws 4,096 tokens for the statistics, and 4,096 others to judge by. Figures are mean divergences of the next
// token from float32 with their standard errors, and shares of that of range 'mse'. `arrays` are codes of `quantize`, of fewer bits, too; files
// are those of `quantizeModel`. Embeddings and the head stay as they are.
//   SCALEPOINT_SAMPLES=FOLDER node tests/bench/outputs-linear.mjs
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { load } from '../../dist/index.js';
import {
  calibrateModel,
  evaluateModel,
  inspectModel,
  quantizeModel,
  readFloats,
  saveTensors,
} from '../../dist/model.js';
import { drawTexts, storyWeights } from '../web/support/story-model.mjs';

const samples = process.env.SCALEPOINT_SAMPLES;
if (samples === undefined) throw new Error('set SCALEPOINT_SAMPLES to the folder of samples');
const source = join(samples, 'tinystories-656k');
const length = 256;
const groupSize = 32;

const weights = storyWeights(source);
const texts = (seed) => Uint32Array.from(drawTexts(weights, { texts: 16, length, seed }).flatMap((ids) => [...ids]));
const statistics = await calibrateModel(source, texts(1), { chunkSize: length, moments: true, mix: 0 });
const judged = texts(2);
const moments = await statistics.moments.bytes();
const importance = new Blob([await statistics.bytes()]);

/** Name of the statistics of each linear weight: q, k and v share their inputs, and so do gate and up. */
const entries = {
  q_proj: 'attn_q',
  k_proj: 'attn_q',
  v_proj: 'attn_q',
  o_proj: 'attn_output',
  gate_proj: 'ffn_gate',
  up_proj: 'ffn_gate',
  down_proj: 'ffn_down',
};
const { metadata } = await inspectModel(new Blob([moments]));
const entryOf = (name) => {
  const [, layer, part] = /^model\.layers\.(\d+)\.\w+\.(\w+)\.weight$/.exec(name) ?? [];
  return entries[part] && metadata[`blk.${layer}.${entries[part]}.weight`];
};

const folder = mkdtempSync(join(tmpdir(), 'outputs-'));
cpSync(source, folder, { recursive: true });
const floats = {};
for (const { name } of (await inspectModel(join(source, 'model.safetensors'))).tensors) {
  floats[name] = await readFloats(join(source, 'model.safetensors'), name);
}

/** The divergence of a model with some weights replaced. */
async function judge(replaced) {
  writeFileSync(join(folder, 'model.safetensors'), await saveTensors({ ...floats, ...replaced }));
  return (await evaluateModel(folder, { reference: source, text: judged, chunkSize: length })).kl;
}

const line = (name, { value, error }, than = value) =>
  console.log(`${name.padEnd(44)} ${value.toFixed(5)} ± ${error.toFixed(5)}  ${(value / than).toFixed(3)}`);

const sp = await load({ blocks: true });
const linear = Object.entries(floats).flatMap(([name, tensor]) => (entryOf(name) ? [{ name, ...tensor }] : []));
for (const dtype of ['int4', 'int3', 'int2']) {
  for (const scheme of ['symmetric', 'asymmetric']) {
    const codes = async (range, given) => {
      const made = {};
      for (const { name, data, shape } of linear) {
        const read = async (entry) => (await readFloats(moments, entry)).data;
        const inputs = {
          importance: async () => ({ importance: await read(`${entryOf(name)}.diagonal`) }),
          moments: async () => ({ moments: await read(entryOf(name)) }),
        };
        const more = await inputs[given]?.();
        const options = { dtype, scheme, range, shape, granularity: { kind: 'per-group', groupSize }, ...more };
        made[name] = { data: sp.dequantize(sp.quantize(data, options)), shape };
      }
      return judge(made);
    };
    const mse = await codes('mse');
    line(`arrays, ${dtype} ${scheme}: min-max`, await codes('min-max'), mse.value);
    line(`arrays, ${dtype} ${scheme}: mse`, mse);
    line(`arrays, ${dtype} ${scheme}: mse, importance`, await codes('mse', 'importance'), mse.value);
    line(`arrays, ${dtype} ${scheme}: min-max, moments`, await codes('min-max', 'moments'), mse.value);
    line(`arrays, ${dtype} ${scheme}: mse, moments`, await codes('mse', 'moments'), mse.value);
  }
}
for (const to of ['int4', 'int8']) {
  for (const scheme of ['symmetric', 'asymmetric']) {
    const file = async (more) => {
      const granularity = { kind: 'per-group', groupSize };
      const bytes = await (await quantizeModel(source, { to, scheme, granularity, ...more })).bytes();
      const made = {};
      for (const { name } of linear) made[name] = await readFloats(bytes, name);
      return judge(made);
    };
    const mse = await file({ range: 'mse' });
    line(`${to} ${scheme}: min-max`, await file({}), mse.value);
    line(`${to} ${scheme}: mse`, mse);
    line(`${to} ${scheme}: importance`, await file({ importance }), mse.value);
    line(`${to} ${scheme}: gptq`, await file({ method: 'gptq', moments: statistics }), mse.value);
  }
}
rmSync(folder, { recursive: true });

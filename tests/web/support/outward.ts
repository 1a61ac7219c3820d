// GGUF files turned back into folders, read in the plainest way. It shares no code with what reads them in the package.
import { expect } from 'vitest';
import { type OutwardFolder, outwardFolder } from '../../../web/src/architectures/outward.js';
import type { Conversion } from '../../../web/src/architectures/recipe.js';
import type { CastForm } from '../../../web/src/formats/codecs/cast.js';
import { openSource } from '../../../web/src/formats/files/open.js';
import type { LogicalTensor } from '../../../web/src/formats/format.js';
import { gguf } from '../../../web/src/formats/gguf/gguf.js';
import { fileOf, type Weights } from './recipes.js';

/** The folder that a file is turned back into. */
async function turnedBack(bytes: Uint8Array): Promise<OutwardFolder> {
  const input = new Uint8Array(bytes);
  return outwardFolder(
    await gguf.open([{ input, source: await openSource(input) }], () => Promise.reject(new Error())),
  );
}

/** The elements of a tensor of an F32 file, and what is added to them. */
function elementsIn(file: Uint8Array, { form, parts, gathered }: LogicalTensor) {
  const data = new DataView(file.buffer, file.byteOffset);
  const values = parts.flatMap(({ tensor: { byteOffset, bytes } }, i) => {
    const view = gathered?.views?.[i] ?? gathered?.view ?? { offset: 0, dims: [[bytes / 4, 1]] };
    let places = [view.offset];
    for (const [count, stride] of view.dims)
      places = places.flatMap((at) => Array.from({ length: count }, (_, i) => at + i * stride));
    return places.map((at) => data.getFloat32(byteOffset + 4 * at, true));
  });
  return { values, add: (form as CastForm).add };
}

/** Expects that the file of a folder gives its tensors back: all of them, and under these names. */
async function expectTurnedBack(conversion: Conversion, weights: Weights): Promise<void> {
  const file = fileOf(conversion, weights);
  const folder = await turnedBack(file);
  const used = conversion.tensors.flatMap(({ sources }) => sources);
  expect(folder.tensors.map(({ name }) => name).sort()).toEqual([...new Set(used)].sort());
  for (const tensor of folder.tensors) {
    const own = weights.get(tensor.name);
    expect([tensor.name, ...tensor.shape]).toEqual([tensor.name, ...(own?.shape ?? [])]);
    const { values, add = 0 } = elementsIn(file, tensor);
    // The 1 that was added before is taken off again.
    expect(add === 0 || add === -1).toBe(true);
    const wanted = [...(own?.values ?? [])].map((value) => Math.fround(value - add));
    expect(
      values.every((value, i) => Object.is(value, wanted[i])),
      tensor.name,
    ).toBe(true);
    expect(values.length).toBe(wanted.length);
  }
}

const ofTower = /parts of others/;

/** Families whose files are not turned back, with the reason. */
const refused: Readonly<Record<string, RegExp>> = {
  ...Object.fromEntries(
    [
      ...['Mamba', 'Mamba 2', 'Jamba', 'Kimi Linear', 'PLaMo 2', 'Falcon-H1', 'Falcon-H1 with norms of states'],
      ...['Nemotron-H', 'Nemotron-H with experts', 'Nemotron-H with experts of fewer elements', 'Nemotron-H Puzzle'],
      'Nemotron-H with a layer that predicts a further token',
      ...['Granite with Mamba 2', 'Granite with Mamba 2 and experts', 'Qwen3-Next', 'Qwen3.5', 'Qwen3.5 with experts'],
      'Qwen3.5 with a layer that predicts a further token',
    ].map((name) => [name, /ssm_a" holds -exp\(x\) in place of each x/]),
  ),
  'ChatGLM 3 and GLM-4-9B': /attn_q.weight" is missing/,
  'Falcon with groups and two norms, as RefinedWeb': /attn_norm_2.weight" has no place/,
  Apertus: /act_fn.alpha_n is missing/,
  'Hunyuan with experts': /moe_topk is undefined/,
  'Mistral Small 4': /partial_rotary_factor/,
  'Mistral Small 4 without its tower, and with experts apart': /partial_rotary_factor/,
  'Mistral Large 3 in its own layout': /temperature_scale/,
  'Granite 4 with attention alone': /rope.scaling.finetuned is true/,
  'RWKV 7': /head_dim/,
  'Gemma 4 Assistant': ofTower,
  'Step 3.5': /moe_router_activation is "softmax"/,
  'Qwen2-VL': ofTower,
  'Qwen2.5-VL': ofTower,
  'Qwen3-VL': ofTower,
  'Qwen3-VL with experts': ofTower,
  'Qwen3-ASR': ofTower,
  'Qwen3-Omni': ofTower,
};

/** Families whose tensors come back otherwise: under names of other checkpoints, experts one by one, or rounded to three values. */
const otherwise: readonly string[] = [
  ...['Kimi K2.5', 'Gemma 3n'],
  ...['Ernie 4.5 with fused matrices', 'GPT-2', 'Qwen2 with stacked experts', 'Qwen3 with stacked experts'],
  ...['BitNet', 'BitNet by the names of transformers', "Mistral's own layout", "Mixtral in Mistral's own layout"],
  'EXAONE with experts, windows, and a layer that predicts a further token',
];

/** Expects that the file of a case is turned back, or refused for its reason. */
export async function expectOutward(name: string, conversion: Conversion, weights: Weights): Promise<void> {
  const reason = refused[name];
  if (reason !== undefined) await expect(turnedBack(fileOf(conversion, weights))).rejects.toThrow(reason);
  else if (otherwise.includes(name)) expect((await turnedBack(fileOf(conversion, weights))).tensors).not.toEqual([]);
  else await expectTurnedBack(conversion, weights);
}

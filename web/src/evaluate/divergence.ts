/**
 * The divergence that each weight of a language model causes when it alone is rounded. Types for a given size are chosen by it: a weight whose
 * outputs err by a share e of their squares causes about e times the number that is measured here, in nats.
 *
 * The passes of all weights go through the model together: their states stand one behind the other, as further texts. So a layer is read once
 * for the passes that began before it, and once for each weight of its own.
 */
import { BlockTypeId, ErrorSumsRecord } from '../core/door.js';
import { type Core, checkStatus } from '../core/memory.js';
import { beginTexts, judgeToken, logitBytes } from './evaluate.js';
import type { InputWatcher, LanguageForward, RunnableLanguage } from './forward.js';
import { fromWasm, toWasm } from './layer-handler.js';
import type { TokenProgress } from './texts.js';

/** Tokens of a pass, at least and at most, and most of a text of it. */
const leastTokens = 32;
const mostTokens = 128;
const textTokens = 64;

/** Floats of a block of Q3_K. */
const blockSize = 256;

/** Floats rounded to three bits, in blocks of consecutive ones. Zeros fill the last block. */
function roundedFloats(core: Core, values: Float32Array<ArrayBuffer>): Float32Array<ArrayBuffer> {
  const n = Math.ceil(values.length / blockSize) * blockSize;
  return core.withMemory(8 * n, (x) => {
    const blocks = x + 4 * n;
    core.module.HEAPF32.fill(0, x / 4, x / 4 + n);
    toWasm(core, values, x);
    checkStatus(core.module._quantizeBlocks(x, n, BlockTypeId.Q3_K, blocks));
    checkStatus(core.module._dequantizeBlocks(blocks, n, BlockTypeId.Q3_K, x));
    return fromWasm(core, x, values.length);
  });
}

/** Sums of the squared errors of floats, and of their squares. */
class Errors {
  #error = 0;
  #squares = 0;

  add(core: Core, x: Float32Array, y: Float32Array): void {
    core.withMemory(8 * x.length, (at) => {
      toWasm(core, x, at);
      toWasm(core, y, at + 4 * x.length);
      const record = core.pushRecord(ErrorSumsRecord);
      core.module.HEAPF64.fill(0, record / 8, (record + ErrorSumsRecord.bytes) / 8);
      checkStatus(core.module._accumulateError(at, at + 4 * x.length, x.length, record));
      const { squaredError, squaredX } = ErrorSumsRecord.read(core.module, record);
      core.popRecord(record);
      this.#error += squaredError;
      this.#squares += squaredX;
    });
  }

  get relative(): number {
    return this.#squares === 0 ? 0 : this.#error / this.#squares;
  }
}

/** The name of the table of tokens. */
const table = 'token_embd.weight';

/** Names of the measured weights in the order of their passes: the table, the weights of layers, and an output layer of its own. */
export function measuredWeights({ forward, facts }: Pick<RunnableLanguage, 'forward' | 'facts'>): string[] {
  const layers = Array.from({ length: facts.layers }, (_, i) => forward.weightsOf(i).map(({ name }) => name));
  return [...new Set([table, ...layers.flat(), ...forward.head.names])];
}

/** Texts of a pass: pieces of a text at even distances. */
function probeTexts(ids: Uint32Array, tokens: number, size: number): Uint32Array {
  const texts = Math.max(1, Math.min(Math.floor(tokens / size), Math.floor(ids.length / size)));
  const step = Math.floor(ids.length / texts);
  return Uint32Array.from({ length: texts * size }, (_, i) => ids[Math.floor(i / size) * step + (i % size)] as number);
}

/** Watches the outputs of products. */
const outputsOf = (outputs: readonly string[], take: (product: string, y: Float32Array) => void): InputWatcher => ({
  watch: { squares: false, inputs: [], outputs },
  take: ({ names: [product], x }) => take(product as string, x as Float32Array),
});

/**
 * Measures the weights of `measuredWeights`: the divergence from the model in nats when a weight is rounded to three bits, divided by the
 * relative squared error of its outputs; of its elements for experts, and for a table that is looked up alone.
 * @param ids of a text. @param chunk most tokens of a text of the passes
 */
export async function measureDivergences(
  model: RunnableLanguage,
  ids: Uint32Array,
  chunk: number,
  onProgress: TokenProgress,
): Promise<ReadonlyMap<string, number>> {
  const { forward, facts, layerWorkers, beginning } = model;
  const { core } = layerWorkers;
  const { hidden, layers } = facts;
  const { vocabulary } = forward;
  const names = measuredWeights(model);
  // Take as long as a pass of the whole text: the pass of a weight begins in the middle of the model on average.
  const most = Math.min(mostTokens, Math.max(leastTokens, Math.floor((2 * ids.length) / names.length)));
  const size = Math.min(chunk, textTokens, most, ids.length);
  const tokens = beginTexts(probeTexts(ids, most, size), size, beginning);
  const n = tokens.length;
  const floats = n * hidden;

  const errors = new Map(names.map((name) => [name, new Errors()]));
  const errorsOf = (name: string) => errors.get(name) as Errors;
  /** The model with one weight rounded. @param isCounted true adds up the errors of its elements */
  const rounded = (name: string, isCounted: boolean): LanguageForward =>
    forward.changed(name, (values) => {
      const made = roundedFloats(core, values);
      if (isCounted) errorsOf(name).add(core, values, made);
      return made;
    });

  // Pass the layers: the passes that began before, the model as it is, then a pass for each weight of the layer.
  const passes = new Float32Array(names.length * floats);
  let begun = 0;
  const begin = (states: Float32Array) => passes.set(states, floats * begun++);
  const [head] = forward.head.names as [string];
  const states = await forward.embed(tokens);
  begin(await rounded(table, head !== table).embed(tokens));
  for (let layer = 0; layer < layers; layer++) {
    const weights = forward.weightsOf(layer);
    const total = n * (begun + 1 + weights.length);
    let done = 0;
    const report = (more: number) => onProgress({ pass: layer + 1, passes: layers + 1, done: done + more, total });
    await forward.layer(layer, passes.subarray(0, floats * begun), size, report);
    done += n * begun;
    const before = states.slice();
    const plain = new Map<string, Float32Array>();
    const products = [...new Set(weights.flatMap(({ product }) => product ?? []))];
    const watcher = outputsOf(products, (product, y) => plain.set(product, y));
    await forward.layer(layer, states, size, report, watcher);
    for (const { name, product, from, count } of weights) {
      done += n;
      const own = before.slice();
      const bias = await forward.biasOf(name);
      const compare = (key: string, y: Float32Array) => {
        const x = plain.get(key) as Float32Array;
        // Compare the columns of the weight, without its bias.
        const columns = (all: Float32Array) =>
          Float32Array.from({ length: n * count }, (_, i) => {
            const at = Math.floor(i / count) * (all.length / n) + from + (i % count);
            return (all[at] as number) - (bias?.[i % count] ?? 0);
          });
        errorsOf(name).add(core, columns(x), columns(y));
      };
      const watched = outputsOf(product === undefined ? [] : [product], compare);
      await rounded(name, product === undefined).layer(layer, own, size, report, watched);
      begin(own);
    }
  }

  // Compare logits, some tokens at a time. A table that is the output layer is rounded in both places.
  const step = Math.max(1, Math.floor(logitBytes / (4 * vocabulary)));
  const logitsOf = async (
    model: LanguageForward,
    all: Float32Array,
    take: (token: number, row: Float32Array) => void,
  ) => {
    const count = all.length / hidden;
    for (let at = 0; at < count; at += step) {
      const some = await model.logits(all.slice(at * hidden, (at + step) * hidden));
      for (let i = 0; i * vocabulary < some.length; i++)
        take(at + i, some.subarray(i * vocabulary, (i + 1) * vocabulary));
      await onProgress({ pass: layers + 1, passes: layers + 1, done: Math.min(at + step, count), total: count });
    }
  };
  const reference = new Float32Array(n * vocabulary);
  await logitsOf(forward, states, (token, row) => reference.set(row, token * vocabulary));
  const sums = new Float64Array(names.length);
  const judge = (pass: number) => (token: number, row: Float32Array) => {
    const at = token % n;
    const own = reference.subarray(at * vocabulary, (at + 1) * vocabulary);
    const index = pass + Math.floor(token / n);
    (sums[index] as number) += core.withMemory(8 * vocabulary, (memory) => {
      toWasm(core, row, memory);
      toWasm(core, own, memory + 4 * vocabulary);
      return judgeToken({ core, vocabulary }, [memory, memory + 4 * vocabulary], at, 0).divergence;
    });
  };
  const roundedHead = rounded(head, false);
  const compareHead = (token: number, row: Float32Array) =>
    errorsOf(head).add(core, reference.subarray(token * vocabulary, (token + 1) * vocabulary), row);
  if (head === table) {
    await logitsOf(roundedHead, states, compareHead);
    await logitsOf(roundedHead, passes.subarray(0, floats), judge(0));
  } else {
    await logitsOf(forward, passes.subarray(0, floats), judge(0));
    await logitsOf(roundedHead, states, (token, row) => {
      compareHead(token, row);
      judge(begun)(token, row);
    });
  }
  await logitsOf(forward, passes.subarray(floats, floats * begun), judge(1));
  const perError = (name: string, i: number) => {
    const { relative } = errorsOf(name);
    return relative === 0 ? 0 : (sums[i] as number) / n / relative;
  };
  return new Map(names.map((name, i) => [name, perError(name, i)]));
}

// Shared by the tests of decoders: a tiny model of an architecture, converted, beside a table written by hand, and its logits in llama.cpp
// beside a forward pass in float64 that knows Hugging Face's definitions only.
import { describe, expect, it } from 'vitest';
import { convertHuggingface } from '../../../web/src/architectures/huggingface/convert.js';
import type { Conversion } from '../../../web/src/architectures/recipe.js';
import { furthest, type Keys, largest } from './decoder-tables.js';
import { type Decoder, decoderLogits } from './forward.js';
import { NativeModel } from './llama-run.js';
import { needNative } from './native.js';
import { expectOutward } from './outward.js';
import { ownLogits } from './own-logits.js';
import { byName, fileOf, folderOf, type Weights } from './recipes.js';
import { expectTensors, type HandTable, weightsOfTable } from './tensor-table.js';
import { decoderConfig, plainTokenizer } from './tiny-huggingface.js';

/** Tokens whose logits are compared. */
export const decoderTokens = [1, 17, 200, 33, 4, 99, 250, 8, 17, 121];

/** Sizes of the tiny models. */
const decoderBase: Decoder = { layers: 3, heads: 4, keyHeads: 2, head: 16, theta: 10000, epsilon: 1e-5 };

/** As in logits.node.test.ts: sums in float32 over at most 7 layers. */
const nearLogits = 1e-5;
/** As in logits.node.test.ts: our own pass also adds in float32. */
const nearOwnLogits = 2e-5;

/** Files of a folder by name. */
export type FolderJson = Record<string, unknown>;

export interface DecoderCase {
  readonly name: string;
  /** Class of Hugging Face. */
  readonly hugging: string;
  /** Architecture of llama.cpp. */
  readonly architecture: string;
  /** Layers of the table, with those that predict further tokens, which num_hidden_layers in `config` leaves out. @defaultValue 3 */
  readonly layers?: number;
  readonly config?: FolderJson;
  /** Keys behind general.name, without the architecture in their names. */
  readonly keys: Keys;
  readonly table: HandTable;
  readonly model?: Partial<Decoder>;
  /** False if llama.cpp loads it, and nothing is run. @defaultValue true */
  readonly isRun?: false;
  /** Largest distance of logits. @defaultValue nearLogits */
  readonly bound?: number;
  /** Files of the folder, in the place of config.json and the tokenizer. `config` stands in the first one. */
  readonly files?: FolderJson;
  /** The names of Hugging Face, for the forward pass. */
  readonly rename?: (name: string) => string;
  /** True if our own forward pass computes it, too. */
  readonly own?: true;
}

/** Converts the model of a case. @param more further files of the folder */
export function convertedDecoder(
  { hugging, config = {}, layers = decoderBase.layers, files: own }: Partial<DecoderCase>,
  weights: Weights,
  more: FolderJson = {},
): Promise<Conversion> {
  const [first, ...rest] = Object.entries(own ?? {});
  const files =
    first === undefined
      ? {
          'config.json': decoderConfig(hugging ?? '', { num_hidden_layers: layers, ...config }),
          'tokenizer.json': plainTokenizer(),
        }
      : { [first[0]]: { ...(first[1] as object), ...config }, ...Object.fromEntries(rest) };
  return convertHuggingface(folderOf(weights, { ...files, ...more }));
}

/** Expects the keys and tensors of a case. */
export async function expectKeysAndTensors(one: DecoderCase): Promise<void> {
  const { architecture, table, keys, layers = decoderBase.layers } = one;
  const weights = weightsOfTable(table, layers);
  const result = await convertedDecoder(one, weights);
  const got = result.keys.filter(({ name }) => !name.startsWith('tokenizer.'));
  const own = (list: Keys) =>
    list.map(([name, value]) => [name.startsWith('xielu.') ? name : `${architecture}.${name}`, value]);
  const general = [
    ['general.architecture', architecture],
    ['general.type', 'model'],
    ['general.name', 'tiny'],
  ];
  expect(byName(got.map(({ name, value }) => [name, value]))).toEqual(byName([...general, ...own(keys)]));
  expectTensors(result, table, layers);
  await expectOutward(one.name, result, weights);
}

/** Expects the logits of a case, in llama.cpp and, if it computes them, in our own pass. */
async function expectLogits(one: DecoderCase): Promise<void> {
  const { table, layers = decoderBase.layers, model = {}, bound = nearLogits, own, rename } = one;
  const weights = weightsOfTable(table, layers);
  const file = fileOf(await convertedDecoder(one, weights), weights);
  if (one.isRun === false) {
    new NativeModel(file)[Symbol.dispose]();
    return;
  }
  const named = rename && new Map([...weights].map(([name, weight]) => [rename(name), weight]));
  const expected = decoderLogits(named ?? weights, { ...decoderBase, layers, ...model }, decoderTokens);
  if (own === true) {
    const far = furthest(await ownLogits(new Uint8Array(file), decoderTokens), expected) / largest(expected);
    expect(far).toBeLessThan(nearOwnLogits);
  }
  using native = new NativeModel(file);
  expect(furthest(native.logits(decoderTokens), expected) / Math.max(1, largest(expected))).toBeLessThan(bound);
}

/** Tests the keys, tensors and logits of cases. */
export function testDecoders(cases: readonly DecoderCase[]): void {
  describe('keys and tensors are those of the converter', () => {
    it.each(cases)('$name', expectKeysAndTensors);
  });

  describe('logits are those of the definition', () => {
    needNative();

    it.each(cases)('$name', expectLogits);
  });
}

/** Keys of config.json with which a case is refused, words of the error, and its code, which is UNKNOWN_FORMAT unless given. */
export type Refusal = readonly [name: string, more: FolderJson, words: RegExp, code?: string];

/** The case of a name, or of one that begins so. */
export const caseOf = (cases: readonly DecoderCase[], name: string): DecoderCase =>
  (cases.find((one) => one.name === name) ?? cases.find((one) => one.name.startsWith(name))) as DecoderCase;

/** Tests that settings are refused. */
export function testRefusals(cases: readonly DecoderCase[], refusals: readonly Refusal[]): void {
  describe('what llama.cpp computes otherwise is refused', () => {
    const all = refusals.map(([name, more, words, code = 'UNKNOWN_FORMAT']) => [name, more, words, code] as const);
    it.each(all)('%s with %j', async (name, more, words, code) => {
      const one = caseOf(cases, name);
      const weights = weightsOfTable(one.table, one.layers ?? decoderBase.layers);
      const changed = convertedDecoder({ ...one, config: { ...one.config, ...more } }, weights);
      await expect(changed).rejects.toMatchObject({ code, message: expect.stringMatching(words) });
    });
  });
}

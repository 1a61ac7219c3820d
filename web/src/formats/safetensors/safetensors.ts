/** safetensors files, and models in several of them. */
import type { ByteSource } from '../../files/bytes.js';
import type { Format, OpenFile, OpenModel } from '../format.js';
import { plainTensor } from '../tensors.js';
import { readSafetensors } from './header.js';
import { logicalTensors } from './logical.js';
import { options, readers, type SafetensorsOptions, type SafetensorsSidecars } from './options.js';
import { planSafetensors } from './plan.js';
import { tensorsAsFloats } from './quantized.js';
import { safetensorsReasonText } from './reasons.js';
import { openShards } from './shards.js';
import { mixtureOf, type SafetensorsTarget, safetensorsTargets, targets } from './targets.js';
import { verifySafetensors } from './verify.js';

const brace = 0x7b;
const whiteSpace: readonly number[] = [0x20, 0x09, 0x0a, 0x0d];

/** Only the brace after the length of the header is certain. A reader can say better what is wrong with the rest. */
function isFile(head: Uint8Array): boolean {
  // A length that begins like JSON has zeros at its end. Text has not.
  const isLength = head[0] !== brace || (head[6] === 0 && head[7] === 0);
  return head[8] === brace && isLength;
}

/** JSON that is no file. */
function isIndex(head: Uint8Array): boolean {
  return !isFile(head) && head.find((byte) => !whiteSpace.includes(byte)) === brace;
}

async function openFile(source: ByteSource): Promise<OpenModel> {
  const { tensors, metadata } = await readSafetensors(source);
  return { bytes: source.size, files: [source], tensors, metadata };
}

export const safetensors: Format<
  'safetensors',
  SafetensorsTarget,
  'safetensors',
  SafetensorsOptions,
  SafetensorsSidecars
> = {
  name: 'safetensors',
  label: 'safetensors',
  files: 'safetensors',
  extensions: ['.safetensors', '.safetensors.index.json'],
  result: 'safetensors',
  about:
    'safetensors get the layout of compressed-tensors, with codes for the weights of linear layers; embeddings, lm_head and all other ' +
    'tensors are kept, unless --all or a rule takes them along.',
  examples: [
    'model.safetensors --to int8 --config config.json',
    'model.safetensors --to int4 --group-size 32 -o small',
    "model.safetensors --to int8 --rule '^decoder=keep'",
  ],
  targets,
  aliases: {},
  ruleTargets: safetensorsTargets,
  mixtures: {
    to: 'int4',
    types: mixtureOf,
    stored: (bytes) => bytes,
  },
  options,
  unit: 'element',
  readers,

  sniff: isFile,
  index: { name: 'index.json', sniff: isIndex },

  async open(files, open) {
    const [first, ...others] = files as [OpenFile, ...OpenFile[]];
    const head = await first.source.read(0, Math.min(32, first.source.size));
    return isIndex(head)
      ? openShards(
          first.input,
          first.source,
          others.map(({ source }) => source),
          open,
        )
      : openFile(first.source);
  },

  tensors: logicalTensors,
  verify: verifySafetensors,
  reasonText: safetensorsReasonText,

  async plan(model, choices, partsOf, output) {
    const { to, requantize = false } = choices;
    const tensors = to === 'copy' ? model.tensors.map(plainTensor) : await tensorsAsFloats(model, requantize);
    const metadata = model.metadata as Readonly<Record<string, string>>;
    return planSafetensors(tensors, metadata, choices, partsOf, true, output);
  },
};

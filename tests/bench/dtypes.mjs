// Prints how far the types of folders for transformers.js are from float32: the divergence of the next word, the share of places whose likeliest
// word stays, and the bytes of the model. The storyteller draws texts of 256 tokens, of which the second half counts; errors are over texts.
//   npm run build && node tests/bench/dtypes.mjs
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { evaluateModel, quantizeModel } from '../../dist/model.js';
import { drawTexts, meanOf, show } from './stories.mjs';

const story = fileURLToPath(new URL('../../web/demo/public/samples/storyteller', import.meta.url));
const texts = await drawTexts(story, { seed: 1, texts: 32, length: 256 });
const place = mkdtempSync(join(tmpdir(), 'scalepoint-dtypes-'));
try {
  const folderOf = async (/** @type {string} */ dtype) => {
    const output = join(place, dtype);
    const to = /** @type {'onnx:q4'} */ (`onnx:${dtype}`);
    const { files } = await quantizeModel(story, { to, output, workers: 0 });
    const models = files.filter(({ name }) => name.includes('/onnx/'));
    return { output, bytes: models.reduce((sum, file) => sum + file.bytes, 0) };
  };
  const reference = await folderOf('fp32');
  console.log(`fp32: ${reference.bytes} bytes`);
  for (const dtype of ['fp16', 'q8-blocks', 'q8', 'int8', 'uint8', 'q4', 'q4f16', 'bnb4']) {
    const { output, bytes } = await folderOf(dtype);
    const [kl, same] = [[], []];
    for (const text of texts) {
      const found = await evaluateModel(output, { reference: reference.output, text, chunkSize: text.length });
      kl.push(found.kl.value);
      same.push(100 * found.sameTop.value);
    }
    console.log(`${dtype.padEnd(9)} ${show(meanOf(kl), 5)} | ${show(meanOf(same), 1)} % | ${bytes} bytes`);
  }
} finally {
  rmSync(place, { recursive: true });
}

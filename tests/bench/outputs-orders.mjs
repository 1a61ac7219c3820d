// Compares search: 'best' with the usual search on the outputs of small llamas, with the columns of all weights in random orders.
//
//   npm run build && SCALEPOINT_SAMPLES=... node tests/bench/outputs-orders.mjs [--model FOLDER ...] [--types Q4_K,Q2_K] [--orders 8] [--texts 16]
//
// A model is a folder; without one, TinyStories of the samples. teach_llama.mjs makes others: llama A of the guide with its defaults, llama B with
// --seed 2 --layers 3 --inner 512. The divergence of one quantized model is off by
// several percent by chance, because its errors are few random numbers in the directions that count. Another order of the columns cuts the
// weights into other blocks and draws these numbers anew. Each order is one pair of measurements. The program judges `texts` texts of 256 tokens
// that the model draws; the importance is from 16 others. Needs a C++ compiler with OpenMP.
//
// Columns: type; without and with importance the ratio of the errors of weights, best to usual, and that of the divergences, with its standard
// error over orders; the mean divergence of the usual search.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { blockTypeInfo } from '../../dist/index.js';
import { bytesOf, compile, configOf, sizesOf } from '../../scripts/site/storyteller/llama.mjs';
import { meanOf, ratioOf, show } from './stories.mjs';

const searched = 'Q2_K,Q3_K,Q4_0,Q4_1,Q4_K,IQ4_NL,IQ4_XS,MXFP4,Q5_0,Q5_1,Q5_K,Q6_K,Q8_0';
const { values } = parseArgs({
  options: {
    model: {
      type: 'string',
      multiple: true,
      default: [join(process.env.SCALEPOINT_SAMPLES ?? '', 'tinystories-656k')],
    },
    types: { type: 'string', default: searched },
    orders: { type: 'string', default: '8' },
    texts: { type: 'string', default: '16' },
  },
});

const sourceOf = (/** @type {string} */ path) => fileURLToPath(new URL(path, import.meta.url));

/** One number for each order. @typedef {{ errors: number[], divergences: number[] }} Measured */

/** The sources of the core that make blocks. */
function coreSources() {
  return ['ggml', 'arrays', 'lanes'].flatMap((folder) =>
    readdirSync(sourceOf(`../../cpp/${folder}`))
      .filter((name) => name.endsWith('.cpp') && name !== 'block_formats_arrays.cpp')
      .map((name) => sourceOf(`../../cpp/${folder}/${name}`)),
  );
}

/** Compares two ways. @param {Map<string, Measured>} found @param {string} usual @param {string} best */
function compared(found, usual, best) {
  const [before, after] = [found.get(usual), found.get(best)];
  if (before === undefined || after === undefined) throw new Error('The program printed no figures.');
  const errors = ratioOf(after.errors, before.errors).value.toFixed(3);
  const mean = meanOf(before.divergences).value.toPrecision(3);
  return `${errors}  ${show(ratioOf(after.divergences, before.divergences), 3)}  ${mean.padStart(9)}`;
}

/** Figures of a way by ways. @param {string} printed */
function figuresOf(printed) {
  /** @type {Map<string, Measured>} */
  const found = new Map();
  for (const line of printed.trim().split('\n')) {
    const [, way, error, divergence] = line.split(' ');
    const figures = found.get(way) ?? { errors: [], divergences: [] };
    figures.errors.push(Number(error));
    figures.divergences.push(Number(divergence));
    found.set(way, figures);
  }
  return found;
}

const work = mkdtempSync(join(tmpdir(), 'scalepoint-orders-'));
try {
  const program = join(work, 'orders');
  const exact = ['-ffp-contract=off', '-fno-math-errno', `-I${sourceOf('../../cpp')}`];
  compile([sourceOf('outputs_orders.cpp'), ...coreSources()], program, exact);
  for (const folder of values.model) {
    const weights = join(work, 'weights');
    writeFileSync(weights, await bytesOf(folder));
    console.log(`\n${basename(folder)}: ${values.orders} orders, ${values.texts} texts\n`);
    for (const type of values.types.split(',')) {
      const inputs = [weights, ...sizesOf(configOf(folder)), values.orders, values.texts];
      const number = String(blockTypeInfo(type).id);
      const found = figuresOf(execFileSync(program, [...inputs, number], { encoding: 'utf8' }));
      const [plain, weighted] = [compared(found, 'plain', 'best'), compared(found, 'importance', 'best+importance')];
      console.log(`${type.padEnd(7)} ${plain}   ${weighted}`);
    }
  }
} finally {
  rmSync(work, { recursive: true });
}

/** The command `calibrate`: collects statistics of the inputs of a model's weights. */
import { basename, dirname, join } from 'node:path';
import { calibrateModel, planModel } from '../model.js';
import { grouped, momentsEnd, rangesEnd, without } from '../tooling.js';
import { dataOptions, readTexts } from './evaluate.js';
import { calibrateFlags } from './flags.js';
import { withInput } from './input.js';
import { checkFilesApart, type WrittenFile } from './overlap.js';
import { makeCommand, positionalFiles } from './parse.js';
import { abortOnSignal, about, dataProgressLine, effort, peakBytes, printJson, UsageError } from './process.js';
import { countText, formatBytes, listText, printable, printLines } from './text.js';
import { asUsage, wrongFlag } from './wording.js';

/** Writes the importance of a model's weights. */
export const calibrate = makeCommand({
  about: 'collect statistics on your data',
  line: () => 'calibrate FILE --text FILE',
  usage: ['calibrate MODEL --text FILE [options]', 'calibrate MODEL.onnx --data FILE [options]'],
  text: () =>
    'Runs a language model on texts and writes how important each column of its weights is, as an importance matrix of llama.cpp: for ' +
    '--imatrix of scalepoint quantize and of llama-quantize. Takes the models of scalepoint evaluate, and ONNX models with samples of their ' +
    'inputs, which run in onnxruntime-web.',
  flags: () => calibrateFlags,
  examples: () => [
    'calibrate ./model --text calibration.txt -o imatrix.gguf',
    './model --to Q3_K_M --imatrix imatrix.gguf',
    'calibrate ./model --text calibration.txt --moments',
    'calibrate model.onnx --data samples.npz --moments -o model.stats',
    './model --to Q4_K_M --method gptq --moments imatrix.gguf.moments.safetensors',
  ],
  async carryOut(line) {
    const { values, words, positionals } = line;
    // Read the flags and the data.
    const [file] = positionalFiles(positionals, ['MODEL'], 'calibrate');
    const { output = 'imatrix.gguf', force = false, quiet = false, resume = false, data: files } = values;
    const other = (['text', 'ids'] as const).find((flag) => values[flag] !== undefined);
    if (files !== undefined && other !== undefined) throw wrongFlag('data', without(`--${other}`));
    const data = files === undefined ? await readTexts(values, 'calibrate') : { files };
    const { 'held-back': heldBack, mix } = values;
    const share = (['held-back', 'mix'] as const).find((flag) => values[flag] !== undefined);
    if (share !== undefined && values.moments !== true) throw new UsageError(`--${share} goes with --moments`);
    const signal = abortOnSignal(
      resume
        ? 'interrupted; --resume goes on behind the last finished layer or sample'
        : 'interrupted, nothing was written',
    );
    const progress = dataProgressLine(quiet);
    return withInput(
      file,
      async (input) => {
        const onProgress = progress.update;
        const state = join(dirname(output), `.${basename(output)}.resume`);
        const written: WrittenFile[] = [
          output,
          ...(values.moments ? [output + momentsEnd] : []),
          ...(values.ranges ? [output + rangesEnd] : []),
          ...(resume ? [state, `${state}.moments`] : []),
        ].map((path) => ({ flag: 'output', path }));
        await checkFilesApart(written, input, line);
        // Run the model.
        const wanted = { moments: values.moments, heldBack, mix, ranges: values.ranges };
        const options = { ...dataOptions(values), ...wanted, output, overwrite: force, resume, signal, onProgress };
        const {
          tokens,
          mixedTokens,
          chunks,
          heldBackChunks,
          weights,
          notes = [],
          unreached,
          size,
          moments,
          ranges,
        } = await about(input.name, () =>
          calibrateModel(input.file, data, options).catch((error) => Promise.reject(asUsage(error, words))),
        ).finally(progress.clear);
        for (const { text } of notes) printLines([`scalepoint: ${printable(text)}`], process.stderr);
        // Print the files, and how to use them.
        const second = moments && { path: String(moments.path), size: moments.size };
        const third = ranges && { path: String(ranges.path), size: ranges.size };
        if (values.json) {
          const beside = {
            ...(second && { moments: second, heldBackChunks }),
            ...(third && { ranges: third }),
            ...(unreached && { unreached }),
          };
          printJson({
            file: input.name,
            output,
            tokens,
            mixedTokens,
            chunks,
            weights,
            notes,
            size,
            ...beside,
            peakBytes: peakBytes(),
          });
        } else if (!quiet) {
          const random = mixedTokens ? ` (${mixedTokens.toLocaleString('en')} of them random)` : '';
          const rows = unreached === undefined ? `${countText(tokens, 'token')}${random}` : countText(chunks, 'sample');
          const [to, blocks] = unreached === undefined ? ['Q4_K_M', 'Q4_K_M'] : ['q4 --range mse', 'q4'];
          const lines = [
            `${printable(output)}: ${countText(weights.length, 'weight')}, ${rows}, ${formatBytes(size)}`,
            ...[...grouped(unreached ?? [], ({ reason }) => reason.text)].map(
              ([reason, some]) =>
                `without statistics, ${printable(reason)}: ${listText(
                  some.map(({ name }) => name),
                  3,
                )}`,
            ),
            `quantize with it: scalepoint ${printable(input.name)} --to ${to} --imatrix ${printable(output)}`,
          ];
          if (second !== undefined) {
            const path = printable(second.path);
            const unit = unreached === undefined ? 'chunk' : 'sample';
            const held = heldBackChunks
              ? `${countText(heldBackChunks, unit)} of ${chunks.toLocaleString('en')} held back`
              : `no ${unit} held back`;
            lines.push(
              `${path}: second moments, ${held}, ${formatBytes(second.size)}`,
              `quantize with them: scalepoint ${printable(input.name)} --to ${blocks} --method gptq --moments ${path}`,
            );
          }
          if (third !== undefined) {
            const path = printable(third.path);
            // In a model without products, such as an LSTM alone, int8-static takes no ranges.
            const options = { to: 'int8-static', ranges: third.path } as const;
            const plan = await planModel(input.file, options).catch(() => undefined);
            const hasProducts = plan?.notes.some(({ kind }) => kind === 'staticCost');
            lines.push(
              `${path}: ranges of activations, ${formatBytes(third.size)}`,
              hasProducts
                ? `quantize with them: scalepoint ${printable(input.name)} --to int8-static --ranges ${path}`
                : 'int8-static has no use for them: the model has no products of activations and weights that it takes',
              'with fp16, q4f16 and q2f16, they decide which nodes stay in float32',
            );
          }
          if (values.verbose) lines.push(effort());
          printLines(lines);
        }
        return 0;
      },
      signal,
    );
  },
});

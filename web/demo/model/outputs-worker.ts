// Quantizes a model into memory, and compares the outputs of the result with those of the original. It is started for one visitor's request,
// and ended to cancel it.
import { compareModels, evaluateModel } from 'scalepoint/model';
import type { InputArray } from '../../src/tooling.js';
import { answerCalls } from '../shared/calls.js';
import { inputOf } from '../shared/page-files.js';
import { idsOf } from './ids.js';
import { makeResult } from './made.js';
import { chunkTokens, type JudgedType, type OutputsProgress, type OutputsQuestion } from './outputs.js';
import { isPicture, pictureInput } from './picture-input.js';
import { loadedRuntime } from './runtime.js';

type OnProgress = (step: OutputsProgress) => void;
/** Progress of quantizing as a step of the work. */
const quantizing = (onProgress: OnProgress) => (share: number) => onProgress({ step: 'quantize', share });

type Judged = Pick<JudgedType, 'bytes' | 'seconds' | 'judgment'>;

/** True if the browser gives a GPU. */
async function hasGpu(): Promise<boolean> {
  const { gpu } = navigator as { gpu?: { requestAdapter(): Promise<object | null> } };
  const adapter = await gpu?.requestAdapter().catch(() => null);
  return adapter !== undefined && adapter !== null;
}

async function judgeTexts(question: OutputsQuestion, onProgress: OnProgress): Promise<Judged> {
  // A text that cannot be read is found before the long part.
  const ids = await idsOf(question);
  const { result, bytes } = await makeResult(question, quantizing(onProgress));
  const run = question.needsRuntime ? { runtime: await loadedRuntime(false) } : undefined;
  const begin = performance.now();
  const figures = await evaluateModel(result, {
    reference: inputOf(question.files),
    run,
    // With a tokenizer in place of ids, an id that the model lacks is an error of the tokenizer.
    text: 'tokenized',
    tokenizer: { encode: () => ids },
    chunkSize: Math.min(chunkTokens, ids.length),
    onProgress: ({ pass, passes, done, total }) => {
      const share = (pass - 1 + done / Math.max(1, total)) / passes;
      onProgress({ step: 'layers', tokens: total, share });
    },
  });
  return { bytes, seconds: (performance.now() - begin) / 1000, judgment: { kind: 'texts', figures } };
}

async function judgeArrays(question: OutputsQuestion, onProgress: OnProgress): Promise<Judged> {
  const { result, bytes } = await makeResult(question, quantizing(onProgress));
  const wantsGpu = await hasGpu();
  onProgress({ step: 'run', wantsGpu });
  const runtime = await loadedRuntime(wantsGpu);
  const begin = performance.now();
  const { inputs: file, sizes: dimensions } = question;
  const original = inputOf(question.files);
  let inputs: File | Readonly<Record<string, InputArray>> | undefined = file;
  if (file !== undefined && isPicture(file)) {
    // The runtime tells the shapes of the inputs.
    const { inputs: shapes = [] } = await compareModels(original, original, {
      run: { runtime, dimensions },
      workers: 0,
    });
    inputs = await pictureInput(file, shapes);
  }
  const report = await compareModels(original, result, {
    run: { runtime, backends: wantsGpu ? ['wasm', 'webgpu'] : ['wasm'], dimensions, ...(inputs && { inputs }) },
    workers: 0,
  });
  const { inputs: used = [], guessedSizes = {}, outputs = [], skippedOutputs = [], backends = [], overflows } = report;
  const figures = { inputs: used, guessedSizes, outputs, skippedOutputs, backends, ...(overflows && { overflows }) };
  return { bytes, seconds: (performance.now() - begin) / 1000, judgment: { kind: 'arrays', figures } };
}

const calls = { texts: judgeTexts, arrays: judgeArrays };
export type OutputsCalls = typeof calls;

answerCalls(calls);

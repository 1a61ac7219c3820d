/** Measures the errors of planned tensors. Writes nothing. */

import { waitingFor } from '../core/waiting.js';
import { elementsOf } from '../formats/codecs/elements.js';
import type { FileInput } from '../formats/files/bytes.js';
import { openWithin } from '../formats/files/open.js';
import type { OpenModel, PlannedTensor } from '../formats/format.js';
import { runSteps, TensorProgress, type TensorSums } from './engine.js';
import { announceReads, storedBytes } from './logical-tensor.js';
import { withRunner } from './start.js';
import type { Steps } from './steps.js';
import { isLookedAt, nowhere, type Reply, TileCutter } from './tiles.js';
import type { WorkOptions } from './work-options.js';
import { convertedElements } from './writing.js';

/** The tiles of tensors whose errors are measured. Their parts are made and dropped. @param dataFile index of their moments */
function* measuredSteps(
  tensors: readonly PlannedTensor[],
  progress: TensorProgress,
  dataFile: number | undefined,
): Steps {
  const cutter = new TileCutter({ momentsFile: dataFile, judges: true });
  for (const [index, tensor] of tensors.entries()) {
    if (tensor.kept !== undefined) {
      progress.skip(index);
      continue;
    }
    if (elementsOf(tensor.source.shape) === 0) progress.add(index, 0);
    // The first part holds the elements. Errors are measured when it is made.
    const roles = tensor.parts.slice(0, 1).map(({ role }) => role);
    const places = roles.map((role) => ({ role, file: nowhere, at: 0, into: undefined }));
    const steps = cutter.tilesOf(tensor, index, roles, places);
    let reply: Reply | undefined;
    for (let next = steps.next(); !next.done; next = steps.next(reply)) {
      const step = next.value;
      const isNeeded = step.kind === 'question' || (step.task.kind === 'encode' && step.task.measures);
      reply = isNeeded ? yield step : undefined;
    }
  }
}

/**
 * Measures planned tensors in their order, so that the sums do not depend on the runner. A tensor may come several times. Kept tensors have
 * no sums.
 * @param data of their plans: with it, errors of outputs are measured, too
 */
export async function measureTensors(
  model: OpenModel,
  tensors: readonly PlannedTensor[],
  data: FileInput | undefined,
  options: WorkOptions,
): Promise<TensorSums> {
  const { onProgress, signal } = options;
  const reported = (index: number) => {
    const { source } = tensors[index] as PlannedTensor;
    return { phase: 'quantize', tensor: source.name, bytes: storedBytes(source) } as const;
  };
  const progress = new TensorProgress(tensors.length, reported, onProgress);
  const waiting = waitingFor(signal);
  const moments = data === undefined ? undefined : await openWithin(waiting, data);
  const files = moments === undefined ? model.files : [...model.files, moments];
  announceReads(files, tensors, isLookedAt);
  try {
    return await withRunner(convertedElements({ tensors }), { sources: files, sinks: [] }, options, (runner) =>
      runSteps({
        steps: measuredSteps(tensors, progress, moments && files.length - 1),
        tensors: tensors.length,
        files,
        runner,
        progress,
        signal,
        take: (_batch, { output }) => runner.recycle(output),
      }),
    );
  } finally {
    await moments?.close();
    waiting.end();
  }
}

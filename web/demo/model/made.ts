// Makes the result of a choice in memory, for workers that run it.
import { type PlanOptions, quantizeModel } from 'scalepoint/model';
import { isFileBeside } from '../../src/tooling.js';
import { inputOf, type PageFile, wholeFile } from '../shared/page-files.js';
import { savingWorkers, withWorkers } from './workers.js';

/** A result to make. */
export interface ResultQuestion {
  /** The files of the model. */
  readonly files: readonly PageFile[];
  /** Options of `quantizeModel`. */
  readonly options: object;
  /** A target of floats in the format of the result, which restores codes. */
  readonly floats: string;
}

const isBeside = ({ name, webkitRelativePath }: PageFile) => isFileBeside(name, webkitRelativePath);

/** Quantizes. Without workers of its own, this one does the work. */
async function quantized(files: readonly PageFile[], options: PlanOptions, onProgress: (share: number) => void) {
  const work = (workers: number) =>
    quantizeModel(inputOf(files), {
      ...options,
      workers,
      onProgress: ({ bytesDone, bytesTotal }) => onProgress(bytesDone / Math.max(1, bytesTotal)),
    });
  return withWorkers(savingWorkers, work);
}

/** The result, with the files that describe the model. Folders of codes are restored to floats, which hold the same values. */
export async function makeResult(
  { files, options, floats }: ResultQuestion,
  onProgress: (share: number) => void,
): Promise<{ result: File[]; bytes: number }> {
  const { files: made, config, blob } = await quantized(files, options as PlanOptions, onProgress);
  const name = made[0]?.name ?? 'model';
  let content = await blob();
  const bytes = content.size;
  if (config !== undefined) {
    const restored = await quantizeModel(new File([content], name), {
      to: floats as PlanOptions['to'],
      requantize: true,
      rules: [{ match: '.', keep: true }],
      workers: 0,
    } as PlanOptions);
    content = await restored.blob();
  }
  const beside = await Promise.all(files.filter(isBeside).map(wholeFile));
  return { result: [new File([content], name), ...beside], bytes };
}

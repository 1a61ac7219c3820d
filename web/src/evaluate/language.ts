/** Opens language models to run them: folders and GGUF files. */

import type { Converted } from '../architectures/converter.js';
import { convertersFrom } from '../architectures/registry.js';
import { gridOf, rectangleInput } from '../convert/logical-tensor.js';
import type { Opened } from '../convert/open.js';
import { defaultWorkers, withRunner } from '../convert/start.js';
import { TaskError, type TileRunner } from '../convert/task.js';
import type { WorkOptions } from '../convert/work-options.js';
import { ScalepointError } from '../core/errors.js';
import { elementsOf, largestCount } from '../formats/codecs/elements.js';
import { codecOf, float32Form } from '../formats/codecs/registry.js';
import { quoted } from '../formats/files/bytes.js';
import type { LogicalTensor, OpenModel } from '../formats/format.js';
import { beginningOf, languageFacts, type Metadata } from './facts.js';
import { LanguageForward, type LanguageTensors, type RunnableLanguage } from './forward.js';
import { type LayerWorkers, withLayerWorkers } from './layer-workers.js';

/** A tensor to read, or its floats as bytes. */
type LanguageTensor = LogicalTensor | Uint8Array<ArrayBuffer>;

/** Reads rows of tensors as floats, whatever file they come from, through the same tasks as conversions. */
class LanguageRows implements LanguageTensors {
  readonly #tensors: ReadonlyMap<string, LanguageTensor>;
  readonly #runner: TileRunner;

  constructor(tensors: ReadonlyMap<string, LanguageTensor>, runner: TileRunner) {
    this.#tensors = tensors;
    this.#runner = runner;
  }

  has(name: string): boolean {
    return this.#tensors.has(name);
  }

  size(name: string): readonly [rows: number, columns: number] {
    const tensor = this.#named(name);
    if (tensor instanceof Uint8Array) return [1, tensor.length / 4];
    const columns = tensor.shape.at(-1) ?? 1;
    return [elementsOf(tensor.shape) / Math.max(1, columns), columns];
  }

  async read(name: string, row: number, rows: number): Promise<Float32Array<ArrayBuffer>> {
    const tensor = this.#named(name);
    const [all, columns] = this.size(name);
    if (row + rows > all) {
      const text = `tensor ${quoted(name)} has ${all} rows, and row ${row} is needed`;
      throw new ScalepointError('BAD_FILE', text, { tensor: name });
    }
    if (tensor instanceof Uint8Array) return new Float32Array(tensor.slice().buffer, row * columns * 4, rows * columns);
    if (codecOf(tensor.form).decode === undefined) {
      const text = `tensor ${quoted(name)}: ${tensor.type} is not a readable float type`;
      throw new ScalepointError('UNSUPPORTED_DTYPE', text, { tensor: name });
    }
    // Read whole words and heads of codes, and one matrix at a time.
    const { rowUnit, matrixRows = all } = gridOf(tensor);
    const end = row + rows;
    if (Math.floor(row / matrixRows) !== Math.floor((end - 1) / matrixRows)) {
      const first = (Math.floor(row / matrixRows) + 1) * matrixRows - row;
      const [before, behind] = [await this.read(name, row, first), await this.read(name, row + first, rows - first)];
      const joined = new Float32Array(rows * columns);
      joined.set(before);
      joined.set(behind, before.length);
      return joined;
    }
    const from = Math.floor(row / rowUnit) * rowUnit;
    const to = Math.min(all, Math.ceil(end / rowUnit) * rowUnit);
    const cut = { row: from, rows: to - from, columns };
    const bytes = cut.rows * columns * 4;
    const { output } = await this.#runner
      .run({
        tasks: [
          {
            kind: 'encode',
            rows: cut.rows,
            columns,
            inputs: [rectangleInput(tensor, { ...cut, column: 0, width: columns })],
            to: float32Form,
            outputs: [{ role: 'data', offset: 0, bytes }],
            measures: false,
          },
        ],
        outputBytes: bytes,
      })
      .catch((error) => Promise.reject(error instanceof TaskError ? error.cause : error));
    const floats = new Float32Array(output, 0, cut.rows * columns);
    return from === row && to === end ? floats : floats.slice((row - from) * columns, (end - from) * columns);
  }

  #named(name: string): LanguageTensor {
    const tensor = this.#tensors.get(name);
    if (tensor !== undefined) return tensor;
    throw new ScalepointError('BAD_FILE', `the model has no tensor ${quoted(name)}`, { tensor: name });
  }
}

/** Metadata and tensors of a model in llama.cpp's names. */
async function languageContents({
  format,
  model,
  beside,
}: Opened): Promise<{ readonly metadata: Metadata; readonly tensors: ReadonlyMap<string, LanguageTensor> }> {
  if (format.name === 'gguf') {
    const tensors = await format.tensors(model);
    const { metadata } = model as OpenModel;
    return {
      metadata: (key) => (Object.hasOwn(metadata, key) ? metadata[key] : undefined),
      tensors: new Map(tensors.map((tensor) => [tensor.name, tensor])),
    };
  }
  for (const converter of convertersFrom(format.name)) {
    const contents: Converted['contents'] = (
      await converter.convert(model, beside, { missingBytes: 'keep', requantize: true })
    )?.contents;
    if (contents === undefined) continue;
    const { view, sources } = contents;
    return {
      metadata: (key) => (Object.hasOwn(view.metadata, key) ? view.metadata[key] : undefined),
      tensors: new Map(view.tensors.map(({ name }, i) => [name, sources[i] as LanguageTensor])),
    };
  }
  const text = 'only GGUF files and folders of language models, with config.json and tokenizer, can be run here';
  throw new ScalepointError('UNKNOWN_FORMAT', text);
}

/** Bytes of the weights of layers that all workers hold together by default. */
const layerBytes = 2 ** 31;

/** Options of work with language models. */
export interface LanguageOptions extends Pick<WorkOptions, 'workers' | 'worker' | 'core' | 'signal'> {
  /** Workers of another model, which wait while this one is run. */
  readonly layerWorkers?: LayerWorkers | undefined;
}

/**
 * Makes a language model ready to be run, and hands it to `use`. Its tensors are read as they are needed.
 * @throws ScalepointError `UNKNOWN_FORMAT` for other models and architectures
 */
export async function withLanguage<T>(
  opened: Opened,
  options: LanguageOptions,
  use: (model: RunnableLanguage) => Promise<T>,
): Promise<T> {
  const { metadata, tensors } = await languageContents(opened);
  const { core, signal } = options;
  // Use fewer workers than usual where the weights of a layer are large.
  const layers = new Map<string, number>();
  let all = 0;
  for (const [name, tensor] of tensors) {
    const elements = tensor instanceof Uint8Array ? tensor.length / 4 : elementsOf(tensor.shape);
    const layer = /^blk\.\d+/.exec(name)?.[0];
    if (layer !== undefined) layers.set(layer, (layers.get(layer) ?? 0) + elements);
    all += elements;
  }
  const most = Math.max(1, Math.floor(layerBytes / (4 * Math.max(1, ...layers.values()))));
  const workers = options.workers ?? Math.min(defaultWorkers(all), most);
  const { files } = opened.model;
  const start = async (layerWorkers: LayerWorkers): Promise<T> =>
    // Reading is a small share of the work, so that the calling thread does it.
    withRunner(0, { sources: files, sinks: [] }, { core, signal, workers: 0 }, async (runner) => {
      const rows = new LanguageRows(tensors, runner);
      // Phi-3 has other factors for contexts beyond the original one, which chunks do not reach by default.
      const named = ['rope_freqs.weight', 'rope_factors_short.weight'].find((name) => rows.has(name));
      const divisors = named === undefined ? undefined : await rows.read(named, 0, 1);
      const shapes = [...tensors.values()].flatMap((one) => (one instanceof Uint8Array ? [] : [one]));
      const facts = languageFacts(metadata, divisors, largestCount(shapes));
      const forward = new LanguageForward(layerWorkers, facts, rows);
      const beginning = beginningOf(metadata, forward.vocabulary);
      return use({ layerWorkers, facts, forward, beginning, metadata });
    });
  return options.layerWorkers === undefined ? withLayerWorkers(workers, options, start) : start(options.layerWorkers);
}

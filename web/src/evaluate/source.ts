/** Reads the tensors of a language model, whatever file they come from, through the same tasks as conversions. */

import { gridOf, rectangleInput } from '../convert/rectangle-input.js';
import { TaskError } from '../convert/task.js';
import type { TileRunner } from '../convert/tile-runner.js';
import { ScalepointError } from '../core/errors.js';
import { elementsOf } from '../formats/codecs/elements.js';
import { codecOf, float32Form } from '../formats/codecs/registry.js';
import { quoted } from '../formats/files/bytes.js';
import type { LogicalTensor } from '../formats/format.js';
import type { LanguageTensors } from './forward.js';

/** A tensor to read, or its floats as bytes. */
export type LanguageTensor = LogicalTensor | Uint8Array<ArrayBuffer>;

/** Rows and columns of a tensor. Matrices of experts stand one below the other. */
function sizeOfShape(shape: readonly number[]): readonly [rows: number, columns: number] {
  const columns = shape.at(-1) ?? 1;
  return [elementsOf(shape) / Math.max(1, columns), columns];
}

/** Reads rows of tensors as floats. */
export class LanguageRows implements LanguageTensors {
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
    return tensor instanceof Uint8Array ? [1, tensor.length / 4] : sizeOfShape(tensor.shape);
  }

  async read(name: string, row: number, rows: number): Promise<Float32Array<ArrayBuffer>> {
    const tensor = this.#named(name);
    const [all, columns] = this.size(name);
    if (row + rows > all) {
      throw new ScalepointError('BAD_FILE', `tensor ${quoted(name)} has ${all} rows, and row ${row} is needed`, {
        tensor: name,
      });
    }
    if (tensor instanceof Uint8Array) return new Float32Array(tensor.slice().buffer, row * columns * 4, rows * columns);
    if (codecOf(tensor.form).decode === undefined) {
      throw new ScalepointError(
        'UNSUPPORTED_DTYPE',
        `tensor ${quoted(name)}: ${tensor.type} is not a readable float type`,
        {
          tensor: name,
        },
      );
    }
    // Read whole words and heads of codes, and one matrix at a time.
    const { rowUnit, matrixRows = all } = gridOf(tensor);
    const end = row + rows;
    if (Math.floor(row / matrixRows) !== Math.floor((end - 1) / matrixRows)) {
      const first = (Math.floor(row / matrixRows) + 1) * matrixRows - row;
      const both = [await this.read(name, row, first), await this.read(name, row + first, rows - first)];
      const joined = new Float32Array(rows * columns);
      let at = 0;
      for (const part of both) {
        joined.set(part, at);
        at += part.length;
      }
      return joined;
    }
    const from = Math.floor(row / rowUnit) * rowUnit;
    const to = Math.min(all, Math.ceil(end / rowUnit) * rowUnit);
    const floats = await this.#rowsOf(tensor, from, to - from, columns);
    return from === row && to === end ? floats : floats.slice((row - from) * columns, (end - from) * columns);
  }

  /** Reads rows at which a tensor can be cut. */
  async #rowsOf(tensor: LogicalTensor, row: number, rows: number, columns: number): Promise<Float32Array<ArrayBuffer>> {
    const bytes = rows * columns * 4;
    try {
      const { output } = await this.#runner.run({
        tasks: [
          {
            kind: 'encode',
            rows,
            columns,
            inputs: [rectangleInput(tensor, { row, rows, column: 0, columns, width: columns })],
            to: float32Form,
            outputs: [{ role: 'data', offset: 0, bytes }],
            measures: false,
          },
        ],
        outputBytes: bytes,
      });
      return new Float32Array(output, 0, rows * columns);
    } catch (error) {
      throw error instanceof TaskError ? error.cause : error;
    }
  }

  #named(name: string): LanguageTensor {
    const tensor = this.#tensors.get(name);
    if (tensor !== undefined) return tensor;
    throw new ScalepointError('BAD_FILE', `the model has no tensor ${quoted(name)}`, { tensor: name });
  }
}

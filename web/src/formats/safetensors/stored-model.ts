/** The view of a model that layouts get. */
import { ScalepointError } from '../../core/errors.js';
import { quoted } from '../files/bytes.js';
import { type ReadStretch, readNeighbors } from '../files/neighbors.js';
import type { OpenModel, SourceTensor } from '../format.js';
import type { Fields, StoredModel } from './layouts/layout.js';

/** True for an object of JSON. */
export const isFields = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Most bytes of a tensor that are read while planning. */
const mostBytes = 1 << 20;

/** Objects in JSON files beside models. Several plans of a model read a file once. */
const contents = new WeakMap<OpenModel, Map<string, Promise<Fields | undefined>>>();

async function readJson(model: OpenModel, name: string): Promise<Fields | undefined> {
  const bytes = await model.fileBeside?.(name);
  if (bytes === undefined) return undefined;
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
    return isFields(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The object in a JSON file beside a model; undefined without the file, and for other contents. */
export function jsonBeside(model: OpenModel, name: string): Promise<Fields | undefined> {
  const known = contents.get(model) ?? new Map<string, Promise<Fields | undefined>>();
  contents.set(model, known);
  const content = known.get(name) ?? readJson(model, name);
  known.set(name, content);
  return content;
}

/** The tensors of a model that layouts have not taken yet. */
export class RemainingTensors implements StoredModel {
  readonly #model: OpenModel;
  readonly #readers: readonly ReadStretch[];
  readonly #byName: Map<string, SourceTensor>;
  #tensors: readonly SourceTensor[];

  constructor(model: OpenModel) {
    this.#model = model;
    this.#readers = model.files.map(readNeighbors);
    this.#byName = new Map(model.tensors.map((tensor) => [tensor.name, tensor]));
    this.#tensors = model.tensors;
  }

  get metadata() {
    return this.#model.metadata;
  }

  get tensors() {
    return this.#tensors;
  }

  tensor(name: string): SourceTensor | undefined {
    return this.#byName.get(name);
  }

  read({ name, file, byteOffset, bytes: size }: SourceTensor, bytes = size): Promise<Uint8Array<ArrayBuffer>> {
    if (bytes > mostBytes) {
      throw new ScalepointError('BAD_FILE', `tensor ${quoted(name)}: ${bytes} bytes are too many for its purpose`, {
        tensor: name,
      });
    }
    return (this.#readers[file] as ReadStretch)(byteOffset, byteOffset + Math.min(bytes, size));
  }

  json(name: string): Promise<Fields | undefined> {
    return jsonBeside(this.#model, name);
  }

  /** Removes tensors. */
  take(names: Iterable<string>): void {
    let count = 0;
    for (const name of names) if (this.#byName.delete(name)) count++;
    if (count > 0) this.#tensors = this.#tensors.filter(({ name }) => this.#byName.has(name));
  }
}

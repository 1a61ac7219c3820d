/**
 * Files with external data of a model, either given or in its folder.
 * Reference: github.com/onnx/onnx, onnx/external_data_helper.py at f754691.
 */
import { ScalepointError, typeError } from '../../../core/errors.js';
import { nodeModule } from '../../../core/node.js';
import { type ByteSource, type FileInput, farFileBeside, isFarFile, quoted, systemMessage } from '../../files/bytes.js';
import { malformed } from '../../files/protobuf.js';
import type { OpenFile, OpenInput } from '../../format.js';

/** A tensor with external data, and the offset of its location in the model. */
interface Referrer {
  readonly tensor: string;
  readonly byteOffset: number;
}

function notFound(message: string, referrer: Referrer, cause?: unknown): never {
  throw new ScalepointError('NOT_FOUND', message, { ...referrer, cause });
}

/** Opens files by their names in a model, each once. */
export class ExternalFiles {
  readonly #input: FileInput;
  readonly #given: readonly ByteSource[];
  readonly #openInput: OpenInput;
  readonly #open = new Map<string, ByteSource>();

  /** @param given files in addition to the model. If not empty, only these are used. */
  constructor({ input }: OpenFile, given: readonly OpenFile[], open: OpenInput) {
    this.#input = input;
    this.#openInput = open;
    this.#given = given.map(({ source }) => source);
  }

  /**
   * Finds a file.
   * @throws ScalepointError `BAD_FILE` if the location could leave the folder of the model on some system; `NOT_FOUND`, `IO`; TypeError if two
   * given files have the name
   */
  async find(location: string, referrer: Referrer): Promise<ByteSource> {
    const { tensor, byteOffset } = referrer;
    const parts = location.replace(/^(\.\/)+/, '').split('/');
    const isPlain = parts.every((part) => part !== '' && part !== '.' && part !== '..') && !/[\\:\0]/.test(location);
    if (!isPlain) {
      const where = `its data are in ${quoted(location)}, which is not a path below the model`;
      malformed(`tensor ${quoted(tensor)}: ${where}`, byteOffset, tensor);
    }
    const path = parts.join('/');
    const known = this.#open.get(path);
    if (known !== undefined) return known;
    const source = await this.#openFile(path, referrer).catch((error: unknown) => {
      if (!(error instanceof ScalepointError) || error.byteOffset !== undefined) throw error;
      throw new ScalepointError(error.code, error.message, { ...referrer, cause: error });
    });
    this.#open.set(path, source);
    return source;
  }

  async #openFile(location: string, referrer: Referrer): Promise<ByteSource> {
    const [given, other] = this.#given.filter(({ name }) => name === location);
    if (other !== undefined) throw typeError('file', { kind: 'distinct' }, location);
    if (given !== undefined) return given;
    if (this.#given.length > 0) {
      notFound(`the model's tensors are in ${quoted(location)}, which is not among the files given`, referrer);
    }
    const model = this.#input;
    if (model instanceof URL && model.protocol !== 'file:') {
      return this.#openInput(new URL(location.split('/').map(encodeURIComponent).join('/'), model));
    }
    if (isFarFile(model)) return this.#openInput(farFileBeside(model, location));
    const input = model instanceof URL ? nodeModule('node:url')?.fileURLToPath(model) : model;
    const [paths, fs] = [nodeModule('node:path'), nodeModule('node:fs/promises')];
    if (typeof input !== 'string' || paths === undefined || fs === undefined) {
      return notFound(`pass a list of the model and ${quoted(location)}, which holds data of its tensors`, referrer);
    }
    // Open the file in the folder of the model.
    const folder = paths.dirname(input);
    let [real, expected] = ['', ''];
    try {
      expected = paths.join(await fs.realpath(folder), location);
      real = await fs.realpath(paths.join(folder, location));
    } catch (cause) {
      notFound(`the model's tensors are in ${quoted(location)}: ${systemMessage(cause)}`, referrer, cause);
    }
    // Refuse links that lead elsewhere, other than within the hub's cache. There, the folder of a snapshot links to the blobs of a repository:
    // `models--NAME/snapshots/COMMIT/PATH` and `models--NAME/blobs/DIGEST`.
    // Reference: github.com/huggingface/huggingface_hub at 12bb876b, docs/source/en/guides/manage-cache.md.
    const [, repository, sign] =
      /^(.*[\\/](?:models|datasets|spaces)--[^\\/]+([\\/]))snapshots[\\/][^\\/]+[\\/]/s.exec(expected) ?? [];
    const blobs = `${repository}blobs${sign}`;
    const isBlob = repository !== undefined && real.startsWith(blobs) && /^[^\\/]+$/.test(real.slice(blobs.length));
    if (real !== expected && !isBlob) {
      malformed(
        `${quoted(location)} beside the model is a link to another place`,
        referrer.byteOffset,
        referrer.tensor,
      );
    }
    return this.#openInput(real);
  }

  /** Total size of the opened files. */
  get bytes(): number {
    return [...this.#open.values()].reduce((sum, { size }) => sum + size, 0);
  }

  /** Closes the files opened here. */
  async close(): Promise<void> {
    for (const source of this.#open.values()) if (!this.#given.includes(source)) await source.close();
  }
}

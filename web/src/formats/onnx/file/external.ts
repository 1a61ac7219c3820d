/**
 * Files with external data of a model, either given or in its folder.
 * Reference: github.com/onnx/onnx, onnx/external_data_helper.py at f754691.
 */
import { ScalepointError, typeError } from '../../../core/errors.js';
import { nodeModule } from '../../../core/node.js';
import { type ByteSource, type FileInput, quoted, systemMessage } from '../../files/bytes.js';
import { malformed } from '../../files/protobuf.js';
import type { OpenFile, OpenInput } from '../../format.js';

/**
 * Checks a location, and returns it as a plain relative path.
 * @throws ScalepointError `BAD_FILE` if it could leave the folder of the model on some system
 */
export function checkLocation(location: string, at: number, tensor: string): string {
  const parts = location.replace(/^(\.\/)+/, '').split('/');
  const isPlain = parts.every((part) => part !== '' && part !== '.' && part !== '..') && !/[\\:\0]/.test(location);
  if (!isPlain) {
    malformed(
      `tensor ${quoted(tensor)}: its data are in ${quoted(location)}, which is not a path below the model`,
      at,
      tensor,
    );
  }
  return parts.join('/');
}

/** A tensor with external data, and the offset of its location in the model. */
export interface Referrer {
  readonly tensor: string;
  readonly byteOffset: number;
}

function missing(message: string, referrer: Referrer, cause?: unknown): never {
  throw new ScalepointError('NOT_FOUND', message, { ...referrer, cause });
}

/**
 * True for a file in the blobs of a repository in the hub's cache, which the folder of a snapshot in the same repository links to:
 * `models--NAME/snapshots/COMMIT/PATH` and `models--NAME/blobs/DIGEST`.
 * Reference: github.com/huggingface/huggingface_hub at 12bb876b, docs/source/en/guides/manage-cache.md.
 */
function isInHubCache(real: string, expected: string): boolean {
  const [, repository, sign] =
    /^(.*[\\/](?:models|datasets|spaces)--[^\\/]+([\\/]))snapshots[\\/][^\\/]+[\\/]/s.exec(expected) ?? [];
  const blobs = `${repository}blobs${sign}`;
  return repository !== undefined && real.startsWith(blobs) && /^[^\\/]+$/.test(real.slice(blobs.length));
}

/** Opens a file in the folder of a path. Fails if links lead elsewhere, other than within the hub's cache. */
async function besidePath(
  input: string,
  location: string,
  open: OpenInput,
  referrer: Referrer,
): Promise<ByteSource | undefined> {
  const [paths, fs] = [nodeModule('node:path'), nodeModule('node:fs/promises')];
  if (paths === undefined || fs === undefined) return undefined;
  const folder = paths.dirname(input);
  let [real, expected] = ['', ''];
  try {
    expected = paths.join(await fs.realpath(folder), location);
    real = await fs.realpath(paths.join(folder, location));
  } catch (cause) {
    missing(`the model's tensors are in ${quoted(location)}: ${systemMessage(cause)}`, referrer, cause);
  }
  if (real !== expected && !isInHubCache(real, expected)) {
    malformed(`${quoted(location)} beside the model is a link to another place`, referrer.byteOffset, referrer.tensor);
  }
  return open(real);
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

  /** Finds a file. @throws ScalepointError `NOT_FOUND`, `IO`; TypeError if two given files have the name */
  async find(location: string, referrer: Referrer): Promise<ByteSource> {
    const known = this.#open.get(location);
    if (known !== undefined) return known;
    const source = await this.#openFile(location, referrer).catch((error: unknown) => {
      if (!(error instanceof ScalepointError) || error.byteOffset !== undefined) throw error;
      throw new ScalepointError(error.code, error.message, { ...referrer, cause: error });
    });
    this.#open.set(location, source);
    return source;
  }

  async #openFile(location: string, referrer: Referrer): Promise<ByteSource> {
    const [given, other] = this.#given.filter(({ name }) => name === location);
    if (other !== undefined) throw typeError('file', { kind: 'distinct' }, location);
    if (given !== undefined) return given;
    if (this.#given.length > 0) {
      missing(`the model's tensors are in ${quoted(location)}, which is not among the files given`, referrer);
    }
    if (this.#input instanceof URL && this.#input.protocol !== 'file:') {
      const path = location.split('/').map(encodeURIComponent).join('/');
      return this.#openInput(new URL(path, this.#input));
    }
    const input = this.#input instanceof URL ? nodeModule('node:url')?.fileURLToPath(this.#input) : this.#input;
    const found = typeof input === 'string' ? await besidePath(input, location, this.#openInput, referrer) : undefined;
    return (
      found ?? missing(`pass a list of the model and ${quoted(location)}, which holds data of its tensors`, referrer)
    );
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

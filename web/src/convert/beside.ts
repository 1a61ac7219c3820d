/** Files beside a model, such as its configuration and its tokenizer: given with the model, or looked for in its folder. */
import type { Beside } from '../architectures/converter.js';
import { isFileBeside } from '../architectures/registry.js';
import { typeError } from '../core/errors.js';
import { nodeModule } from '../core/node.js';
import type { Waiting } from '../core/waiting.js';
import { type ByteSource, type FileInput, isMissing, quoted, tooLongError } from '../formats/files/bytes.js';
import { decodedName, type InputNotes, openInput } from '../formats/files/open.js';
import type { OpenFile } from '../formats/format.js';
import { signatures } from '../formats/signatures.js';

/** Names of files that accompany a model, and names of indices, which list the files of a model. */
const besides = /\.(json|txt|model|jinja|md)$/i;
const indices = /(^|\.)index\.json$/i;

/** The path of a File within the folder that the user chose, else its name. */
function folderPath({ input, source }: OpenFile): string {
  const { webkitRelativePath } = input as { webkitRelativePath?: unknown };
  return typeof webkitRelativePath === 'string' && webkitRelativePath !== '' ? webkitRelativePath : (source.name ?? '');
}

/** Bytes at the start of an index that contain `weight_map`. */
const indexHead = 1 << 16;

const indexStart = ({ source }: OpenFile) => source.read(0, Math.min(source.size, indexHead));

/** Separates the files of a model from those beside it. If there are no others, all files belong to the model. */
export async function separated(
  files: readonly OpenFile[],
): Promise<{ model: readonly OpenFile[]; beside: readonly OpenFile[] }> {
  const isBeside = (file: OpenFile) => {
    const { name = '' } = file.source;
    return (besides.test(name) && !indices.test(name)) || isFileBeside(name, folderPath(file));
  };
  const model = files.filter((file) => !isBeside(file));
  let beside = files.filter(isBeside);
  // The index of a model with data in other files may be JSON, too.
  for (const file of beside) {
    const head = await indexStart(file);
    if (!signatures().some(({ takesData, sniff }) => takesData === true && sniff?.(head) === true)) continue;
    model.push(file);
    beside = beside.filter((other) => other !== file);
  }
  if (model.length === 0) return { model: files, beside: [] };
  if (model.length > 1 && !model.some(({ source: { name = '' } }) => indices.test(name))) {
    // Browsers rename files that are saved twice, so that names prove nothing.
    for (const file of beside) {
      if (!new TextDecoder().decode(await indexStart(file)).includes('"weight_map"')) continue;
      model.push(file);
      beside = beside.filter((other) => other !== file);
      break;
    }
  }
  return { model, beside };
}

/** Largest size of a file beside a model, in bytes. Tokenizers of some models have 35 MB. */
const mostBytes = 100_000_000;

async function contentOf(name: string, source: ByteSource): Promise<Uint8Array<ArrayBuffer>> {
  if (source.size > mostBytes) throw tooLongError(quoted(name), mostBytes);
  return source.read(0, source.size);
}

/**
 * The files beside a model.
 * @param beside the files that were given with it
 * @param notes takes the files that are read
 */
export function besideOf(
  { input }: OpenFile,
  beside: readonly OpenFile[],
  waiting: Waiting,
  notes: InputNotes,
): Beside {
  // Locate files in the folder of a path or URL.
  let folder: string | undefined;
  let locate: ((name: string) => FileInput) | undefined;
  const paths = nodeModule('node:path');
  if (input instanceof URL) {
    folder = decodedName(input.pathname.split('/').at(-2) ?? '');
    locate = (name) => new URL(name.split('/').map(encodeURIComponent).join('/'), input);
  } else if (typeof input === 'string' && paths !== undefined) {
    const path = paths.dirname(paths.resolve(input));
    folder = paths.basename(path);
    locate = (name) => paths.join(path, name);
  }
  if (locate === undefined || beside.length > 0) {
    // Find files among the given ones, by their paths in the folder or by their names.
    const given = beside.map(folderPath);
    const [top] = (given.find((path) => path.includes('/')) ?? '').split('/');
    return {
      folder: top || undefined,
      isRemote: false,
      async file(name) {
        const [found, other] = beside.filter((_, i) => given[i] === name || given[i] === `${top}/${name}`);
        if (found === undefined) return undefined;
        if (other !== undefined) throw typeError('file', { kind: 'distinct' }, name);
        return contentOf(name, found.source);
      },
    };
  }
  const locateFile = locate;
  return {
    folder: folder || undefined,
    isRemote: input instanceof URL && input.protocol !== 'file:',
    async file(name) {
      const open = async (path: string): Promise<ByteSource | undefined> => {
        try {
          return await openInput(waiting, locateFile(path), notes, { most: mostBytes });
        } catch (error) {
          if (isMissing(error)) return undefined;
          throw error;
        }
      };
      // The settings of models for transformers.js lie above their folder onnx.
      const isInside = folder === 'onnx' && /\.onnx($|\?)/i.test(String(input));
      const source = (await open(name)) ?? (isInside ? await open(`../${name}`) : undefined);
      if (source === undefined) return undefined;
      try {
        return await contentOf(name, source);
      } finally {
        await source.close();
      }
    },
  };
}

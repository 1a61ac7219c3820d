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
function pathOf({ input, source }: OpenFile): string {
  const { webkitRelativePath } = input as { webkitRelativePath?: unknown };
  return typeof webkitRelativePath === 'string' && webkitRelativePath !== '' ? webkitRelativePath : (source.name ?? '');
}

/** Bytes at the start of an index that contain `weight_map`. */
const indexHead = 1 << 16;

const headOf = ({ source }: OpenFile) => source.read(0, Math.min(source.size, indexHead));

/** True for a file whose content is that of an index. Browsers rename files that are saved twice, so that names prove nothing. */
async function isIndex(file: OpenFile): Promise<boolean> {
  return new TextDecoder().decode(await headOf(file)).includes('"weight_map"');
}

/** Separates the files of a model from those beside it. If there are no others, all files belong to the model. */
export async function separated(
  files: readonly OpenFile[],
): Promise<{ model: readonly OpenFile[]; beside: readonly OpenFile[] }> {
  const isBeside = (file: OpenFile) => {
    const { name = '' } = file.source;
    return (besides.test(name) && !indices.test(name)) || isFileBeside(name, pathOf(file));
  };
  const model = files.filter((file) => !isBeside(file));
  let beside = files.filter(isBeside);
  // The index of a model with data in other files may be JSON, too.
  for (const file of beside) {
    const head = await headOf(file);
    if (!signatures().some(({ takesData, sniff }) => takesData === true && sniff?.(head) === true)) continue;
    model.push(file);
    beside = beside.filter((other) => other !== file);
  }
  if (model.length === 0) return { model: files, beside: [] };
  if (model.length > 1 && !model.some(({ source: { name = '' } }) => indices.test(name))) {
    for (const file of beside) {
      if (!(await isIndex(file))) continue;
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

/** Finds files among the given ones, by their paths in the folder or by their names. */
function amongGiven(files: readonly OpenFile[]): Beside {
  const paths = files.map(pathOf);
  const [folder] = (paths.find((path) => path.includes('/')) ?? '').split('/');
  return {
    folder: folder === '' ? undefined : folder,
    isRemote: false,
    async file(name) {
      const matching = files.filter((_, i) => {
        const path = paths[i] as string;
        return path === name || path === `${folder}/${name}`;
      });
      const [found, other] = matching;
      if (found === undefined) return undefined;
      if (other !== undefined) throw typeError('file', { kind: 'distinct' }, name);
      return contentOf(name, found.source);
    },
  };
}

/** Locates files in the folder of a path or URL. Undefined for inputs without a folder. */
function inFolder(input: FileInput): { folder: string | undefined; locate(name: string): FileInput } | undefined {
  if (input instanceof URL) {
    const folder = decodedName(input.pathname.split('/').at(-2) ?? '');
    const inUrl = (name: string) => new URL(name.split('/').map(encodeURIComponent).join('/'), input);
    return { folder: folder === '' ? undefined : folder, locate: inUrl };
  }
  const paths = nodeModule('node:path');
  if (typeof input !== 'string' || paths === undefined) return undefined;
  const folder = paths.dirname(paths.resolve(input));
  return { folder: paths.basename(folder) || undefined, locate: (name) => paths.join(folder, name) };
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
  const located = beside.length > 0 ? undefined : inFolder(input);
  if (located === undefined) return amongGiven(beside);
  return {
    folder: located.folder,
    isRemote: input instanceof URL && input.protocol !== 'file:',
    async file(name) {
      const open = async (path: string): Promise<ByteSource | undefined> => {
        try {
          return await openInput(waiting, located.locate(path), notes, { most: mostBytes });
        } catch (error) {
          if (isMissing(error)) return undefined;
          throw error;
        }
      };
      // The settings of models for transformers.js lie above their folder onnx.
      const isInside = located.folder === 'onnx' && /\.onnx($|\?)/i.test(String(input));
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

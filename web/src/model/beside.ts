/** Files beside a model: its configuration, its tokenizer. They were given with it, or are looked for in its folder. */
import type { Beside } from '../conversions/converter.js';
import { ScalepointError, typeError } from '../core/errors.js';
import { nodeModule } from '../core/node.js';
import type { Waiting } from '../core/waiting.js';
import { type ByteSource, type FileInput, isMissing, quoted } from '../files/bytes.js';
import { openWithin } from '../files/open.js';
import { decodedName } from '../files/url.js';
import type { OpenFile } from '../formats/format.js';

/** Names of files that are no models, and belong to one. Indices name the files of a model. */
const besides = /\.(json|txt|model|jinja|md)$/i;
const indices = /(^|\.)index\.json$/i;

/** The path of a file in the folder that was given, if it came with one: that of a File whose folder was chosen. */
function pathOf({ input, source }: OpenFile): string {
  const { webkitRelativePath } = input as { webkitRelativePath?: unknown };
  return typeof webkitRelativePath === 'string' && webkitRelativePath !== '' ? webkitRelativePath : (source.name ?? '');
}

/** Where indices tell that they are one, as far as is looked. */
const indexHead = 1 << 16;

/** Whether a file with the name of any other is an index. Browsers rename files that are saved twice. */
async function isIndex({ source }: OpenFile): Promise<boolean> {
  const head = new TextDecoder().decode(await source.read(0, Math.min(source.size, indexHead)));
  return head.includes('"weight_map"');
}

/** Tells the files of a model from those beside it. If nothing else is there, all are files of a model. */
export async function separated(
  files: readonly OpenFile[],
): Promise<{ model: readonly OpenFile[]; beside: readonly OpenFile[] }> {
  const isBeside = ({ source: { name = '' } }: OpenFile) => besides.test(name) && !indices.test(name);
  const model = files.filter((file) => !isBeside(file));
  let beside = files.filter(isBeside);
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

/** Tokenizers of some models have 35 MB. */
const mostBytes = 100_000_000;

async function contentOf(name: string, source: ByteSource): Promise<Uint8Array<ArrayBuffer>> {
  if (source.size <= mostBytes) return source.read(0, source.size);
  throw new ScalepointError('BAD_FILE', `${quoted(name)} has ${source.size} bytes, more than the ${mostBytes} allowed`);
}

/** Finds files among those given: by their paths in the folder, or by their names. */
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

/** Opens files by path or URL in the folder of another. Undefined if that has no folder. */
function inFolder(input: FileInput): { folder: string | undefined; place(name: string): FileInput } | undefined {
  if (input instanceof URL) {
    const folder = decodedName(input.pathname.split('/').at(-2) ?? '');
    const inUrl = (name: string) => new URL(name.split('/').map(encodeURIComponent).join('/'), input);
    return { folder: folder === '' ? undefined : folder, place: inUrl };
  }
  const paths = nodeModule('node:path');
  if (typeof input !== 'string' || paths === undefined) return undefined;
  const folder = paths.dirname(paths.resolve(input));
  return { folder: paths.basename(folder) || undefined, place: (name) => paths.join(folder, name) };
}

/** What lies beside a model. @param beside the files that were given with it */
export function besideOf({ input }: OpenFile, beside: readonly OpenFile[], waiting: Waiting): Beside {
  const place = beside.length > 0 ? undefined : inFolder(input);
  if (place === undefined) return amongGiven(beside);
  return {
    folder: place.folder,
    isRemote: input instanceof URL && input.protocol !== 'file:',
    async file(name) {
      let source: ByteSource;
      try {
        source = await openWithin(waiting, place.place(name));
      } catch (error) {
        if (isMissing(error)) return undefined;
        throw error;
      }
      try {
        return await contentOf(name, source);
      } finally {
        await source.close();
      }
    },
  };
}

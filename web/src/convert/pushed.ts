/** The files of a result in a repository of the hub: their places, and the files of the source that belong beside them. */
import { nodeModule } from '../core/node.js';
import type { PushFile } from '../hub/push.js';
import type { HubFile } from '../hub/repository.js';
import { onnxFolder } from './folder.js';

/** Largest file in bytes that is taken along. */
export const mostAlong = 50_000_000;

/** The place of a file of a result, where programs look for it. @param isWhole true if config.json is pushed with it */
export function pathOnHub(path: string, isWhole: boolean): string {
  const name = path.split(/[/\\]/).at(-1) as string;
  if (!isWhole) return name;
  if (/\.onnx([._]data(_\d+)?)?$/.test(name)) return `${onnxFolder}/${name}`;
  const [end] = /\.safetensors(\.index\.json)?$/.exec(name) ?? [];
  const isShard = /-\d{5,}-of-\d{5,}\./.test(name);
  return end === undefined || isShard ? name : `model${end}`;
}

/** Those of some files that the repository of a model has beside it. */
export async function alongOnHub(file: HubFile, names: readonly string[]): Promise<PushFile[]> {
  const found: PushFile[] = [];
  const urls = nodeModule('node:url');
  // A model for transformers.js has its settings in the folder above.
  const up = file.folder === onnxFolder ? '../' : '';
  for (const path of names) {
    const beside = file.beside(up + path);
    if ((beside?.entry.size ?? mostAlong) >= mostAlong) continue;
    const source = await beside?.open(undefined);
    if (source === undefined) continue;
    if (source instanceof Blob) found.push({ path, content: source });
    else if (typeof source === 'string') found.push({ path, content: urls?.pathToFileURL(source) as URL });
    else found.push({ path, content: new Blob([await source.read(0, source.size)]) });
  }
  return found;
}

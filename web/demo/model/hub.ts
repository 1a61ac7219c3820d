// Models of the hub on the page: the name in the field or in a link, the token of this tab, and the files of a model.
import {
  fileInRepository,
  type HubFile,
  type HubName,
  hubNameOf,
  hubNameText,
  hubSettings,
  isFileBeside,
  openRepository,
} from '../../src/tooling.js';
import { describeModel, FileError, type ModelFile } from '../shared/files.js';
import { type HubPageFile, wholeFile } from '../shared/page-files.js';
import { storedToken } from './hub-link.js';

/** A name as a person writes it: `owner/name:Q4_K_M`. */
const shortName = (name: HubName) => hubNameText(name).slice(3);

/** The files that make up a model, the main one first: its shards or its data, and those that describe it. */
async function filesOf(main: HubFile): Promise<readonly HubPageFile[]> {
  const { listing, settings } = main.repository;
  const pageFile = (path: string, size: number): HubPageFile => {
    const name = path.split('/').at(-1) as string;
    return { name, size, path, webkitRelativePath: `${listing.id.split('/')[1]}/${path}`, listing, settings };
  };
  const { path, size = 0 } = main.entry;
  const own = pageFile(path, size);
  const folder = path.slice(0, -own.name.length);
  const [, stem, parts] = /^(.*)-00001-of-(\d{5})\.gguf$/.exec(path) ?? [];
  const shards = new Set<string>();
  if (/\.index\.json$/i.test(path)) {
    const index = JSON.parse(await (await wholeFile(own)).text()) as { weight_map?: Record<string, string> };
    for (const shard of Object.values(index.weight_map ?? {})) shards.add(folder + shard);
  }
  const isPart = (other: string) =>
    shards.has(other) ||
    (stem !== undefined && other.startsWith(`${stem}-`) && other.endsWith(`-of-${parts}.gguf`)) ||
    (/\.onnx$/i.test(path) && (other.startsWith(`${path}_data`) || other === `${path}.data`));
  // A model for transformers.js has its settings in the folder above.
  const above = folder.replace(/onnx\/$/, '');
  const isBeside = (other: string) =>
    other.startsWith(above) && isFileBeside(other.split('/').at(-1) as string, `folder/${other.slice(above.length)}`);
  const others = listing.files.filter((entry) => entry.path !== path && (isPart(entry.path) || isBeside(entry.path)));
  return [own, ...others.map((entry) => pageFile(entry.path, entry.size ?? 0))];
}

/**
 * Opens a model of the hub by its name: asks for the listing, and for the headers.
 * @param text `owner/name`, `hf:owner/name`, or an address of the hub
 * @throws RangeError for a wrong name; ScalepointError in the words of the hub
 */
export async function openHubModel(text: string, endpoint: string): Promise<ModelFile> {
  const token = storedToken();
  const { token: _, ...settings } = hubSettings({ endpoint });
  const name = hubNameOf(/^(hf|https?):/i.test(text) ? text : `hf:${text}`, endpoint);
  if (name === undefined) throw new FileError(`${text} does not name a model on ${new URL(endpoint).host}.`);
  const repository = await openRepository(name, {
    ...settings,
    ...(token !== '' && { token: { text: token, from: 'this page' } }),
  });
  const main = fileInRepository(repository, name);
  const files = await filesOf(main);
  const repositoryName = name.id.split('/')[1] as string;
  // A usual name of a file says nothing beside those of other models.
  const own = main.name.replace(
    /^(model|pytorch_model|diffusion_pytorch_model|adapter_model)(?=[._-])/i,
    repositoryName,
  );
  return { ...(await describeModel(own, files)), hub: { name: shortName(name), host: new URL(endpoint).host } };
}

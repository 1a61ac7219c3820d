import { inspectModel, type ModelFormat, type ModelTensor, modelFormats, ScalepointError } from 'scalepoint/model';
import { isFileBeside, problemOf } from '../../src/tooling.js';
import { FileError } from './file-error.js';
import { inputOf, type PageFile } from './page-files.js';
import { headOf, isPointer, pointerText, strangerOf } from './strangers.js';

export { FileError };

/** A model file. */
export interface ModelFile {
  readonly name: string;
  readonly format: ModelFormat;
  /** The other format that it can be converted to, if there is one. */
  readonly other?: ModelFormat;
  /** Formats whose results are folders, and to which the model can be converted, in browsers that write folders. */
  readonly folders?: readonly ModelFormat[];
  /** One file, or an index and all of its shards, or a model and its data. */
  readonly files: readonly PageFile[];
  readonly tensors: readonly ModelTensor[];
  /** Its name on the hub, such as `owner/name:Q4_K_M`, and the host of the hub; undefined for files of the visitor. */
  readonly hub?: { readonly name: string; readonly host: string };
}

/** The name of a model behind that of the folder that was dropped or chosen: results are named after the folder. */
export function nameInFolder({ name, files }: ModelFile): string {
  const folder = files[0]?.webkitRelativePath.split('/')[0];
  return folder ? `${folder}/${name}` : name;
}

/** The name by which people know a model: that of its file, or of its folder or repository where many models have files of that name. */
export function titleOf({ name, files, hub }: ModelFile): string {
  if (!/^(diffusion_pytorch_model|(pytorch_)?model)\.[\w.]*$/i.test(name)) return name;
  const folders = files[0]?.webkitRelativePath.split('/').slice(0, -1) ?? [];
  return hub?.name ?? folders.filter((one) => !/^(onnx|transformer|unet)$/.test(one)).at(-1) ?? name;
}

/** The extensions of all model formats, as in a sentence: `.safetensors, .gguf, .onnx and .npy`. */
export function modelExtensions(): string {
  // Models in folders have files with fixed names, of which one alone is no model.
  const all = modelFormats().flatMap(({ extensions: [usual] }) => (usual?.startsWith('.') ? [usual] : []));
  return `${all.slice(0, -1).join(', ')} and ${all.at(-1)}`;
}

/** An extension of models that programs of all kinds use for other data. */
const anyData = '.bin';

/** The format that the name of a file claims. */
export function claimOf(name: string): ModelFormat | undefined {
  const ends = (extension: string) => extension !== anyData && name.toLowerCase().endsWith(extension);
  return modelFormats().find(({ extensions }) => extensions.some(ends))?.name;
}

/** True if the name of a file says that it is a model. */
const claims = (name: string) => claimOf(name) !== undefined;

export const isIndex = ({ name }: File) => /\.index\.json$/i.test(name);

/** The file that gives a model its name: the index of shards, or the first file with the extension of a model. */
export function mainFile(files: readonly File[]): File {
  return (files.find(isIndex) ?? files.find(({ name }) => claims(name)) ?? files[0]) as File;
}

/** True for a file that describes a model, such as its config.json. */
export const isBeside = ({ name, webkitRelativePath }: File) => isFileBeside(name, webkitRelativePath);

/**
 * The files of a model among files that were dropped together. Leaves out pictures and the like. Any file may hold data of an ONNX model.
 * @throws FileError if the names are those of models of several formats
 */
function filesOfModel(files: readonly File[]): readonly File[] {
  const models = files.filter(({ name }) => claims(name));
  const formats = new Set(models.map(({ name }) => claimOf(name)));
  if (formats.size > 1) {
    const [first, second] = [...formats].map((format) => models.find(({ name }) => claimOf(name) === format)?.name);
    throw new FileError(`${first} and ${second} are models of two formats. Drop one of them at a time.`);
  }
  if (formats.size === 0 || formats.has('onnx')) return files;
  return files.filter((file) => claims(file.name) || isIndex(file) || isBeside(file));
}

/** Reads the headers of a model. @throws what `inspectModel` throws, FileError for a model without tensors */
export async function describeModel(name: string, files: readonly PageFile[]): Promise<ModelFile> {
  const { format, tensors, conversion } = await inspectModel(inputOf(files));
  if (tensors.length === 0) throw new FileError(`${name} is a model without tensors. Choose another file.`);
  const other = conversion && modelFormats().find((one) => one.name === conversion.format)?.name;
  return { name, format, ...(other && { other: other as ModelFormat }), files, tensors };
}

/**
 * Opens model files. Their content decides the format. Undefined if neither their content nor their name is that of a model.
 * @throws ScalepointError if they are a model but violate its format; FileError if there are several files that belong to no model
 */
export async function openModelFiles(dropped: readonly File[]): Promise<ModelFile | undefined> {
  const files = filesOfModel(dropped);
  const main = mainFile(files);
  for (const file of files) if (await isPointer(file)) throw new FileError(pointerText(file.name));
  try {
    return await describeModel(main.name, files);
  } catch (error) {
    if (error instanceof RangeError) {
      throw new FileError(
        `${files.length} files were dropped, but they are not one model: that takes an index.json with its files, or all files of a split GGUF. Drop the missing ones as well, or one file.`,
      );
    }
    if (problemOf(error)?.option === 'file') {
      throw new FileError(`${main.name} is one of several files of a model. Drop all of them together.`);
    }
    const unknown = error instanceof ScalepointError && error.code === 'UNKNOWN_FORMAT';
    if (!unknown) throw error;
    if (claims(main.name) && main.size > 0 && strangerOf(await headOf(main)) === undefined) {
      throw new FileError(
        `${main.name} does not begin like such a file: its header is damaged, or it is something else. Download it again, or choose another file.`,
      );
    }
    return undefined;
  }
}

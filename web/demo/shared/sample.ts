import { FileError } from './file-error.js';
import { withPath } from './file-path.js';
import { siteRoot } from './site.js';

/** Fetches a file of a sample. @throws FileError if it is not there */
async function fetched(path: string): Promise<File> {
  const response = await fetch(new URL(`samples/${path}`, siteRoot)).catch(() => undefined);
  // Some servers answer with their start page if a file is missing.
  if (!response?.ok || /html/.test(response.headers.get('content-type') ?? '')) {
    throw new FileError('The sample model is not on this server, or the connection failed. Drop a file of your own.');
  }
  return new File([await response.arrayBuffer()], path.split('/').at(-1) as string);
}

/** The sample that each file belongs to, by its name. */
const names = new WeakMap<File, SampleName>();

/** Name of the sample that has these files; undefined for other files. */
export function sampleName([file]: readonly File[]): SampleName | undefined {
  return file && names.get(file);
}

/** Fetches the sample model, which is served beside the pages. @throws FileError if it is not there */
export async function sampleFile(): Promise<File> {
  const file = await fetched('digits.safetensors');
  names.set(file, 'digits');
  return file;
}

/** Data to run a sample with, by its file, until they are taken. */
const data = new WeakMap<File, readonly File[]>();

/** Takes the data that a sample came with: each time that it is fetched, once. Undefined for other files. */
export function takeSampleData([file]: readonly object[]): readonly File[] | undefined {
  const found = data.get(file as File);
  data.delete(file as File);
  return found;
}

/** The same network as an ONNX model of pictures, which comes with a drawn digit. @throws FileError if the sample is not there */
export async function pictureSample(): Promise<File[]> {
  const [sample, { onnxOfDigits, drawnDigit }] = await Promise.all([sampleFile(), import('./digits-onnx.js')]);
  const model = new File([onnxOfDigits(await sample.arrayBuffer())], 'digits.onnx');
  names.set(model, 'picture');
  data.set(model, [await drawnDigit()]);
  return [model];
}

/** Fetches the folder of the language model of the front page. @throws FileError if it is not there */
export const storyteller = (): Promise<File[]> =>
  Promise.all(
    ['model.safetensors', 'config.json', 'tokenizer.json', 'tokenizer_config.json'].map(async (name) => {
      const path = `storyteller/${name}`;
      const file = withPath(await fetched(path), path);
      names.set(file, 'storyteller');
      return file;
    }),
  );

const samples = {
  digits: async () => [await sampleFile()],
  picture: pictureSample,
  storyteller,
} as const;
export type SampleName = keyof typeof samples;

/** Fetches the model of a sample again. @throws FileError if it is not there */
export const fetchSample = (name: SampleName): Promise<File[]> => samples[name]();

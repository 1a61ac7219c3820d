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

/** Fetches the sample model, which is served beside the pages. @throws FileError if it is not there */
export const sampleFile = (): Promise<File> => fetched('digits.safetensors');

/** The same network as an ONNX model of pictures, and a drawn digit. @throws FileError if the sample is not there */
export async function pictureSample(): Promise<{ readonly model: File; readonly picture: File }> {
  const [sample, { onnxOfDigits, drawnDigit }] = await Promise.all([sampleFile(), import('./digits-onnx.js')]);
  return { model: new File([onnxOfDigits(await sample.arrayBuffer())], 'digits.onnx'), picture: await drawnDigit() };
}

/** Fetches the folder of the language model of the front page. @throws FileError if it is not there */
export const storyteller = (): Promise<File[]> =>
  Promise.all(
    ['model.safetensors', 'config.json', 'tokenizer.json', 'tokenizer_config.json'].map(async (name) => {
      const path = `storyteller/${name}`;
      return withPath(await fetched(path), path);
    }),
  );

import { FileError } from './file-error.js';
import { siteRoot } from './site.js';

/** Fetches the sample model, which is served beside the pages. @throws FileError if it is not there */
export async function sampleFile(): Promise<File> {
  const response = await fetch(new URL('samples/digits.safetensors', siteRoot)).catch(() => undefined);
  // Some servers answer with their start page if a file is missing.
  if (!response?.ok || /html/.test(response.headers.get('content-type') ?? '')) {
    throw new FileError('The sample model is not on this server, or the connection failed. Drop a file of your own.');
  }
  return new File([await response.arrayBuffer()], 'digits.safetensors');
}

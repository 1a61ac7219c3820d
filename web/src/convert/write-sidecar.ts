/** Writes files beside a result. */
import { pathSink } from '../formats/files/path-sink.js';

/**
 * Writes a small file beside a result, such as its config.json (Node). It appears whole or not at all.
 * @throws ScalepointError `EXISTS` if the file is there and `overwrite` is false, `IO`
 */
export async function writeSidecar(path: string | URL, text: string, overwrite = false): Promise<void> {
  const sink = await pathSink(path, overwrite);
  try {
    await sink.write(0, new TextEncoder().encode(text));
    await sink.finish();
  } finally {
    await sink.discard(undefined);
  }
}

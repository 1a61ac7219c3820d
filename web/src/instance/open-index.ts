import { imported } from '../core/imported.js';
import type { OptionFile } from '../formats/files/bytes.js';
import type { OpenIndexOptions, VectorIndex } from '../search/search-types.js';

/**
 * Opens an index that `index.save` wrote, in an instance of the core of its own, whose memory holds the codes. `dispose` frees all of it.
 * @param file bytes, a Blob or File, a file handle of the browser, a URL, which is read by ranges, or in Node a path or an open file
 * @example const index = await openIndex('notes.index.safetensors'); index.search(query).ids;
 * @throws TypeError or RangeError naming the option; ScalepointError `BAD_FILE` if the file is damaged or is no index, `IO`, `WASM_LOAD`,
 *   `CSP`, `OUT_OF_MEMORY`; the signal's reason
 */
export async function openIndex(file: OptionFile, options: OpenIndexOptions = {}): Promise<VectorIndex> {
  // Import it here, because apps without an index do not need it.
  const { openIndexFile } = await imported(import('../search/open-index.js'));
  return openIndexFile(file, options);
}

// Unpacks files that are part of the code as compressed text.
import { ScalepointError } from '../core/errors.js';
import { nodeModule } from '../core/node.js';

/** Decompresses with the streams of the web, which Node has as well. */
async function inflate(packed: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const { readable, writable } = new DecompressionStream('gzip');
  // Use no Blob or Response: in jsdom they have no streams.
  const writer = writable.getWriter();
  const written = Promise.all([writer.write(packed), writer.close()]);
  const reader = readable.getReader();
  const chunks: Uint8Array[] = [];
  for (let next = await reader.read(); !next.done; next = await reader.read()) chunks.push(next.value);
  await written;
  const bytes = new Uint8Array(chunks.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.length;
  }
  return bytes;
}

/** Restores the bytes of a file. @throws ScalepointError `WASM_LOAD` if this engine cannot decompress */
export async function unpackEmbedded(text: string): Promise<Uint8Array<ArrayBuffer>> {
  const packed = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  if (typeof DecompressionStream !== 'undefined') return inflate(packed);
  const zlib = nodeModule('node:zlib');
  if (zlib === undefined) {
    throw new ScalepointError(
      'WASM_LOAD',
      "this engine has no DecompressionStream: import 'scalepoint', which works without it",
    );
  }
  return new Uint8Array(zlib.gunzipSync(packed));
}

/** Opens safetensors files, and models in several of them. */
import type { OpenFile, OpenInput, OpenModel } from '../format.js';
import { readSafetensors } from './header.js';
import { openShards } from './shards.js';
import { isIndex } from './signature.js';

/** Opens a file, or an index and the files that it names. @throws ScalepointError `BAD_FILE`, and errors of `openShards` */
export async function openSafetensors(files: readonly OpenFile[], open: OpenInput): Promise<OpenModel> {
  const [{ input, source }, ...others] = files as [OpenFile, ...OpenFile[]];
  const head = await source.read(0, Math.min(32, source.size));
  if (isIndex(head)) {
    const given = others.map((other) => other.source);
    return openShards(input, source, given, open);
  }
  const { tensors, metadata } = await readSafetensors(source);
  return { bytes: source.size, files: [source], tensors, metadata };
}

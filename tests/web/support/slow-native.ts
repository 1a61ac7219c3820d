// Results of the native library where it takes seconds to get ready: digests of its bytes, recorded in tests/golden/ggml.json (Node only).
import { readFileSync, writeFileSync } from 'node:fs';
import type { BlockType } from 'scalepoint';
import { expect } from 'vitest';
import type { GgufTarget } from '../../../web/src/formats/gguf/targets.js';
import { digestOf } from './digests.js';
import { expectSame } from './support.js';

/** True if ggml sorts all points of a grid for each of 43,000 codes before it makes a block: 1 to 9 seconds. */
export const isSlow = (type: BlockType) => /^IQ[12]_/.test(type);
/** True if a file of it has such blocks. */
export const isSlowFile = (to: GgufTarget) => /^(IQ[12]_|IQ3_XXS$)/.test(to);

const path = new URL('../../golden/ggml.json', import.meta.url);
const isRecording = process.env.SCALEPOINT_RECORD !== undefined;

/** Fails unless bytes are those that the native library made. While recording, it makes them now. */
export async function expectRecorded(
  name: string,
  bytes: Uint8Array<ArrayBuffer>,
  native: () => Uint8Array<ArrayBuffer>,
): Promise<void> {
  const digest = await digestOf(bytes);
  const recorded = JSON.parse(readFileSync(path, 'utf8')) as Record<string, string>;
  if (!isRecording) {
    expect(digest, name).toBe(recorded[name]);
    return;
  }
  expectSame(bytes, native(), name);
  writeFileSync(path, `${JSON.stringify({ ...recorded, [name]: digest }, undefined, 2)}\n`);
}

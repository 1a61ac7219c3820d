/** Checksums of files of a result, which other files of it hold. */
import { Md5 } from '../formats/files/checksums.js';
import type { ByteSink } from '../formats/files/sinks.js';
import type { FilePlan } from '../formats/format.js';

/** The checksum of a file in the making, and its places in other files. */
interface Checksum {
  readonly sum: Md5;
  readonly places: { readonly file: number; readonly at: number }[];
}

/** The checksums of a plan. */
export class Checksums {
  readonly #byFile = new Map<number, Checksum>();

  constructor({ files }: FilePlan) {
    for (const [file, { segments }] of files.entries()) {
      for (const segment of segments) {
        if (!('md5' in segment)) continue;
        const own = this.#byFile.get(segment.md5) ?? { sum: new Md5(), places: [] };
        own.places.push({ file, at: segment.at });
        this.#byFile.set(segment.md5, own);
      }
    }
  }

  /** Adds the next bytes of a file. False if it has no checksum, so that the order of its bytes does not matter. */
  add(file: number, bytes: Uint8Array): boolean {
    const own = this.#byFile.get(file);
    own?.sum.update(bytes);
    return own !== undefined;
  }

  /** Writes all checksums, after everything else. */
  async write(sinks: readonly ByteSink[]): Promise<void> {
    for (const { sum, places } of this.#byFile.values()) {
      const digits = new TextEncoder().encode(sum.hex());
      for (const { file, at } of places) await (sinks[file] as ByteSink).write(at, digits);
    }
  }
}

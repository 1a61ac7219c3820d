/**
 * Files of second moments, in the layout of safetensors. For each distinct input of weights, under the name of the first of them in llama.cpp's
 * names: the square of means of products, and `NAME.diagonal`, its diagonal. If data was held back, `NAME.heldBack` is the square of that
 * data. `NAME.divergence` is the divergence that a weight causes for each unit of relative error (`divergence.ts`). The metadata name the entry
 * of every weight, and hold the number of tokens, and of those that were held back, or are random.
 */
import type { ByteSink } from '../formats/files/sinks.js';
import { divergenceEnd } from '../formats/statistics.js';

/** Weights with the same inputs. */
export interface SharedInputs {
  readonly names: readonly string[];
  readonly columns: number;
  /** True if there are moments of held-back data. */
  readonly heldBack: boolean;
}

/** Tokens of a file of moments. */
interface CountedTokens {
  readonly tokens: number;
  /** Further tokens, which were held back. */
  readonly heldBack: number;
  /** Count of all these that are random. */
  readonly mixed?: number;
}

/** Value of `format` in the metadata. */
const formatName = 'scalepoint.moments';

/** Positions in a file of moments. All diagonals come before the squares, so that readers of importance alone read the beginning. */
export class MomentsLayout {
  /** The bytes in front of the numbers. */
  readonly header: Uint8Array<ArrayBuffer>;
  readonly size: number;
  readonly #places = new Map<string, number>();

  /** @param divergences names of weights whose divergence is written */
  constructor(
    inputs: readonly SharedInputs[],
    { tokens, heldBack, mixed = 0 }: CountedTokens,
    divergences: readonly string[] = [],
  ) {
    const weights = inputs.flatMap(({ names: [first, ...others] }) =>
      [first, ...others].map((name) => [name, first] as const),
    );
    const counts = {
      tokens: String(tokens),
      ...(heldBack > 0 && { heldBackTokens: String(heldBack) }),
      ...(mixed > 0 && { mixedTokens: String(mixed) }),
    };
    const entries: Record<string, unknown> = {
      __metadata__: { format: formatName, ...counts, ...Object.fromEntries(weights) },
    };
    let at = 0;
    const place = (name: string, shape: readonly number[]) => {
      const bytes = 4 * shape.reduce((a, b) => a * b, 1);
      entries[name] = { dtype: 'F32', shape, data_offsets: [at, at + bytes] };
      this.#places.set(name, at);
      at += bytes;
    };
    for (const { names, columns } of inputs) place(`${names[0]}.diagonal`, [columns]);
    for (const name of divergences) place(`${name}${divergenceEnd}`, [1]);
    for (const { names, columns, heldBack: isHeld } of inputs) {
      place(names[0] as string, [columns, columns]);
      if (isHeld) place(`${names[0]}.heldBack`, [columns, columns]);
    }
    const text = new TextEncoder().encode(JSON.stringify(entries));
    const padded = Math.ceil(text.length / 8) * 8;
    this.header = new Uint8Array(8 + padded).fill(0x20);
    new DataView(this.header.buffer).setBigUint64(0, BigInt(padded), true);
    this.header.set(text, 8);
    this.size = this.header.length + at;
  }

  /** Writes moments of some inputs. @param name of the first weight. @param isHeldBack true for those of held-back data */
  async write(
    to: Pick<ByteSink, 'write'>,
    name: string,
    moments: Float32Array<ArrayBuffer>,
    isHeldBack: boolean,
  ): Promise<void> {
    if (isHeldBack) return this.#put(to, `${name}.heldBack`, moments);
    const columns = Math.sqrt(moments.length);
    const diagonal = Float32Array.from({ length: columns }, (_, i) => moments[i * (columns + 1)] as number);
    await this.#put(to, `${name}.diagonal`, diagonal);
    await this.#put(to, name, moments);
  }

  /** Writes divergences by the names of weights. */
  async writeDivergences(to: Pick<ByteSink, 'write'>, divergences: ReadonlyMap<string, number>): Promise<void> {
    for (const [name, value] of divergences) await this.#put(to, `${name}${divergenceEnd}`, Float32Array.of(value));
  }

  async #put(to: Pick<ByteSink, 'write'>, entry: string, values: Float32Array<ArrayBuffer>): Promise<void> {
    const place = this.#places.get(entry);
    if (place === undefined) throw new Error(`no place for ${entry}`);
    await to.write(this.header.length + place, new Uint8Array(values.buffer));
  }
}

/**
 * Files of second moments, in the layout of safetensors. For each distinct input of weights, under the name of the first of them in llama.cpp's
 * names: the square of means of products, and `NAME.diagonal`, its diagonal. The metadata name the entry of every weight, and hold the number
 * of tokens.
 */
import type { ByteSink } from '../files/sinks.js';

/** Weights with the same inputs. */
export interface SharedInputs {
  readonly names: readonly string[];
  readonly columns: number;
}

/** Value of `format` in the metadata. */
const formatName = 'scalepoint.moments';

/** Positions in a file of moments. All diagonals come before the squares, so that readers of importance alone read the beginning. */
export class MomentsLayout {
  /** The bytes in front of the numbers. */
  readonly header: Uint8Array<ArrayBuffer>;
  readonly size: number;
  readonly #places = new Map<string, { readonly diagonal: number; readonly square: number }>();

  constructor(inputs: readonly SharedInputs[], tokens: number) {
    const weights = inputs.flatMap(({ names: [first, ...others] }) =>
      [first, ...others].map((name) => [name, first] as const),
    );
    const entries: Record<string, unknown> = {
      __metadata__: { format: formatName, tokens: String(tokens), ...Object.fromEntries(weights) },
    };
    let at = 0;
    const place = (name: string, shape: readonly number[]) => {
      const bytes = 4 * shape.reduce((a, b) => a * b, 1);
      entries[name] = { dtype: 'F32', shape, data_offsets: [at, at + bytes] };
      at += bytes;
      return at - bytes;
    };
    const diagonals = inputs.map(({ names, columns }) => place(`${names[0]}.diagonal`, [columns]));
    const squares = inputs.map(({ names, columns }) => place(names[0] as string, [columns, columns]));
    const text = new TextEncoder().encode(JSON.stringify(entries));
    const padded = Math.ceil(text.length / 8) * 8;
    this.header = new Uint8Array(8 + padded).fill(0x20);
    new DataView(this.header.buffer).setBigUint64(0, BigInt(padded), true);
    this.header.set(text, 8);
    this.size = this.header.length + at;
    for (const [i, { names }] of inputs.entries()) {
      const [diagonal, square] = [diagonals[i] as number, squares[i] as number];
      const { length } = this.header;
      this.#places.set(names[0] as string, { diagonal: length + diagonal, square: length + square });
    }
  }

  /** Writes the numbers of some inputs. @param name of the first weight */
  async write(
    to: Pick<ByteSink, 'write'>,
    name: string,
    moments: Float32Array<ArrayBuffer>,
    diagonal: Float32Array,
  ): Promise<void> {
    const place = this.#places.get(name);
    if (place === undefined) throw new Error(`no place for the moments of ${name}`);
    await to.write(place.diagonal, new Uint8Array(diagonal.slice().buffer));
    await to.write(place.square, new Uint8Array(moments.buffer));
  }
}

/**
 * Sends a worker those inputs of its batches that it cannot read by itself. They go in pieces, in the order in which the worker puts them
 * into its memory. Few are under way at a time, so that this thread never holds the whole of a large tile.
 */
import { allocate, type ByteSource } from '../files/bytes.js';
import { type InputPart, type InputReader, partsInTurn, readerOf } from './input-reader.js';
import { inputsOf, TaskError, type TileTask } from './task.js';

/** Bytes of a piece. A server is asked for as many at a time, so that they have to be some. */
const pieceBytes = 1 << 21;

/** Pieces that are being read or wait in the worker. While it works on a tile, the next ones are on their way. */
const mostPieces = 3;

/** The same of a batch whose results take so many bytes in the worker. */
const fewerPieces = 2;
const largeResult = 1 << 24;

function piecesFor({ tasks }: Fed): number {
  const outputs = tasks.flatMap((task) => (task.kind === 'encode' ? task.outputs : []));
  return outputs.reduce((sum, { bytes }) => sum + bytes, 0) < largeResult ? mostPieces : fewerPieces;
}

/** Parts of inputs that travel together. */
interface Piece {
  readonly parts: readonly InputPart[];
  readonly bytes: number;
}

function* piecesOf(parts: Iterable<InputPart>): Generator<Piece> {
  let piece: { parts: InputPart[]; bytes: number } = { parts: [], bytes: 0 };
  for (const part of parts) {
    const size = part.input.bytes * part.input.count;
    if (piece.bytes > 0 && piece.bytes + size > pieceBytes) {
      yield piece;
      piece = { parts: [], bytes: 0 };
    }
    piece.parts.push(part);
    piece.bytes += size;
  }
  if (piece.bytes > 0) yield piece;
}

/** Reads a piece. @throws TaskError */
async function read(reader: InputReader, { parts }: Piece, memory: Uint8Array): Promise<void> {
  let at = 0;
  for (const { task, input } of parts) {
    const size = input.bytes * input.count;
    try {
      await reader.put(input, memory.subarray(at, at + size));
    } catch (cause) {
      throw new TaskError(task, cause);
    }
    at += size;
  }
}

/** A batch whose inputs are sent. */
export interface Fed {
  readonly id: number;
  readonly tasks: readonly TileTask[];
  /** Whether the worker has ended it, so that the rest is of no use. */
  isOver(): boolean;
}

/** What one worker is sent. */
export interface FeedOptions {
  readonly files: readonly ByteSource[];
  /** Whether the worker has opened a file by itself. */
  isOpen(file: number): boolean;
  /** Memory that was used before. Workers share it. As garbage, pieces would pile up. */
  readonly spare: ArrayBuffer[];
  /** Sends the next bytes of a batch. */
  send(id: number, bytes: Uint8Array<ArrayBuffer>): void;
}

/** Sends one worker its inputs. */
export class Feed {
  readonly #options: FeedOptions;
  /** Memory that was read into on the way. */
  readonly #spare: ArrayBuffer[] = [];
  /** Pieces under way. */
  #count = 0;
  /** Goes on once a piece has come back. */
  #goOn = () => {};
  /** Settles when the reads of all batches so far have begun. */
  #begun: Promise<unknown> = Promise.resolve();
  /** Settles when all pieces so far are sent or given up. */
  #sent: Promise<unknown> = Promise.resolve();

  constructor(options: FeedOptions) {
    this.#options = options;
  }

  /** Sends all inputs of a batch. The batches take their turns. @throws TaskError */
  async give(batch: Fed): Promise<void> {
    const begun = this.#begun.then(() => this.#begin(batch));
    this.#begun = begun.catch(() => {});
    await Promise.all(await begun);
  }

  /** Takes memory back from the worker. */
  takeBack(memory: ArrayBuffer): void {
    this.#count--;
    if (memory.byteLength === pieceBytes) this.#options.spare.push(memory);
    this.#goOn();
  }

  /** Begins to read the pieces of a batch, each as soon as there is room for it. Returns when each is sent. */
  async #begin(batch: Fed): Promise<Promise<void>[]> {
    const { files, isOpen } = this.#options;
    const isWanted = (file: number) => !isOpen(file);
    const reader = readerOf(files, this.#spare);
    await reader.begin(batch.tasks.flatMap(inputsOf).filter(({ file }) => isWanted(file)));
    const sent: Promise<void>[] = [];
    const most = piecesFor(batch);
    let failed = false;
    const isOver = () => failed || batch.isOver();
    for (const piece of piecesOf(partsInTurn(batch.tasks, isWanted, pieceBytes))) {
      while (this.#count >= most && !isOver()) await this.#room();
      if (isOver()) break;
      const memory = this.#memory(piece.bytes);
      this.#count++;
      const before = this.#sent;
      const deliver = async () => {
        try {
          await read(reader, piece, memory).finally(() => before);
        } catch (error) {
          failed = true;
          this.takeBack(memory.buffer);
          throw error;
        }
        if (isOver()) this.takeBack(memory.buffer);
        else this.#options.send(batch.id, memory);
      };
      const delivered = deliver();
      this.#sent = delivered.catch(() => {});
      sent.push(delivered);
    }
    return sent;
  }

  /** Waits until a piece has come back, or may have lost its use. */
  #room(): Promise<void> {
    return new Promise((resolve) => {
      this.#goOn = resolve;
    });
  }

  #memory(bytes: number): Uint8Array<ArrayBuffer> {
    // Pieces of about this size share their memory.
    const size = bytes > pieceBytes / 4 ? pieceBytes : bytes;
    const spare = size === pieceBytes ? this.#options.spare.pop() : undefined;
    return new Uint8Array(spare ?? allocate(size, ' of input').buffer, 0, bytes);
  }
}

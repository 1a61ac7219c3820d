/** What all places for results have in common. */

/** What a worker opens to write into the same file (Node). The file is there already. */
export interface SinkReference {
  readonly path: string;
  /** Its name in errors. */
  readonly label: string;
  /** As `fileIdOf` gives it. */
  readonly fileId: string;
}

/** A place for the bytes of a file, which appears when all of them are there. */
export interface ByteSink {
  /** Whether bytes can be written at any position. Otherwise each position has to be the end of what was written before. */
  readonly positional: boolean;
  /** Whether the receiver may keep what it is given. Otherwise the memory can be used again once the bytes are written. */
  readonly retains: boolean;
  /** How a worker writes into the same file by itself, at any position; undefined if it cannot. */
  readonly reference?: SinkReference | undefined;
  /** Writes bytes at a position. The promise is fulfilled when the receiver has taken them. */
  write(position: number, bytes: Uint8Array<ArrayBuffer>): Promise<void>;
  /**
   * Makes the whole visible. To be called once, when every byte was written.
   * @throws ScalepointError `IO` or `EXISTS`; `discard` is still to be called then
   */
  finish(): Promise<void>;
  /** Removes what was written. Never throws; does nothing after `finish`. */
  discard(reason: unknown): Promise<void>;
  /** After `finish`: removes the file again, unless it replaced another one. For results of which other files failed. Never throws. */
  withdraw?(): Promise<void>;
}

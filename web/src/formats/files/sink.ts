/** The common interface of all outputs. */

/** Refers to an existing file, for a worker that opens it to write (Node). */
export interface SinkReference {
  readonly path: string;
  /** Its name in errors. */
  readonly label: string;
  /** As `fileIdOf` gives it. */
  readonly fileId: string;
}

/** Takes the bytes of a file, which becomes visible when it is finished. */
export interface ByteSink {
  /** True if bytes can be written at any position. Otherwise each write has to begin where the one before it ended. */
  readonly positional: boolean;
  /** True if the receiver may hold on to written memory. Otherwise the memory can be reused after `write`. */
  readonly retains: boolean;
  /** Lets a worker write into the same file by itself, at any position; undefined if it cannot. */
  readonly reference?: SinkReference | undefined;
  /** Writes bytes at a position. The promise is fulfilled when the receiver has taken them. */
  write(position: number, bytes: Uint8Array<ArrayBuffer>): Promise<void>;
  /**
   * Makes the file visible. Call once, after every byte was written.
   * @throws ScalepointError `IO` or `EXISTS`; call `discard` then
   */
  finish(): Promise<void>;
  /** Removes the written bytes. Never throws; does nothing after `finish`. */
  discard(reason: unknown): Promise<void>;
  /** Removes a finished file, unless it replaced another one. Used if another file of the result fails. Never throws. */
  withdraw?(): Promise<void>;
}

/** The members that are used of a Worker of the browser. */
export interface WorkerLike {
  /** Sends a message. The buffers move to the worker. */
  postMessage(message: unknown, transfer: ArrayBuffer[]): void;
  /** Ends the worker at once. */
  terminate(): unknown;
  /** Listens to events, as workers of browsers have them. */
  addEventListener?(type: string, listener: (event: Event) => void): void;
  /** Keeps the process of Node running while the worker lives. */
  ref?(): void;
  /** Lets the process of Node end while the worker lives. */
  unref?(): void;
}

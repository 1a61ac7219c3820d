/** A worker of the browser: what is used of it. */
export interface WorkerLike {
  /** Sends a message. The buffers move to the worker. */
  postMessage(message: unknown, transfer: ArrayBuffer[]): void;
  /** Ends the worker at once. */
  terminate(): unknown;
  /** Listens to events, as workers of browsers have them. */
  addEventListener?(type: string, listener: (event: Event) => void): void;
}

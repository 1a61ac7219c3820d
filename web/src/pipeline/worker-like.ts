/** A worker of the browser: what is used of it. */
export interface WorkerLike {
  postMessage(message: unknown, transfer: ArrayBuffer[]): void;
  terminate(): unknown;
  addEventListener?(type: string, listener: (event: Event) => void): void;
}

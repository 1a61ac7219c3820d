/** The worker's end of a pool: loads the core, carries out jobs one after the other, and sends their answers. */
import { errorData } from '../core/errors.js';
import { instantiateCore } from '../core/load.js';
import type { Core } from '../core/memory.js';
import { nodeModule } from '../core/node.js';
import type { WorkerReply, WorkerRequest } from './worker-pool.js';

/** Carries out the jobs of one kind. */
export interface JobHandler {
  /** Carries out a job. Its answer is sent back. */
  carryOut(job: never): object | Promise<object>;
  /** Memory that moves with an answer. */
  movable(answer: never): ArrayBuffer[];
  /** Takes data for jobs that wait or are under way. */
  receive?(data: never): void;
}

/** Sends data of a job that is under way, with memory that moves. */
export type SendData = (data: object, transfer: ArrayBuffer[]) => void;

/** The other end of the messages. */
interface Port {
  postMessage(message: WorkerReply, transfer: ArrayBuffer[]): void;
}

/** Makes this thread a worker of a pool. @param makers make the handlers, by their names */
export function serve(makers: Readonly<Record<string, (core: Core, send: SendData) => JobHandler>>): void {
  const handlers = new Map<string, JobHandler>();
  /** The handler of a name, made with its first job: some need the large module. */
  let handlerOf = (_name: string): JobHandler | undefined => undefined;

  async function carryOut(request: Exclude<WorkerRequest, { kind: 'data' }>, port: Port): Promise<void> {
    if (request.kind === 'start') {
      const core = await instantiateCore(request.calls, request.module);
      const send: SendData = (data, transfer) => port.postMessage({ kind: 'data', data }, transfer);
      handlerOf = (name) => {
        const handler = handlers.get(name) ?? makers[name]?.(core, send);
        if (handler !== undefined) handlers.set(name, handler);
        return handler;
      };
      // Take the lock, and hold it until this worker ends.
      const { lock } = request;
      const locked =
        lock !== undefined &&
        (await new Promise<boolean>((resolve) => {
          const hold = () => {
            resolve(true);
            return new Promise(() => {});
          };
          navigator.locks.request(lock, hold).catch(() => resolve(false));
        }));
      port.postMessage({ kind: 'ready', locked }, []);
      return;
    }
    const handler = handlerOf(request.handler);
    if (handler === undefined) throw new Error('a job came before the start');
    const answer = await handler.carryOut(request.job as never);
    port.postMessage({ kind: 'answer', id: request.id, answer }, handler.movable(answer as never));
  }

  // Jobs run one after the other, because they share the memory of the core.
  let last: Promise<void> = Promise.resolve();
  function receive(request: WorkerRequest, port: Port): void {
    if (request.kind === 'data') {
      handlerOf(request.handler)?.receive?.(request.data as never);
      return;
    }
    last = last.then(async () => {
      try {
        await carryOut(request, port);
      } catch (error) {
        const id = request.kind === 'start' ? undefined : request.id;
        port.postMessage({ kind: 'failure', id, error: errorData(error) }, []);
      }
    });
  }

  const parent = nodeModule('node:worker_threads')?.parentPort;
  if (parent) parent.on('message', (request) => receive(request as WorkerRequest, parent));
  else {
    const scope = globalThis as unknown as Port & EventTarget;
    scope.addEventListener('message', (event) => receive((event as MessageEvent<WorkerRequest>).data, scope));
  }
}

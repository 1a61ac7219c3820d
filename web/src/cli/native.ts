/** Runs models in onnxruntime-node, in a process of its own: both runtimes in one process would share their backends. */
import { type ChildProcess, spawn } from 'node:child_process';
import { pathToFileURL } from 'node:url';
import { ScalepointError } from '../model.js';
import type { BackendAnswer, BackendJob, HostReady, RunBackend } from '../tooling.js';
import { runFile } from './webgpu.js';

/** Largest end of the error output that is kept, in characters. */
const mostError = 400;

/** A process that starts with its first job. */
export class NativeBackend implements RunBackend {
  readonly name = 'node';
  readonly #module: string;
  readonly #limit: number;
  #child: ChildProcess | undefined;
  #errors = '';
  readonly #onExit = () => this.#child?.kill('SIGKILL');

  /**
   * @param module path of onnxruntime-node
   * @param limit longest time of a job in ms
   */
  constructor(module: string, limit = 600_000) {
    this.#module = module;
    this.#limit = limit;
  }

  #start(): ChildProcess {
    const code = `import { serveInProcess } from ${JSON.stringify(runFile.href)}; await serveInProcess(${JSON.stringify(pathToFileURL(this.#module).href)});`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', code], {
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      serialization: 'advanced',
      detached: process.platform !== 'win32',
    });
    this.#errors = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#errors = (this.#errors + text).slice(-mostError);
    });
    process.on('exit', this.#onExit);
    this.#child = child;
    return child;
  }

  /** The next message of the process. @throws ScalepointError `RUNTIME`; the reason of the signal */
  #next(child: ChildProcess, signal: AbortSignal | undefined): Promise<unknown> {
    let timer: NodeJS.Timeout | undefined;
    const cleanUp: (() => void)[] = [];
    return new Promise((done, fail) => {
      const broken = (how: string, cause?: unknown) => {
        const last = this.#errors.trim().split('\n').at(-1) ?? '';
        fail(
          new ScalepointError('RUNTIME', `the process of onnxruntime-node ${how}${last === '' ? '' : `: ${last}`}`, {
            cause,
          }),
        );
      };
      const onExit = (code: number | null, ending: string | null) =>
        broken(ending === null ? `ended with code ${code}` : `was ended by ${ending}`);
      const onError = (cause: Error) => broken('could not be used', cause);
      const onAbort = () => fail(signal?.reason);
      child.once('message', done).once('exit', onExit).once('error', onError);
      timer = setTimeout(() => broken(`gave no result within ${this.#limit / 1000} s`), this.#limit);
      signal?.addEventListener('abort', onAbort);
      cleanUp.push(() => {
        child.off('message', done).off('exit', onExit).off('error', onError);
        signal?.removeEventListener('abort', onAbort);
      });
      if (signal?.aborted) onAbort();
      else if (child.exitCode !== null || child.signalCode !== null) onExit(child.exitCode, child.signalCode);
    }).finally(() => {
      clearTimeout(timer);
      for (const end of cleanUp) end();
    });
  }

  async run(job: BackendJob, signal: AbortSignal | undefined): Promise<BackendAnswer> {
    try {
      let child = this.#child;
      if (child === undefined) {
        child = this.#start();
        const ready = (await this.#next(child, signal)) as HostReady;
        if (ready.kind === 'failed')
          throw new ScalepointError('RUNTIME', `onnxruntime-node cannot be loaded: ${ready.text}`);
      }
      const answer = this.#next(child, signal);
      // A process that has ended is an error of `next`.
      child.send(job, () => {});
      return (await answer) as BackendAnswer;
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  async close(): Promise<void> {
    process.off('exit', this.#onExit);
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
    const exited = new Promise((done) => child.once('exit', done));
    child.kill('SIGKILL');
    await exited;
  }
}

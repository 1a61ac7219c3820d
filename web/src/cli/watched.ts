/**
 * Runs a command in a process of its own. Node answers signals between two steps of the event loop, so that a process that computes in a
 * runtime or in a parser hears none. The process that waits for it does.
 */
import { constants } from 'node:os';

/** Signals that ask the process to end. */
const endings = ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM'] as const;
export type Ending = (typeof endings)[number];

/** The exit code after a signal. */
export const codeAfter = (name: NodeJS.Signals): number => 128 + constants.signals[name];

/** Time in ms for the work to end after a first signal. */
export const endMilliseconds = 1000;

/** Time in ms for a process to remove its partial files before it is killed. */
const removeMilliseconds = 500;

/** Holds the id of the watching process in the environment of the watched one. */
const variable = 'SCALEPOINT_WATCHER';

/** True in a process that `watch` started. */
export const isWatched = (): boolean => process.channel != null && process.env[variable] === String(process.ppid);

/** Ends a watched process if its watcher ends first, as nobody would see it any more. Exit handlers remove its partial files. */
export function endWithWatcher(): void {
  process.once('disconnect', () => process.exit(1));
  process.channel?.unref();
}

/** Calls f with each signal that the process or its watcher gets. A terminal sends its signals to both: they count once. */
export function onEnding(f: (name: Ending) => void): void {
  for (const name of endings) process.on(name, isWatched() ? () => {} : () => f(name));
  if (!isWatched()) return;
  process.on('message', f);
  process.channel?.unref();
  process.send?.('ready');
}

/**
 * Runs a script in a process of its own, which ends in any case: soon after the first signal, and at once after the second.
 * @returns the exit code; undefined if no process could be started
 */
export async function watch(script: string, args: readonly string[]): Promise<number | undefined> {
  const { fork } = await import('node:child_process');
  const child = fork(script, args, { env: { ...process.env, [variable]: String(process.pid) } });
  const asked: Ending[] = [];
  let isReady = false;
  let isKilled = false;
  const send = (name: Ending) => child.send(name, () => {});
  child.once('message', () => {
    isReady = true;
    asked.forEach(send);
  });
  const kill = () => {
    isKilled = child.kill('SIGKILL');
  };
  for (const name of endings) {
    process.on(name, () => {
      asked.push(name);
      setTimeout(kill, asked.length > 1 ? removeMilliseconds : endMilliseconds + removeMilliseconds);
      if (isReady) send(name);
      // It does not answer signals yet, so that this one ends it.
      else child.kill(name);
    });
  }
  return new Promise((resolve) => {
    child.once('error', () => resolve(undefined));
    child.once('exit', (code, signal) => {
      const [first] = asked;
      if (!isKilled || first === undefined) return resolve(code ?? codeAfter(signal as NodeJS.Signals));
      process.stderr.write('scalepoint: interrupted\n');
      resolve(codeAfter(first));
    });
  });
}

// What start.mjs and test.mjs share: running a program, and one quiet line for each step.

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** The project's root folder, without a slash at the end. */
export const root = fileURLToPath(new URL('..', import.meta.url)).replace(/\/$/, '');

const colour = process.stdout.isTTY && !process.env.CI && !process.env.NO_COLOR;

const styles = { bold: 1, dim: 2, red: 31 };

/**
 * @param {keyof typeof styles} style
 * @param {string} text
 */
export function paint(style, text) {
  return colour ? `\x1b[${styles[style]}m${text}\x1b[0m` : text;
}

/** A step that did not work, with everything its program printed. */
export class StepError extends Error {
  /**
   * @param {string} message one line
   * @param {string} [output]
   */
  constructor(message, output = '') {
    super(message);
    this.output = output;
  }
}

/** A program that takes longer than this hangs. */
const timeLimit = 10 * 60_000;

/**
 * Runs a program in the project's root and collects what it prints, without colour.
 * @param {string} program
 * @param {string[]} args
 * @param {Record<string, string>} [variables] added to the environment
 * @returns {Promise<{ code: number, output: string }>} code is 127 if the program is not there, 128 and more if a signal ended it
 */
export function run(program, args, variables = {}) {
  return new Promise((resolve) => {
    const env = { ...process.env, NO_COLOR: '1', FORCE_COLOR: '0', ...variables };
    const child = spawn(program, args, { cwd: root, env, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8');
      stream.on('data', (text) => {
        output += text;
      });
    }
    child.on('error', (error) => {
      clearTimeout(timer);
      resolve({ code: 127, output: `${output}${error.message}\n` });
    });
    const timer = setTimeout(() => {
      output += `took longer than ${duration(timeLimit)}\n`;
      child.kill('SIGKILL');
      // Its own children may keep the pipes open.
      child.stdout.destroy();
      child.stderr.destroy();
    }, timeLimit);
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      if (signal !== null) output += `ended by ${signal}\n`;
      resolve({ code: code ?? 128, output });
    });
  });
}

/**
 * Like run, but anything but exit code 0 is a StepError.
 * @param {string} program
 * @param {string[]} args
 * @param {Record<string, string>} [variables]
 * @returns {Promise<string>} what it printed
 */
export async function mustRun(program, args, variables) {
  const { code, output } = await run(program, args, variables);
  if (code !== 0) throw new StepError(`${[program, ...args].join(' ')} ended with exit code ${code}`, output);
  return output;
}

/**
 * A duration for people: 0.4 s, 12 s, 1 min 20 s.
 * @param {number} milliseconds
 */
export function duration(milliseconds) {
  const seconds = milliseconds / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/**
 * Does one step of a run and prints one line about it: its name at once, its note and its time when it is done.
 * @template T
 * @param {string} name
 * @param {(say: (note: string) => void) => Promise<T>} action say sets the line's note; on a terminal it shows at once
 * @returns {Promise<T>}
 */
export async function step(name, action) {
  const start = performance.now();
  const label = `  ${name.padEnd(14)}`;
  // A terminal's line is written again when there is more to say; elsewhere it is only continued.
  const again = process.stdout.isTTY ? `\r\x1b[K${label}` : '';
  let note = '';
  process.stdout.write(label);
  const finish = (/** @type {string} */ text) => {
    const time = duration(performance.now() - start).padStart(11);
    process.stdout.write(`${again}${text}${' '.repeat(Math.max(0, 60 - text.length))}${paint('dim', time)}\n`);
  };
  try {
    const result = await action((text) => {
      note = text;
      if (again !== '') process.stdout.write(`${again}${paint('dim', text)}`);
    });
    finish(note);
    return result;
  } catch (error) {
    finish('failed');
    throw error;
  }
}

/**
 * Prints a failure: the message, then the program's output, indented.
 * @param {unknown} error
 */
export function explain(error) {
  if (!(error instanceof StepError)) throw error;
  const lines = error.output.trimEnd();
  process.stdout.write(`\n    ${paint('red', error.message)}\n`);
  if (lines !== '') process.stdout.write(`${lines.replace(/^/gm, '    ')}\n`);
  process.stdout.write('\n');
}

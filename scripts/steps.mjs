// Shared by the scripts: functions that run a program, and that report a step of the work.

import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** The root folder of the project, without a slash at the end. */
export const root = fileURLToPath(new URL('..', import.meta.url)).replace(/\/$/, '');

const colour = process.stdout.isTTY && !process.env.CI && !process.env.NO_COLOR;

const styles = { bold: 1, dim: 2, red: 31 };

/**
 * Adds a style to text if the output is a terminal that shows color.
 * @param {keyof typeof styles} style
 * @param {string} text
 */
export function paint(style, text) {
  return colour ? `\x1b[${styles[style]}m${text}\x1b[0m` : text;
}

/** A failed step, with all output of its program. */
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

/** A program that runs longer than this is killed. */
const timeLimit = 30 * 60_000;

/**
 * Runs a program in the project's root and collects its output, without color.
 * @param {string} program
 * @param {string[]} args
 * @param {Record<string, string>} [variables] added to the environment
 * @returns {Promise<{ code: number, output: string }>} code is 127 if the program cannot be started, and 128 if a signal ended it
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
      // Child processes of the program may keep the pipes open.
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
 * Runs a program like `run`, and throws a StepError unless the exit code is 0.
 * @param {string} program
 * @param {string[]} args
 * @param {Record<string, string>} [variables]
 * @returns {Promise<string>} its output
 */
export async function mustRun(program, args, variables) {
  const { code, output } = await run(program, args, variables);
  if (code !== 0) throw new StepError(`${[program, ...args].join(' ')} ended with exit code ${code}`, output);
  return output;
}

/**
 * A duration for people, such as 0.4 s, 12 s or 1 min 20 s.
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
 * Runs one step: prints what it does, and how long it took if that is more than a second.
 * @template T
 * @param {string} name
 * @param {(say: (note: string) => void) => Promise<T>} action `say` prints a note
 * @returns {Promise<T>}
 */
export async function step(name, action) {
  const start = performance.now();
  const say = (/** @type {string} */ note) => console.log(`  ${name.padEnd(14)}${note}`);
  const result = await action(say);
  const time = performance.now() - start;
  if (time > 1000) say(paint('dim', duration(time)));
  return result;
}

/**
 * Prints the message and the output of a StepError, indented. Throws any other error.
 * @param {unknown} error
 */
export function explain(error) {
  if (!(error instanceof StepError)) throw error;
  console.error(`\n    ${paint('red', error.message)}\n${error.output.trimEnd().replace(/^(?=.)/gm, '    ')}\n`);
}

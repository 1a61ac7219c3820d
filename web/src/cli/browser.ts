/** Finds an installed browser of the Chromium family. */
import { accessSync, constants, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, isAbsolute, join, resolve } from 'node:path';
import { ScalepointError } from '../model.js';

/** Names on PATH. */
const names: readonly string[] = [
  'chromium',
  'chromium-browser',
  'google-chrome',
  'google-chrome-stable',
  'chrome',
  'microsoft-edge',
  'microsoft-edge-stable',
  'msedge',
];

/** Programs in folders of applications of macOS. */
const macPrograms: readonly string[] = ['Google Chrome', 'Chromium', 'Microsoft Edge'].map(
  (name) => `${name}.app/Contents/MacOS/${name}`,
);

/** Programs in folders of Windows. */
const windowsPrograms: readonly string[] = [
  'Google\\Chrome\\Application\\chrome.exe',
  'Chromium\\Application\\chrome.exe',
  'Microsoft\\Edge\\Application\\msedge.exe',
];

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** The system, as far as browsers are found by it. */
interface System {
  readonly platform: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  readonly isProgram: (path: string) => boolean;
}

const thisSystem = (): System => ({ platform: process.platform, env: process.env, home: homedir(), isProgram });

/** A program by a name on PATH; undefined if it is not there. */
function onPath(name: string, { platform, env, isProgram }: System): string | undefined {
  const folders = (env.PATH ?? '').split(delimiter).filter((folder) => folder !== '');
  const ends = platform === 'win32' ? ['.exe', ''] : [''];
  return folders.flatMap((folder) => ends.map((end) => join(folder, name + end))).find((path) => isProgram(path));
}

/** Places where installers put browsers. */
function installed({ platform, env, home }: System): string[] {
  if (platform === 'darwin') {
    return ['/Applications', join(home, 'Applications')].flatMap((folder) =>
      macPrograms.map((path) => join(folder, path)),
    );
  }
  if (platform !== 'win32') return [];
  const folders = [env.PROGRAMFILES, env['PROGRAMFILES(X86)'], env.LOCALAPPDATA].filter(
    (folder) => folder !== undefined,
  );
  return folders.flatMap((folder) => windowsPrograms.map((path) => `${folder}\\${path}`));
}

/**
 * The path of a browser: the given one, that of the variable CHROME_PATH, or the first that is found.
 * @throws ScalepointError `BROWSER` if no browser is found
 */
export function findBrowser(given: string | undefined, system = thisSystem()): string {
  const fromVariable = system.env.CHROME_PATH === '' ? undefined : system.env.CHROME_PATH;
  const wanted = given ?? fromVariable;
  if (wanted !== undefined) {
    const path = isAbsolute(wanted) || /[\\/]/.test(wanted) ? resolve(wanted) : onPath(wanted, system);
    if (path !== undefined && system.isProgram(path)) return path;
    const what = given === undefined ? 'the variable CHROME_PATH' : '--browser';
    throw new ScalepointError('BROWSER', `${what} names no program: ${JSON.stringify(wanted)}`, { path: wanted });
  }
  const found =
    names.map((name) => onPath(name, system)).find((path) => path !== undefined) ??
    installed(system).find((path) => system.isProgram(path));
  if (found !== undefined) return found;
  const message =
    'WebGPU needs a browser, and no Chromium, Chrome or Edge was found; install one, or name it by --browser PATH or by the variable CHROME_PATH';
  throw new ScalepointError('BROWSER', message);
}

// Options by which tests, benchmarks and scripts start Chromium through Playwright.

import { existsSync } from 'node:fs';

/** Where Debian's package chromium-headless-shell puts the same engine without the browser's own windows. */
export const shell = '/usr/lib/chromium/chromium-headless-shell';

/** Milliseconds after which tests take a page, or a program that they wait for, to hang: many times the longest wait on a busy machine. */
export const hangLimit = 240_000;

/** Options of `chromium.launch` for what needs the whole browser, such as WebGPU. The variable CHROMIUM names another program than Debian's. */
export const launchOptions = {
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-background-networking'],
};

/** Options of `chromium.launch` for pages. The shell, where it is installed, takes a third less of the processors. CHROMIUM replaces it, too. */
export const pageOptions = {
  args: launchOptions.args,
  // Looked up at each use, because `npm test` loads this file before it installs packages.
  get executablePath() {
    return process.env.CHROMIUM === undefined && existsSync(shell) ? shell : launchOptions.executablePath;
  },
};

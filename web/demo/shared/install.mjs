// The command with which the pages say to install the package.

import { readFileSync } from 'node:fs';

const { name, version } = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8'));

/** True once a release is on npm: the first release sets it, together with the words of README.md and of guide/10-bundlers.md. */
export const isReleased = false;

/** The package as npm packs it, and as one ES module. The build puts both into the root of the site. */
const packageFile = `${name}-${version}.tgz`;
export const moduleFile = `${name}.js`;

/**
 * A command that works today: before a release, npm takes the file that the site has. Where the address of the site is not known, its pages
 * put their own in place of `./` (`site.ts`).
 * @param {string} [address] of the site
 */
const commandAt = (address) => `npm i ${isReleased ? name : `${address ?? './'}${packageFile}`}`;

/** Other ways to the package, as HTML. @param {string} [address] of the site */
const noteAt = (address) =>
  `<p class="hint">${isReleased ? '' : 'No release is on npm yet: this file is on the site. '}Without npm, import <code data-here>${address ?? './'}${moduleFile}</code>, one ES module with all in it.</p>`;

/** Puts the command and its note into a page. @param {string} html @param {string} [address] of the site, if it is known */
export const withInstall = (html, address) =>
  html.replaceAll('%install%', commandAt(address)).replaceAll('%install-note%', noteAt(address));

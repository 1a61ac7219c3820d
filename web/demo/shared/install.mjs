// The command with which the pages say to install the package.

import { readFileSync } from 'node:fs';

const { name, version } = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8'));

/** True once a release is on npm: the first release sets it, together with the words of README.md and of guide/10-bundlers.md. */
export const isReleased = false;

/** A command that works today. */
const installCommand = isReleased ? `npm i ${name}` : `npm i ./${name}-${version}.tgz`;

/** Origin of the package's file, as HTML; empty for a package of npm. */
const note = isReleased
  ? ''
  : '<p class="hint">No release is on npm yet: <code>npm pack</code> in a clone writes this file.</p>';

/** Puts the command and its note into a page. @param {string} html */
export const withInstall = (html) => html.replaceAll('%install%', installCommand).replaceAll('%install-note%', note);

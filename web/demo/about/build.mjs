// Makes the pages about the project out of files in its root: the changelog and the license.

import { readFileSync } from 'node:fs';
import { bodyOf } from '../guide/build.mjs';

const textOf = (/** @type {string} */ name) => readFileSync(new URL(`../../../${name}`, import.meta.url), 'utf8');

const escaped = (/** @type {string} */ text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;');

/**
 * The pages, by their folders.
 * @type {readonly { name: string, title: string, description: string, body: () => string }[]}
 */
export const aboutPages = [
  {
    name: 'changelog',
    title: 'Changelog',
    description: 'Changes of Scalepoint in each version, for arrays, model files, the command line and the site.',
    body: () => bodyOf(textOf('CHANGELOG.md'), '../guide/'),
  },
  {
    name: 'license',
    title: 'License',
    description: 'Scalepoint has the MIT license. The site holds packages of others with licenses of their own.',
    body: () => `<h1>License</h1>
<p>Scalepoint may be used, changed and sold under the MIT license. This site also holds <a href="../notices.txt">packages of others</a>,
  which keep their own licenses.</p>
${textOf('LICENSE')
  .trim()
  .split(/\n{2,}/)
  .map((paragraph) => `<p>${escaped(paragraph)}</p>`)
  .join('\n')}`,
  },
];

/** Content of a page as HTML, without the head, header and footer of the site. @param {(typeof aboutPages)[number]} page */
export const aboutHtml = ({ title, description, body }) => `<!doctype html>
<html lang="en">
  <head>
    <title>${title} · Scalepoint</title>
    <meta name="description" content="${description}">
    <link rel="stylesheet" href="../guide/guide.css">
    <script type="module" src="../about/main.ts"></script>
  </head>
  <body>
    <main class="prose about" id="main" tabindex="-1">
${body()}
    </main>
  </body>
</html>
`;

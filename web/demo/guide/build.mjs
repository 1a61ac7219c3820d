// Makes the pages of the guide out of the Markdown files of this folder.

import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Marked } from 'marked';

const folder = fileURLToPath(new URL('.', import.meta.url));

/**
 * @typedef {object} GuidePage
 * @property {string} name the last part of its address; empty for the first page
 * @property {string} title its heading
 * @property {string} description its first paragraph, as plain text
 * @property {string} markdown
 */

const escaped = (/** @type {string} */ text) =>
  text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/"/g, '&quot;');

/** @param {string} markdown */
const plain = (markdown) =>
  markdown
    .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/[`*_]/g, '')
    .replace(/\s+/g, ' ')
    .trim();

/**
 * The pages in order. A file is named `03-ranges.md`: its number is its place, the rest its address. `00-index.md` is the first page.
 * @returns {GuidePage[]}
 */
export function guidePages() {
  const files = readdirSync(folder)
    .filter((name) => /^\d\d-.*\.md$/.test(name))
    .sort();
  return files.map((file) => {
    const markdown = readFileSync(`${folder}/${file}`, 'utf8');
    const [, title, description] = /^# (.+)\n\n((?:.+\n)+)/.exec(markdown) ?? [];
    if (title === undefined || description === undefined) {
      throw new Error(`${file} begins with no heading and paragraph`);
    }
    const name = file.slice(3, -3);
    return { name: name === 'index' ? '' : name, title: plain(title), description: plain(description), markdown };
  });
}

/** The id of a heading. @param {string} text */
export const anchorOf = (text) =>
  plain(text)
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-|-$/g, '');

/**
 * A page as HTML, without what all pages of the site have.
 * @param {GuidePage} page
 * @param {readonly GuidePage[]} pages all of them
 */
export function guideHtml(page, pages) {
  const marked = new Marked({
    renderer: {
      heading({ tokens, depth, text }) {
        const id = depth === 1 ? '' : ` id="${anchorOf(text)}"`;
        return `<h${depth}${id}>${this.parser.parseInline(tokens)}</h${depth}>\n`;
      },
      code({ text, lang }) {
        const name = lang === 'sh' ? 'Commands' : 'Code';
        return `<pre class="scroll snippet" data-name="${name}"><code>${escaped(text)}</code></pre>\n`;
      },
      table(token) {
        const cells = (/** @type {typeof token.header} */ row, /** @type {string} */ tag) =>
          row.map(({ tokens }) => `<${tag}>${this.parser.parseInline(tokens)}</${tag.slice(0, 2)}>`).join('');
        const rows = token.rows.map((row) => `<tr>${cells(row, 'td')}</tr>`).join('\n');
        return `<div class="scroll" data-name="Table"><table><thead><tr>${cells(token.header, 'th scope="col"')}</tr></thead><tbody>${rows}</tbody></table></div>\n`;
      },
    },
  });
  const up = page.name === '' ? '' : '../';
  const link = (/** @type {GuidePage} */ to, /** @type {string} */ text) =>
    `<a href="${up}${to.name === '' ? (up === '' ? './' : '') : `${to.name}/`}"${to === page ? ' aria-current="page"' : ''}>${text}</a>`;
  const at = pages.indexOf(page);
  const [before, after] = [pages[at - 1], pages[at + 1]];
  return `<!doctype html>
<html lang="en">
  <head>
    <title>${escaped(page.name === '' ? 'Scalepoint guide' : `${page.title} · Scalepoint guide`)}</title>
    <meta name="description" content="${escaped(page.description)}">
    <link rel="stylesheet" href="${up}guide.css">
    <script type="module" src="${up}main.ts"></script>
  </head>
  <body>
    <div class="guide">
      <nav class="contents" aria-label="Guide">
        <ol>
          ${pages.map((to) => `<li>${link(to, escaped(to.title))}</li>`).join('\n          ')}
        </ol>
      </nav>
      <main class="prose" id="main" tabindex="-1">
${marked.parse(page.markdown)}
        <nav class="onward" aria-label="Next and previous page">
          ${before === undefined ? '<span></span>' : link(before, `<span>Before</span> ${escaped(before.title)}`)}
          ${after === undefined ? '' : link(after, `<span>Next</span> ${escaped(after.title)}`)}
        </nav>
      </main>
    </div>
  </body>
</html>
`;
}

// Makes the pages of the guide out of the Markdown files of this folder and, for the API reference, out of those that TypeDoc writes.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Marked } from 'marked';
import { figureInText } from '../shared/figures/markup.mjs';
import { entries } from '../shared/shell.mjs';
import { pictures } from './pictures.mjs';

const folder = fileURLToPath(new URL('.', import.meta.url));

/** Folder into which `npm run build` writes the Markdown of the reference. */
const referenceFolder = fileURLToPath(new URL('../../../build/reference/', import.meta.url));

/**
 * @typedef {object} GuidePage
 * @property {string} name the last part of its address; empty for the first page
 * @property {string} title its heading
 * @property {string} description its first paragraph, as plain text
 * @property {string} [markdown] absent in the reference
 * @property {string} [html] content of a page of the reference
 * @property {string[]} [names] exported names that a page of the reference documents
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

/** The pages that are Markdown files, in order. A file is named `03-ranges.md`: its number is its place, the rest its address. */
function markdownPages() {
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

/**
 * The pages in order; `00-index.md` is the first.
 * @returns {GuidePage[]}
 */
export function guidePages() {
  return [...markdownPages(), ...referencePages()];
}

/** The entry points of the package. */
const references = [
  {
    name: 'api',
    from: 'scalepoint',
    file: 'index.md',
    about: 'Arrays, layers and search: everything that `load` gives.',
  },
  {
    name: 'api-model',
    from: 'scalepoint/model',
    file: 'model.md',
    about: 'Model files: inspect, plan, quantize, compare and verify them.',
  },
  {
    name: 'api-bench',
    from: 'scalepoint/bench',
    file: 'bench.md',
    about: 'The benchmark that ships with the package.',
  },
];

/** The group of the types that no entry point exports (scripts/reference/plugin.mjs), and words about it. */
const nestedTypes = 'Types of members';
const aboutNested =
  "The package does not export these. Programs name them by the member that has them, such as `CompareReport['tensors'][number]`.";

/** A heading with its id, as TypeDoc writes them. */
const namedHeading = / ?\{#([^}]+)\}$/;

/** The names that a part of the reference documents. @param {string} markdown */
const namesIn = (markdown) => [...markdown.matchAll(/^### .*\{#([^}]+)\}$/gm)].map(([, name]) => String(name));

/** The pages of the reference, as TypeDoc wrote them, with a list of names at the start of each group. */
function referencePages() {
  return references.map(({ name, from, file, about }) => {
    const path = `${referenceFolder}${file}`;
    if (!existsSync(path)) throw new Error(`${path} is missing: build first, with npm run build`);
    const groups = readFileSync(path, 'utf8')
      .replace(/^(?:\*\*\*|\*\*Examples?\*\*|#+ Examples?)\n/gm, '')
      .replace(/^(\*\*(?:Throws|Returns)\*\*)\n\n/gm, '$1 ')
      .replace(/\]\((\w+\.md)(?=#)/g, (_, to) => `](../${references.find((each) => each.file === to)?.name}/`)
      .split(/^(?=## )/m)
      .map((group) => {
        const links = namesIn(group).map((each) => `[\`${each}\`](#${each})`);
        const intro = group.startsWith(`## ${nestedTypes}\n`) ? `\n${aboutNested}\n` : '';
        return group.replace(/^## .*\n/, (heading) => `${heading}${intro}\n${links.join(' ')}\n`);
      });
    const title = `API: ${from}`;
    const html = bodyOf([`# ${title}\n\n${about}\n`, ...groups].join('\n'), '../');
    return { name, title, description: plain(about), html, names: groups.flatMap(namesIn) };
  });
}

/** The id of a heading. @param {string} text */
export const anchorOf = (text) =>
  plain(text)
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-|-$/g, '');

/** Code with its comments set apart, and a button to copy it, which works once the script runs. @param {string} code @param {string} name */
function codeHtml(code, name) {
  const lines = escaped(code).replace(/(^|\s)((?:\/\/|#) .*)$/gm, '$1<span class="remark">$2</span>');
  return `<div class="code"><pre class="scroll snippet" data-name="${name}"><code>${lines}</code></pre><button type="button" class="copy" hidden>Copy</button></div>\n`;
}

const blockNames = new Map([
  ['sh', 'Commands'],
  ['sh jobs', 'Commands'],
  ['slurm', 'Batch script'],
  ['kubernetes', 'Job'],
  ['csp', 'Policy'],
]);

/** Most characters of a piece of code that is not broken. */
const wholeCode = 24;

/**
 * A link to a page of the guide as it is in the Markdown, by the name of its file, as the site has it. The files travel with the package,
 * where there is no site.
 * @param {string} href @param {string} up the way to the guide's first page
 */
function siteLink(href, up) {
  const [, name, rest] = /^(?:web\/demo\/guide\/)?\d\d-([a-z-]+)\.md(#.*)?$/.exec(href) ?? [];
  if (name === undefined) return href;
  return `${name === 'index' ? up || './' : `${up}${name}/`}${rest ?? ''}`;
}

/** A picture as HTML. @param {string} name @param {string} markdown of the page, whose tables some pictures show */
function pictureHtml(name, markdown) {
  const draw = pictures[name];
  if (draw === undefined)
    throw new Error(`there is no picture ${name}: expected one of ${Object.keys(pictures).join(', ')}`);
  return draw(markdown);
}

/** Markdown as HTML. @param {string} markdown @param {string} up the way to the guide's first page */
export function bodyOf(markdown, up) {
  const marked = new Marked({
    walkTokens(token) {
      if (token.type === 'link') token.href = siteLink(token.href, up);
    },
    renderer: {
      // The emphasized name of a page of the site leads there.
      em({ tokens, text }) {
        const entry = entries.find(({ label }) => label === text.replace(/\s+/g, ' '));
        const inner = this.parser.parseInline(tokens);
        return entry === undefined ? `<em>${inner}</em>` : `<a href="${up}../${entry.path}">${inner}</a>`;
      },
      heading({ tokens, depth, text }) {
        // The reference repeats headings of the fourth level, such as Properties.
        const id = namedHeading.exec(text)?.[1] ?? (depth === 1 || depth > 3 ? undefined : anchorOf(text));
        return `<h${depth}${id === undefined ? '' : ` id="${id}"`}>${this.parser.parseInline(tokens).replace(namedHeading, '')}</h${depth}>\n`;
      },
      // A comment names a live figure or a picture that a function draws.
      html({ text }) {
        const [, kind, name = ''] = /^<!-- (figure|picture): ([a-z-]+) -->\s*$/.exec(text) ?? [];
        if (kind === undefined) return text;
        return kind === 'figure' ? figureInText(name) : pictureHtml(name, markdown);
      },
      // A short word of code stays whole: browsers break after a hyphen, and `--range` would be cut in two.
      codespan: ({ text }) => `<code${text.length <= wholeCode ? ' class="whole"' : ''}>${escaped(text)}</code>`,
      code: ({ text, lang }) => codeHtml(text, blockNames.get(lang ?? '') ?? 'Code'),
      table(token) {
        const cells = (/** @type {typeof token.header} */ row, /** @type {string} */ tag) =>
          row.map(({ tokens }) => `<${tag}>${this.parser.parseInline(tokens)}</${tag.slice(0, 2)}>`).join('');
        const rows = token.rows.map((row) => `<tr>${cells(row, 'td')}</tr>`).join('\n');
        return `<div class="scroll" data-name="Table"><table><thead><tr>${cells(token.header, 'th scope="col"')}</tr></thead><tbody>${rows}</tbody></table></div>\n`;
      },
    },
  });
  return /** @type {string} */ (marked.parse(markdown));
}

/** Links to the sections of a page. @param {string} html */
function sectionsOf(html) {
  const found = [...html.matchAll(/<h2 id="([^"]*)">(.*?)<\/h2>/g)];
  if (found.length < 2) return '';
  const links = found.map(([, id, text]) => `<li><a href="#${id}">${text?.replace(/<[^>]*>/g, '')}</a></li>`);
  return `<nav class="sections" aria-label="On this page"><p>On this page</p><ol>${links.join('')}</ol></nav>`;
}

/** The list of all pages, and the links to the neighbors of a page. @param {GuidePage} page @param {readonly GuidePage[]} pages */
function navigationOf(page, pages) {
  const up = page.name === '' ? '' : '../';
  const link = (/** @type {GuidePage} */ to, /** @type {string} */ text) =>
    `<a href="${up}${to.name === '' ? (up === '' ? './' : '') : `${to.name}/`}"${to === page ? ' aria-current="page"' : ''}>${text}</a>`;
  const list = (/** @type {readonly GuidePage[]} */ some) =>
    `<ol>\n          ${some.map((to) => `<li>${link(to, escaped(to.title.replace(/^API: /, '')))}</li>`).join('\n          ')}\n        </ol>`;
  const at = pages.indexOf(page);
  const [before, after] = [pages[at - 1], pages[at + 1]];
  const neighbor = (/** @type {GuidePage | undefined} */ to, /** @type {string} */ word) =>
    to === undefined ? '<span></span>' : link(to, `<span>${word}</span> ${escaped(to.title)}`);
  const isText = (/** @type {GuidePage} */ { markdown }) => markdown !== undefined;
  return {
    contents: `${list(pages.filter(isText))}
        <p>API reference</p>
        ${list(pages.filter((each) => !isText(each)))}`,
    onward: `${neighbor(before, 'Previous')}\n          ${neighbor(after, 'Next')}`,
    up,
  };
}

/**
 * Content of a page as HTML, without the head, header and footer of the site.
 * @param {GuidePage} page
 * @param {readonly GuidePage[]} pages all of them
 */
export function guideHtml(page, pages) {
  const { contents, onward, up } = navigationOf(page, pages);
  const body = page.html ?? bodyOf(page.markdown ?? '', up);
  return `<!doctype html>
<html lang="en">
  <head>
    <title>${escaped(page.name === '' ? 'Scalepoint guide' : `${page.title} · Scalepoint guide`)}</title>
    <meta name="description" content="${escaped(page.description)}">
    <link rel="stylesheet" href="${up}../shared/figures/figures.css">
    <link rel="stylesheet" href="${up}guide.css">
    <script type="module" src="${up}main.ts"></script>
  </head>
  <body>
    <div class="guide">
      <nav class="contents" aria-label="Guide">
        <p class="contents-title">Guide</p>
        <details id="contents">
          <summary>Pages of the guide</summary>
          ${contents}
        </details>
      </nav>
      <main class="prose${page.html === undefined ? '' : ' reference'}" id="main" tabindex="-1">
${body}
        <nav class="onward" aria-label="Next and previous page">
          ${onward}
        </nav>
      </main>
      ${sectionsOf(body)}
    </div>
  </body>
</html>
`;
}

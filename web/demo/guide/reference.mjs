// Makes the API reference out of the sources: what the entry points export, with its doc comments.

import { readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Marked } from 'marked';
import { parseSync } from 'vite';

const sources = fileURLToPath(new URL('../../src/', import.meta.url));

/**
 * @typedef {any} Node a node of the syntax tree; its shape is known by its type only
 * @typedef {{ path: string, text: string, body: Node[], comments: { value: string, start: number, end: number }[] }} Module
 * @typedef {object} Entry one name of the reference
 * @property {string} name
 * @property {'function' | 'class' | 'value' | 'type'} kind
 * @property {string[]} signatures
 * @property {string} doc the text of its doc comment
 * @property {{ name: string, signatures: string[], doc: string }[]} members
 * @property {{ module: Module, statement: Node, node: Node }[]} declarations
 */

/** @type {Map<string, Module>} */
const modules = new Map();

/** @param {string} path @returns {Module} */
function moduleAt(path) {
  const known = modules.get(path);
  if (known !== undefined) return known;
  const text = readFileSync(path, 'utf8');
  const { program, comments, errors } = parseSync(path, text, { lang: path.endsWith('.d.ts') ? 'dts' : 'ts' });
  if (errors.length > 0) throw new Error(`${path}: ${errors[0]?.message}`);
  const module = { path, text, body: /** @type {Node[]} */ (program.body), comments };
  modules.set(path, module);
  return module;
}

/** The module that an import of another one names. @param {Module} from @param {string} source */
const resolved = (from, source) =>
  moduleAt(resolve(dirname(from.path), source.replace(/\.js$/, from.path.endsWith('.d.ts') ? '.d.ts' : '.ts')));

/**
 * The text of the doc comment before a position, or none.
 * @param {Module} module @param {number} start
 */
function docBefore({ text, comments }, start) {
  const last = comments.findLast(({ end }) => end <= start);
  if (last === undefined || !last.value.startsWith('*') || text.slice(last.end, start).trim() !== '') return '';
  return last.value
    .slice(1)
    .replace(/^[ \t]*\* ?/gm, '')
    .trim();
}

/**
 * The text of a declaration without its body.
 * @param {Module} module @param {Node} node
 */
function signatureOf({ text }, node) {
  const body = node.body?.type === 'BlockStatement' ? node.body : node.value?.body;
  const code = text.slice(node.start, body?.start ?? node.end).trim();
  // Members are indented in the source.
  const column = node.start - (text.lastIndexOf('\n', node.start) + 1);
  const indent = /^ *$/.test(text.slice(node.start - column, node.start)) ? ' '.repeat(column) : '';
  return code.replaceAll(`\n${indent}`, '\n').replace(/;$/, '');
}

/** Whether a member is part of the API. @param {Node} member */
const isPublic = ({ key, accessibility }) =>
  key?.type !== 'PrivateIdentifier' && accessibility !== 'private' && accessibility !== 'protected';

/**
 * The members of an interface or a class. Overloads are one member.
 * @param {Module} module @param {Node} node
 */
function membersOf(module, node) {
  /** @type {Map<string, { name: string, signatures: string[], doc: string, isDone: boolean }>} */
  const members = new Map();
  for (const member of node.body?.body ?? []) {
    const name = member.key?.name ?? member.key?.value;
    if (!isPublic(member) || member.kind === 'constructor' || typeof name !== 'string') continue;
    // After overloads without a body, the method with one is for the compiler.
    const hasBody = member.value?.body !== undefined && member.value.body !== null;
    const known = members.get(name);
    const doc = docBefore(module, member.start);
    if (doc.includes('@internal')) continue;
    if (known === undefined)
      members.set(name, { name, signatures: [signatureOf(module, member)], doc, isDone: hasBody });
    else if (!hasBody) known.signatures.push(signatureOf(module, member));
  }
  return [...members.values()].map(({ name, signatures, doc }) => ({ name, signatures, doc }));
}

/** @type {Record<string, Entry['kind']>} */
const kinds = {
  FunctionDeclaration: 'function',
  TSDeclareFunction: 'function',
  ClassDeclaration: 'class',
  VariableDeclaration: 'value',
  TSInterfaceDeclaration: 'type',
  TSTypeAliasDeclaration: 'type',
};

/** The names that a declaration declares. @param {Node} node @returns {string[]} */
const namesOf = (node) => (node.declarations ?? [node]).map((/** @type {Node} */ each) => each.id?.name);

/**
 * What a module declares under a name; it may come from another module.
 * @param {Module} module @param {string} name @returns {Entry | undefined}
 */
function entryOf(module, name) {
  /** @type {Entry | undefined} */
  let entry;
  for (const statement of module.body) {
    for (const { local, imported, exported } of statement.specifiers ?? []) {
      const here = exported?.name ?? local?.name;
      if (here !== name || statement.source === null || statement.source === undefined) continue;
      return entryOf(resolved(module, statement.source.value), imported?.name ?? local.name);
    }
    const node = statement.declaration ?? statement;
    const kind = kinds[node.type];
    if (kind === undefined || !namesOf(node).includes(name)) continue;
    const whole = node.type === 'TSInterfaceDeclaration' || node.type === 'ClassDeclaration';
    const text = whole ? module.text.slice(node.start, node.body.start).trim() : signatureOf(module, node);
    const doc = docBefore(module, statement.start);
    if (entry === undefined)
      entry = { name, kind, signatures: [text], doc, members: whole ? membersOf(module, node) : [], declarations: [] };
    else if (node.body === null || node.type === 'TSDeclareFunction') entry.signatures.push(text);
    entry.declarations.push({ module, statement, node });
  }
  return entry;
}

/** Whether a doc comment says more than a default. @param {string} doc */
const isTold = (doc) => doc.replace(/@defaultValue .*/, '').trim() !== '';

/** The name of a member; that of a symbol is its text. @param {Node} key */
const keyOf = (key) => key?.name ?? key?.value ?? `[${key?.object?.name}.${key?.property?.name}]`;

/**
 * The members without a doc comment in a declaration, those of types that are written out in it included. A member that can have one value
 * only, such as the kind of a tensor, needs none.
 * @param {Module} module @param {Node} node @param {string} path the names of what it is in @returns {string[]}
 */
function bareMembers(module, node, path) {
  if (node === null || typeof node !== 'object') return [];
  if (Array.isArray(node)) return node.flatMap((each) => bareMembers(module, each, path));
  if (!/^(TSPropertySignature|TSMethodSignature|PropertyDefinition|MethodDefinition|TSAbstract\w+)$/.test(node.type)) {
    const inner = Object.entries(node).filter(([key]) => key !== 'parent' && key !== 'comments');
    return inner.flatMap(([, each]) => bareMembers(module, each, path));
  }
  const name = `${path}.${keyOf(node.key)}`;
  if (!isPublic(node) || node.kind === 'constructor' || name.endsWith('[Symbol.dispose]')) return [];
  const type = node.typeAnnotation?.typeAnnotation;
  const isDocumented = isTold(docBefore(module, node.start)) || type?.type === 'TSLiteralType';
  // Parameters of methods are told in their doc comments.
  return [...(isDocumented ? [] : [name]), ...(type === undefined ? [] : bareMembers(module, type, name))];
}

/**
 * What a declaration file exports without a doc comment: names, and members as `Name.member`. Overloads after the first one need none.
 * @param {string} path of an entry point, in .d.ts or .ts
 */
export function undocumented(path) {
  const found = new Set();
  const documented = new Set();
  for (const { name, declarations } of entriesOf(moduleAt(path))) {
    for (const { module, statement, node } of declarations) {
      if (isTold(docBefore(module, statement.start))) documented.add(name);
      const body = node.type === 'TSTypeAliasDeclaration' ? node.typeAnnotation : node.body;
      for (const member of bareMembers(module, body, name)) found.add(member);
      for (const member of node.body?.body ?? [])
        if (isTold(docBefore(module, member.start))) documented.add(`${name}.${keyOf(member.key)}`);
    }
    found.add(name);
  }
  return [...found].filter((name) => !documented.has(name)).sort();
}

/** The exports of an entry point, in its order. @param {Module} module @returns {Entry[]} */
function entriesOf(module) {
  /** @type {Map<string, Entry>} */
  const entries = new Map();
  const add = (/** @type {Module} */ from, /** @type {string} */ local, /** @type {string} */ name) => {
    const entry = entryOf(from, local);
    if (entry !== undefined && !entries.has(name)) entries.set(name, { ...entry, name });
  };
  for (const statement of module.body) {
    if (statement.type !== 'ExportNamedDeclaration') continue;
    const from = statement.source === null ? module : resolved(module, statement.source.value);
    for (const { local, exported } of statement.specifiers) add(from, local.name, exported.name);
    if (statement.declaration !== null) for (const name of namesOf(statement.declaration)) add(module, name, name);
  }
  return [...entries.values()];
}

// ------------------------------------------------------------------------------------------------------------------------- HTML

const marked = new Marked();
const escaped = (/** @type {string} */ text) =>
  text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/"/g, '&quot;');

/** A doc comment's text as HTML. Angle brackets in it are types, never tags. @param {string} text */
const prose = (text) =>
  /** @type {string} */ (marked.parse(text.replace(/\{@link (\w+)\}/g, '`$1`').replace(/<(?=\w)/g, '&lt;')));

const code = (/** @type {string} */ text) =>
  `<pre class="scroll snippet" data-name="Code"><code>${escaped(text)}</code></pre>`;

/** The tags of a doc comment with their labels. @type {Record<string, string>} */
const labels = { returns: 'Returns', throws: 'Throws', defaultValue: 'Default' };

/** @param {string} tag @param {string} text */
function tagHtml(tag, text) {
  if (tag === 'example') return code(text);
  const [, name, rest] = /^(\S+) ([\s\S]*)/.exec(text) ?? [];
  if (tag === 'param' && name !== undefined)
    return `<p class="tag"><code>${escaped(name)}</code> ${prose(rest ?? '').replace(/^<p>|<\/p>\n?$/g, '')}</p>`;
  const inner =
    tag === 'defaultValue'
      ? `<code>${escaped(text.replace(/^`|`$/g, ''))}</code>`
      : prose(text).replace(/^<p>|<\/p>\n?$/g, '');
  return `<p class="tag"><b>${labels[tag] ?? tag}</b> ${inner}</p>`;
}

/** @param {string} doc */
function docHtml(doc) {
  const [text = '', ...tags] = doc.split(/(?:^|\s)@(?=(?:param|returns|throws|defaultValue|example)\b)/);
  const told = tags.map((tag) => {
    const [, name = '', rest = ''] = /^(\w+)\s*([\s\S]*)/.exec(tag) ?? [];
    return tagHtml(name, rest.trim());
  });
  return [text.trim() === '' ? '' : prose(text.trim()), ...told].join('\n');
}

/** @param {Entry} entry */
function entryHtml({ name, signatures, doc, members }) {
  const list = members.map(
    (member) =>
      `<dt id="${name}.${member.name}">${member.signatures.map((text) => `<code>${escaped(text)}</code>`).join('')}</dt>\n<dd>${docHtml(member.doc)}</dd>`,
  );
  return `<section class="entry">
<h3 id="${name}">${name}</h3>
${code(signatures.join('\n'))}
${docHtml(doc)}
${list.length === 0 ? '' : `<dl class="members">\n${list.join('\n')}\n</dl>`}
</section>`;
}

/** @param {string} title @param {Entry[]} entries */
function groupHtml(title, entries) {
  if (entries.length === 0) return '';
  const links = entries.map(({ name }) => `<a href="#${name}"><code>${name}</code></a>`).join(' ');
  const id = title.toLowerCase().replace(/ /g, '-');
  return `<h2 id="${id}">${title}</h2>\n<p class="names">${links}</p>\n${entries.map(entryHtml).join('\n')}`;
}

/** The entry points of the package, with the names that most readers look for in the order in which they are used. */
const points = [
  {
    name: 'api',
    from: 'scalepoint',
    file: 'index.ts',
    about: 'Arrays, layers and search: everything that `load` gives.',
    first: ['load', 'Scalepoint'],
  },
  {
    name: 'api-model',
    from: 'scalepoint/model',
    file: 'model.ts',
    about: 'Model files: what is in them, what would become of them, and the same with smaller numbers.',
    first: [
      'inspectModel',
      'planModel',
      'estimateModel',
      'quantizeModel',
      'compareModels',
      'verifyModel',
      'readTensor',
    ],
  },
  {
    name: 'api-bench',
    from: 'scalepoint/bench',
    file: 'bench.ts',
    about: 'The benchmark that ships with the package.',
    first: ['runBench'],
  },
];

/**
 * The place of an entry: after `first` come functions, then the classes of what they return.
 * @param {Entry} entry @param {readonly string[]} first
 */
function rankOf({ name, kind }, first) {
  const place = first.indexOf(name);
  return place >= 0 ? place : first.length + (kind === 'function' ? 0 : 1);
}

/** The pages of the reference, made from the sources. */
export function referencePages() {
  return points.map(({ name, from, file, about, first }) => {
    const entries = entriesOf(moduleAt(`${sources}${file}`));
    const some = (/** @type {Entry['kind'][]} */ ...wanted) => entries.filter(({ kind }) => wanted.includes(kind));
    const html = [
      `<h1>API: ${from}</h1>\n<p>${prose(about).replace(/^<p>|<\/p>\n?$/g, '')}</p>`,
      groupHtml(
        'Functions and classes',
        some('function', 'class').sort((a, b) => rankOf(a, first) - rankOf(b, first)),
      ),
      groupHtml('Values', some('value')),
      groupHtml('Types', some('type')),
    ].join('\n');
    const names = entries.map((entry) => entry.name);
    return { name, title: `API: ${from}`, description: about.replace(/`/g, ''), html, names };
  });
}

// Draws the pictures of the guide that need no computing: each twice, for wide and for narrow windows. Some show tables of their page.

/** @typedef {{ width: number, font: number, isWide: boolean }} Size */
/** @typedef {{ height: number, nodes: string[] }} Drawing */

const sizes = [
  { name: 'wide', width: 680, font: 14, isWide: true },
  { name: 'narrow', width: 340, font: 12, isWide: false },
];

/** Width of a letter as a share of the font's size: that of wide fonts, so that text stays in its box. */
const letter = 0.58;
const padding = 5;

const escaped = (/** @type {string} */ text) =>
  text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/"/g, '&quot;');

/**
 * Breaks a text into lines of a box.
 * @param {string} text @param {number} width of the box @param {number} font
 */
function wrapped(text, width, font) {
  const most = Math.floor((width - 2 * padding) / (letter * font));
  /** @type {string[]} */
  const lines = [];
  for (const word of text.split(' ')) {
    if (word.length > most) throw new Error(`"${word}" is too long for a box of ${most} letters`);
    const line = lines.at(-1);
    if (line !== undefined && line.length + 1 + word.length <= most) lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  return lines;
}

/** @param {string} label @param {(size: Size) => Drawing} draw */
function figure(label, draw) {
  const drawn = sizes.map((size) => {
    const { height, nodes } = draw(size);
    return `<svg class="${size.name}" viewBox="0 0 ${size.width} ${height}" role="img" aria-label="${escaped(label)}" font-size="${size.font}">${nodes.join('')}</svg>`;
  });
  return `<figure class="picture">${drawn.join('\n')}</figure>\n`;
}

/** @param {number} x @param {number} y @param {string} text @param {string} [attributes] */
const textAt = (x, y, text, attributes = '') => `<text x="${x}" y="${y}" ${attributes}>${escaped(text)}</text>`;

/**
 * Widths of columns of boxes: as wide as their longest words need, and the rest by the length of their texts.
 * @param {readonly (readonly string[])[]} rows @param {number} width of all @param {number} font
 */
function columnWidths(rows, width, font) {
  const columns = (rows[0] ?? []).map((_, i) => rows.map((row) => row[i] ?? ''));
  const least = columns.map((cells) => {
    const longest = Math.max(...cells.flatMap((cell) => cell.split(' ').map((word) => word.length)));
    return Math.ceil((longest + 0.5) * letter * font + 2 * padding);
  });
  const lengths = columns.map((cells) => Math.max(...cells.map((cell) => cell.length)));
  const spare = width - least.reduce((sum, each) => sum + each, 0);
  const all = lengths.reduce((sum, each) => sum + each, 0);
  return least.map((each, i) => Math.floor(each + (spare * (lengths[i] ?? 0)) / all));
}

/** A box with a text in its middle. @param {number} x @param {number} y @param {number} width @param {number} height @param {string} text @param {number} font */
function box(x, y, width, height, text, font) {
  const lines = wrapped(text, width, font);
  const step = font * 1.35;
  const first = y + height / 2 - ((lines.length - 1) * step) / 2 + font * 0.35;
  return [
    `<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="6"/>`,
    ...lines.map((line, i) => textAt(x + width / 2, Math.round(first + i * step), line, 'text-anchor="middle"')),
  ];
}

/** An arrow to the right. @param {number} from @param {number} to @param {number} y */
const arrow = (from, to, y) =>
  `<path d="M${from + 3} ${y}H${to - 3}M${to - 9} ${y - 5}L${to - 3} ${y}L${to - 9} ${y + 5}"/>`;

/**
 * Rows of boxes with arrows from each to the next, under a head for each column.
 * @param {readonly string[]} heads @param {readonly (readonly string[])[]} rows
 */
function lanes(heads, rows) {
  const label = rows.map((row) => row.map((cell, i) => `${heads[i]}: ${cell}`).join(', ')).join('; ');
  return figure(label, ({ width, font, isWide }) => {
    const gap = isWide ? 36 : 16;
    const widths = columnWidths([heads, ...rows], width - 2 - gap * (heads.length - 1), font);
    const from = widths.map((_, i) => 1 + widths.slice(0, i).reduce((sum, each) => sum + each + gap, 0));
    const places = widths.map((own, i) => ({ x: from[i] ?? 0, width: own }));
    const nodes = places.map(({ x, width }, i) =>
      textAt(x + width / 2, font, heads[i] ?? '', 'class="head" text-anchor="middle"'),
    );
    let y = font + 12;
    for (const row of rows) {
      const most = Math.max(...places.map(({ width }, i) => wrapped(row[i] ?? '', width, font).length));
      const height = Math.round(most * font * 1.35 + 16);
      places.forEach(({ x, width }, i) => {
        nodes.push(...box(x, y, width, height, row[i] ?? '', font));
        if (i > 0) nodes.push(arrow(x - gap, x, y + height / 2));
      });
      y += height + 12;
    }
    return { height: y - 10, nodes };
  });
}

/**
 * Horizontal bars from zero.
 * @param {string} title @param {readonly { label: string, value: number, text: string }[]} rows
 */
function bars(title, rows) {
  const label = `${title}: ${rows.map(({ label, text }) => `${label} ${text}`).join(', ')}`;
  const most = Math.max(...rows.map(({ value }) => value));
  return figure(label, ({ width, font, isWide }) => {
    const from = isWide ? 270 : 0;
    const room = width - from - 70;
    const step = isWide ? 28 : 46;
    const nodes = [textAt(0, font, title, 'class="head"')];
    rows.forEach(({ label, value, text }, i) => {
      const y = font + 14 + i * step;
      const top = isWide ? y : y + 20;
      const length = Math.round((value / most) * room);
      nodes.push(
        isWide ? textAt(from - 12, y + 14, label, 'text-anchor="end"') : textAt(0, y + 13, label),
        `<rect class="length" x="${from}" y="${top}" width="${length}" height="18" rx="2"/>`,
        textAt(from + length + 8, top + 14, text),
      );
    });
    return { height: font + 14 + rows.length * step, nodes };
  });
}

/**
 * The rows of the first table that has these words in its head, without the marks of Markdown.
 * @param {string} markdown @param {string} head
 */
function tableOf(markdown, head) {
  const lines = markdown.split('\n');
  const at = lines.findIndex((line) => line.startsWith('|') && line.includes(head));
  const end = lines.findIndex((line, i) => i > at && !line.startsWith('|'));
  const cells = (/** @type {string} */ line) =>
    line
      .slice(1, -1)
      .split('|')
      .map((cell) => cell.trim().replace(/[`*]/g, ''));
  const rows = lines.slice(at + 2, end).map(cells);
  if (at < 0 || rows.length === 0) throw new Error(`there is no table with "${head}"`);
  return rows;
}

/** Codes of errors by what fails, each in the table of the page. @param {string} markdown */
function errorsPicture(markdown) {
  const rows = [
    ['wrong argument', 'at once', 'RangeError, TypeError'],
    ['loading', 'load()', 'WASM_LOAD, CSP'],
    ['numbers', 'a call on arrays', 'NON_FINITE, OVERFLOW'],
    ['a file', 'reading it', 'UNKNOWN_FORMAT, BAD_FILE'],
    ['a worker, a disk', 'the work', 'WORKER, IO'],
  ];
  for (const [code] of rows.flatMap(([, , codes = '']) => [...codes.matchAll(/\b[A-Z]+(?:_[A-Z]+)*\b/g)])) {
    if (!markdown.includes(`| \`${code}\``)) throw new Error(`the table has no ${code}`);
  }
  return lanes(['Problem', 'Noticed by', 'Error'], rows);
}

/** Speed beside plain JavaScript, of the rows of Node. @param {string} markdown */
function speedPicture(markdown) {
  const rows = tableOf(markdown, 'plain JavaScript / ours').filter(([, where]) => where === 'Node');
  return bars(
    'Times as fast as plain JavaScript, in Node',
    rows.map(([label = '', , , , , ratio = '']) => {
      const value = Number.parseFloat(ratio);
      return { label, value, text: `${Math.round(value)} ×` };
    }),
  );
}

/** Divergence with a search, as a share of that without. @param {string} markdown */
function searchPicture(markdown) {
  const rows = tableOf(markdown, 'TinyStories, matrix');
  return bars(
    'Divergence with search: best, of the usual 100 %',
    rows.map(([label = '', ratio = '']) => {
      const value = Number.parseFloat(ratio);
      return { label, value, text: `${Math.round(value * 100)} %` };
    }),
  );
}

/** The pictures by name. @type {Readonly<Record<string, (markdown: string) => string>>} */
export const pictures = {
  formats: () =>
    lanes(
      ['Type', 'A number is', 'Beside it'],
      [
        ['float16, bfloat16', '16 bits', 'nothing'],
        ['float8e4m3fn', '8 bits, fine steps near 0', 'a scale for each row'],
        ['NF4', '4 bits, an index into 16 values', 'a scale for each block'],
        ['int4', '4 bits, even steps', 'a scale for each group'],
        ['Q4_0', '4 bits, even steps', 'a scale for 32, in the same bytes'],
      ],
    ),
  arrays: () =>
    lanes(
      ['You have', 'Call', 'You get'],
      [
        ['floats', 'quantize', 'codes, scales, zero points'],
        ['codes and scales', 'dequantize', 'floats again'],
        ['codes and scales', 'linear, index', 'products and scores'],
        ['codes and scales', 'saveTensors', 'a file'],
      ],
    ),
  models: () =>
    lanes(
      ['Read', 'Decide', 'Write'],
      [
        ['the header: names and shapes', 'a type for each tensor', 'the exact size, before any work'],
        ['tiles of 4 MiB', 'scales and codes, in workers', 'one file, whole or not at all'],
      ],
    ),
  onnx: () =>
    lanes(
      ['Type', 'In the file', 'As the model runs'],
      [
        ['as it was', 'float32 weights', 'MatMul'],
        ['q8', 'int8 weights, a scale a channel', 'inputs to int8, then MatMulInteger'],
        ['q4', '4-bit codes in blocks', 'MatMulNBits'],
        ['int4-weights', '4-bit codes', 'to floats again, then MatMul'],
        ['fp16', 'float16 weights', 'MatMul in float16'],
      ],
    ),
  recipes: () =>
    lanes(
      ['Data', 'Stored as', 'For'],
      [
        ['embeddings', 'int8, a scale a row', 'search in a page'],
        ['columns of splats', 'a type for each', 'smaller scenes'],
        ['any floats', 'packed int4', 'sending'],
        ['a model file', 'int4 or int8', 'download and start'],
      ],
    ),
  bundlers: () =>
    lanes(
      ['Your code', 'File that it fetches', 'Gives'],
      [
        ['load()', 'arrays wasm', 'arrays, layers, search'],
        ['load with blocks', 'core wasm', 'all types of ggml'],
        ['quantizeModel', 'core wasm and worker', 'model files'],
      ],
    ),
  errors: errorsPicture,
  limits: () =>
    bars(
      'Most memory of workers, for a model of any size',
      [1, 2, 4, 8].map((workers) => ({
        label: `${workers} worker${workers === 1 ? '' : 's'}`,
        value: workers,
        text: `${64 * workers} MiB`,
      })),
    ),
  'measured-errors': searchPicture,
  'measured-speed': speedPicture,
};

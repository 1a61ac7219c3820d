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

/** Position of a recall on its axis: 1 - recall on a logarithmic scale, which keeps the best indexes apart. */
const recallTicks = [0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 1];
const missed = (/** @type {number} */ recall) => Math.log(Math.max(1 - recall, 0.002));

/** @typedef {{ name: string, letter: string, isOwn: boolean, points: { x: number, recall: number }[] }} Line */

/**
 * Points of recall over a quantity on a logarithmic axis, joined for each index, which has a letter.
 * @param {string} title @param {readonly Line[]} lines @param {number} left @param {number} top @param {number} width @param {number} height @param {number} font
 */
function recallPanel(title, lines, left, top, width, height, font) {
  const all = lines.flatMap(({ points }) => points.map(({ x }) => x));
  const ends = [10 ** Math.floor(Math.log10(Math.min(...all))), 10 ** Math.ceil(Math.log10(Math.max(...all)))];
  const [low = 0, high = 1] = ends.map(Math.log);
  const from = left + 38;
  const base = top + height - 2 * font;
  const least = Math.min(...lines.flatMap(({ points }) => points.map(({ recall }) => recall)));
  const shown = recallTicks.filter((tick, i) => (recallTicks[i + 1] ?? 1) > least || tick === 1);
  const bottom = missed(Math.min(least, shown[0] ?? 1));
  const place = (/** @type {number} */ x) =>
    Math.round(from + 12 + ((Math.log(x) - low) / (high - low)) * (width - 80));
  const level = (/** @type {number} */ recall) => {
    const share = (missed(recall) - bottom) / (missed(1) - bottom);
    return Math.round(base - 12 - share * (base - top - 3 * font - 22));
  };
  const nodes = [
    textAt(left, top + font, title, 'class="head"'),
    `<path class="axis" d="M${from} ${top + 2 * font + 8}V${base}H${left + width - 6}"/>`,
  ];
  for (const tick of shown) {
    nodes.push(textAt(from - 6, level(tick) + font * 0.35, String(tick).replace(/^0/, ''), 'text-anchor="end"'));
  }
  for (let tick = ends[0] ?? 1; tick <= (ends[1] ?? 1) * 1.001; tick *= 10) {
    const text = String(Number(tick.toPrecision(1))).replace(/^0/, '');
    nodes.push(textAt(place(tick), base + font + 6, text, 'text-anchor="middle"'));
  }
  /** @type {[x: number, y: number][]} */
  const taken = lines.flatMap(({ points }) =>
    points.map(({ x, recall }) => /** @type {[number, number]} */ ([place(x), level(recall)])),
  );
  for (const { letter, isOwn, points } of lines) {
    const places = points.map(({ x, recall }) => ({ x: place(x), y: level(recall) }));
    if (places.length > 1) {
      nodes.push(`<path class="${isOwn ? '' : 'other'}" d="M${places.map(({ x, y }) => `${x} ${y}`).join('L')}"/>`);
    }
    for (const { x, y } of places) {
      nodes.push(`<circle class="${isOwn ? 'length' : 'other'}" cx="${x}" cy="${y}" r="4"/>`);
    }
    // Put the letter beside the first point, where there is room.
    const { x = 0, y = 0 } = places[0] ?? {};
    const around = [12, 22, 34].flatMap((r) =>
      [270, 0, 180, 90, 315, 225, 45, 135].map((angle) => /** @type {const} */ ([r, (angle * Math.PI) / 180])),
    );
    const free = around
      .map(([r, angle]) => /** @type {[number, number]} */ ([x + r * Math.cos(angle), y + r * Math.sin(angle)]))
      .find(
        ([a, b]) =>
          a > from + 5 &&
          a < left + width - 6 &&
          b < base - 5 &&
          taken.every(([c, d]) => Math.abs(a - c) > 10 || Math.abs(b - d) > 11),
      ) ?? [x + 12, y];
    taken.push(free);
    const [at, down] = free.map(Math.round);
    nodes.push(textAt(at ?? 0, (down ?? 0) + Math.round(font * 0.35), letter, 'text-anchor="middle"'));
  }
  return nodes;
}

/** Vector search beside other libraries. @param {string} markdown */
function peersPicture(markdown) {
  const rows = tableOf(markdown, 'recall at 10 |').map(([name = '', bytes = '', , time = '', recall = '']) => {
    const [library = '', ...rest] = name.split(', ');
    const index = rest.filter((part) => !/^(best|expansion|ef) /.test(part));
    return { name: [library, ...index].join(', '), bytes, time, recall: Number(recall) };
  });
  const names = [...new Set(rows.map(({ name }) => name))];
  const linesOf = (/** @type {'bytes' | 'time'} */ axis) =>
    names.flatMap((name, i) => {
      const own = rows.filter((row) => row.name === name && Number.isFinite(Number(row[axis])));
      const points = own.map((row) => ({ x: Number(row[axis]), recall: row.recall }));
      if (points.length === 0) return [];
      return [{ name, letter: String.fromCharCode(65 + i), isOwn: name.startsWith('Scalepoint'), points }];
    });
  const said = rows.map(({ name, bytes, time, recall }) => `${name}: ${bytes} MB, ${time} ms, ${recall}`).join('; ');
  return figure(`Recall at 10 by memory and time of a query. ${said}`, ({ width, font, isWide }) => {
    const own = isWide ? width / 2 : width;
    const height = 270;
    const nodes = [
      ...recallPanel('Recall over ms a query', linesOf('time'), 0, 0, own, height, font),
      ...recallPanel('Recall over MB', linesOf('bytes'), isWide ? own : 0, isWide ? 0 : height + 12, own, height, font),
    ];
    const top = isWide ? height + 14 : 2 * height + 26;
    const perColumn = isWide ? Math.ceil(names.length / 2) : names.length;
    names.forEach((name, i) => {
      const x = Math.floor(i / perColumn) * own;
      nodes.push(textAt(x, top + font + (i % perColumn) * font * 1.5, `${String.fromCharCode(65 + i)} ${name}`));
    });
    return { height: Math.round(top + perColumn * font * 1.5 + 6), nodes };
  });
}

/** The pictures by name. @type {Readonly<Record<string, (markdown: string) => string>>} */
export const pictures = {
  'first-page': () =>
    lanes(
      ['The visitor', 'Your page calls', 'The page shows'],
      [
        ['chooses a model', 'inspectModel, planModel', 'its size after, at once'],
        ['presses the button', 'quantizeModel', 'progress, then a link'],
        ['cancels', 'abort', 'the model, as before'],
      ],
    ),
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
  hub: () =>
    lanes(
      ['From the hub', 'On your device', 'To the hub'],
      [
        ['the list of files', 'plan', 'nothing'],
        ['ranges of weights', 'quantize', 'nothing'],
        ['license of the source', 'with --push', 'result and card'],
      ],
    ),
  search: peersPicture,
  'measured-errors': searchPicture,
  'measured-speed': speedPicture,
};

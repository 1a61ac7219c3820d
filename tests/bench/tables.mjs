// The tables of measured figures in Markdown pages.

/**
 * The rows of the table between two markers, each as a record by column.
 * @param {string} page @param {string} name @returns {Record<string, string>[]}
 */
function rowsIn(page, name) {
  const [, text] = new RegExp(`<!-- ${name}: start -->([\\s\\S]*?)<!-- ${name}: end -->`).exec(page) ?? [];
  if (text === undefined) throw new Error(`there is no table ${name}`);
  const lines = text.split('\n').filter((line) => line.startsWith('|'));
  const [header = [], , ...rows] = lines.map((line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
  return rows.map((cells) => Object.fromEntries(header.map((column, i) => [column, cells[i] ?? ''])));
}

/**
 * Rows of the guide's tables that README.md shows: a text, the table, its row, and which of its columns say how fast it is and how much faster than
 * another library.
 * @type {readonly (readonly [text: string, table: string, row: string, ours: string, peer: string, library: string])[]}
 */
const best = [
  [
    'find the range and quantize to int8, 16 Mi floats',
    'bench',
    'range and quantize',
    'ours, ms',
    'onnxruntime-web / ours',
    'onnxruntime-web',
  ],
  [
    'the same, JavaScript arrays in and out',
    'bench',
    'range and quantize, JS in and out',
    'ours, ms',
    'onnxruntime-web / ours',
    'onnxruntime-web',
  ],
  ['dequantize, 16 Mi floats', 'bench', 'dequantize', 'ours, ms', 'onnxruntime-web / ours', 'onnxruntime-web'],
  [
    'int4 in groups of 32, 16 Mi floats',
    'bench',
    'int4 groups of 32',
    'ours, ms',
    'onnxruntime-web / ours',
    'onnxruntime-web',
  ],
  [
    '1024 floats, JavaScript arrays in and out',
    'bench',
    'quantize 1024 floats, JS in and out',
    'ours, ms',
    'onnxruntime-web / ours',
    'onnxruntime-web',
  ],
  ['least squared error, int4, groups of 32, 1 Mi floats', 'ranges', 'mse, groups of 32, int4', 'ours, ms', '', ''],
  ['blocks of Q4_0', 'blocks', 'Q4_0', 'Node, million weights a second', 'of native ggml', 'native ggml'],
  ['blocks of Q4_K', 'blocks', 'Q4_K', 'Node, million weights a second', 'of native ggml', 'native ggml'],
  [
    'a layer of 4096 x 4096, W8A8',
    'linear',
    'W8A8, 4096 x 4096',
    'ours, ms',
    'onnxruntime-web float32 / ours',
    'onnxruntime-web, float32',
  ],
  [
    'a layer of 4096 x 4096, W4A8, groups of 32',
    'linear',
    'W4A8, groups of 32, 4096 x 4096',
    'ours, ms',
    'onnxruntime-web float32 / ours',
    'onnxruntime-web, float32',
  ],
];

/** The table of README.md, from the tables of the guide. @param {string} guide */
export function bestTable(guide) {
  const lines = [
    '| in Node, one thread | ours | speedup over a peer | speedup over plain JavaScript |',
    '|---|---|---|---|',
  ];
  for (const [text, table, name, ours, peer, library] of best) {
    const row = rowsIn(guide, table).find(
      (each) => Object.values(each)[0] === name && (each.where ?? 'Node') === 'Node',
    );
    if (row === undefined) throw new Error(`the table ${table} has no row ${name}`);
    const unit = ours.endsWith('ms') ? ' ms' : ' million weights a second';
    const faster = peer === '' ? '-' : `${row[peer]} ${library}`;
    lines.push(`| ${text} | ${row[ours]}${unit} | ${faster} | ${row['plain JavaScript / ours'] ?? '-'} |`);
  }
  return lines.join('\n');
}

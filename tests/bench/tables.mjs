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
 * Rows of the guide's tables that README.md shows, the last of which is not a win: a text, the table, its row, and which of its columns says how
 * much faster than another library it is.
 * @type {readonly (readonly [text: string, table: string, row: string, peer: string])[]}
 */
const shown = [
  ['find the range and quantize 16 Mi floats to int8', 'bench', 'range and quantize', 'onnxruntime-web / ours'],
  ['a layer of 4096 x 4096, 1 row, W8A8', 'linear', 'W8A8, 4096 x 4096', 'onnxruntime-web float32 / ours'],
  [
    'the same layer, 128 rows, W4A32',
    'linear',
    'W4A32, groups of 32, 4096 x 4096, 128 rows',
    'onnxruntime-web float32 / ours',
  ],
];

/** The table of README.md, from the tables of the guide. @param {string} guide */
export function speedTable(guide) {
  const lines = ['| in Node, one thread | ours | speedup over onnxruntime-web, float32 |', '|---|---|---|'];
  for (const [text, table, name, peer] of shown) {
    const row = rowsIn(guide, table).find((each) => Object.values(each)[0] === name && each.where === 'Node');
    if (row === undefined) throw new Error(`the table ${table} has no row ${name}`);
    lines.push(`| ${text} | ${row['ours, ms']} ms | ${row[peer]} |`);
  }
  return lines.join('\n');
}

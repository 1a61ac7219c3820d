/**
 * The card of a repository with results: README.md with the metadata that the hub reads, what was made, and how to make and to run it. The facts
 * stand in a comment at its end, so that a later push adds its results to those that are there.
 */
import { version } from '../core/core.mjs';
import type { HubListing } from './listing.js';

/** A program that reads a result. */
interface CardReader {
  /** Its name. */
  readonly program: string;
  /** A command or a line or two of code; FOLDER is the repository, and OWNER/NAME its name. */
  readonly code: string;
  /** Further requirements, in a sentence. */
  readonly needs?: string | undefined;
  /** The code for a file on the hub, where it is another one. */
  readonly fromHub?: string | undefined;
}

/** A result on a card. */
export interface CardResult {
  /** Path of its first file in the repository. */
  readonly file: string;
  /** The target, such as Q4_K_M. */
  readonly type: string;
  /** Size of all files in bytes. */
  readonly bytes: number;
  /** Bits of the result for each weight. */
  readonly bitsPerWeight?: number | undefined;
  /** Perplexity on some text. */
  readonly perplexity?: number | undefined;
  /** Perplexity of the source on the same text. */
  readonly referencePerplexity?: number | undefined;
  /** Kullback-Leibler divergence from the source in nats, the mean over the tokens. */
  readonly kl?: number | undefined;
  /** The command that makes it again. */
  readonly command?: string | undefined;
  /** Programs that read it, the usual one first. */
  readonly readers?: readonly CardReader[] | undefined;
}

/** The facts on a card. */
export interface CardFacts {
  /** The model on the hub that the results were made of; undefined for files. */
  readonly source?: Pick<HubListing, 'id' | 'commit' | 'card'> | undefined;
  readonly results: readonly CardResult[];
}

/** Names of readers' programs on the hub: `library_name`, and tags. */
const libraries: Readonly<Record<string, { readonly library: string; readonly tags: readonly string[] }>> = {
  'llama.cpp': { library: 'gguf', tags: ['gguf', 'llama-cpp'] },
  'mlx-lm': { library: 'mlx', tags: ['mlx'] },
  'transformers.js': { library: 'transformers.js', tags: ['onnx'] },
  vLLM: { library: 'transformers', tags: [] },
  transformers: { library: 'transformers', tags: [] },
};

/** A value in YAML. JSON is YAML; plain words need no quotes, unless YAML takes them for something else (`no` is Norwegian, and false). */
function yamlValue(value: unknown): string {
  const isWord = typeof value === 'string' && /^[a-z][\w./-]*$/i.test(value);
  return isWord && !/^(y|n|yes|no|on|off|true|false|null)$/i.test(value) ? value : JSON.stringify(value);
}

/** An entry of metadata; empty for undefined. Lists are written one value a line. */
function yamlEntry(key: string, value: unknown): string[] {
  if (value === undefined || value === null || (Array.isArray(value) && value.length === 0)) return [];
  if (!Array.isArray(value)) return [`${key}: ${yamlValue(value)}`];
  return [`${key}:`, ...value.map((one) => `- ${yamlValue(one)}`)];
}

const marker = '<!-- made by scalepoint: ';

/** The facts in a card; undefined in a README of somebody else. */
export function factsOfCard(text: string): CardFacts | undefined {
  const start = text.lastIndexOf(marker);
  if (start < 0) return undefined;
  try {
    const facts = JSON.parse(text.slice(start + marker.length, text.indexOf(' -->', start))) as CardFacts;
    return Array.isArray(facts.results) ? facts : undefined;
  } catch {
    return undefined;
  }
}

/** The text in a cell of a table, or in a fence. */
const cell = (text: string) => text.replace(/[|\\`<]/g, '\\$&').replace(/\s+/g, ' ');
const fence = (language: string, code: string) => [`\`\`\`${language}`, code.replaceAll('```', ''), '```', ''];

/**
 * The text of a card.
 * @param id the repository
 * @param before facts of the card that is there: its other results stay
 */
export function cardText(id: string, { source, results: added }: CardFacts, before?: CardFacts): string {
  const files = new Set(added.map(({ file }) => file));
  const results = [...(before?.results ?? []).filter(({ file }) => !files.has(file)), ...added];
  const base = source ?? before?.source;
  const { license, license_name, license_link, language, pipeline_tag, library_name } = base?.card ?? {};
  const card = { license, license_name, license_link, language, pipeline_tag, library_name };
  const programs = results.flatMap(({ readers = [] }) => readers.map(({ program }) => program));
  const known = programs.flatMap((program) => libraries[program] ?? []);
  const tags = new Set([...known.flatMap((one) => one.tags), 'quantized', 'scalepoint']);
  const metadata = [
    ...Object.entries({ license, license_name, license_link, language }),
    ...Object.entries(base === undefined ? {} : { base_model: base.id, base_model_relation: 'quantized' }),
    ...Object.entries({ pipeline_tag, library_name: known[0]?.library ?? library_name, tags: [...tags] }),
  ].flatMap(([key, value]) => yamlEntry(key, value));

  const columns = [
    { title: 'File', of: ({ file }: CardResult) => cell(file) },
    { title: 'Type', of: ({ type }: CardResult) => cell(type) },
    { title: 'Bits per weight', of: ({ bitsPerWeight }: CardResult) => bitsPerWeight?.toFixed(2) },
    { title: 'Bytes', of: ({ bytes }: CardResult) => bytes.toLocaleString('en') },
    { title: 'Perplexity', of: ({ perplexity }: CardResult) => perplexity?.toFixed(4) },
    { title: 'of the source', of: ({ referencePerplexity }: CardResult) => referencePerplexity?.toFixed(4) },
    { title: 'KL divergence', of: ({ kl }: CardResult) => kl?.toFixed(5) },
  ].filter(({ of }) => results.some((result) => of(result) !== undefined));
  const row = (cells: readonly (string | undefined)[]) => `| ${cells.map((text) => text ?? '').join(' | ')} |`;

  // The usual programs of each result. A line that loads a file from the hub comes before one that names the file.
  const lines = new Map<string, string>();
  for (const { readers = [] } of results) {
    const own = readers.filter(({ code, fromHub }) => fromHub !== undefined || code.includes('FOLDER'));
    for (const { program, code, fromHub, needs } of own.length > 0 ? own : readers.slice(0, 1)) {
      const text = (fromHub ?? code).replaceAll(/(\.\/)?FOLDER|OWNER\/NAME/g, () => id);
      const [need] = /It needs [^.]*\./.exec(needs ?? '') ?? [];
      lines.set(text, need === undefined ? program : `${program}. ${need}`);
    }
  }
  const commands = new Set(results.flatMap(({ command }) => command ?? []));
  const facts = JSON.stringify({ source: base && { id: base.id, commit: base.commit, card }, results })
    .replaceAll('>', '\\u003e')
    .replaceAll('--', '-\\u002d');
  const from =
    base === undefined
      ? ''
      : ` from [${base.id}](https://huggingface.co/${base.id}) at commit \`${base.commit.slice(0, 12)}\``;
  return [
    '---',
    ...metadata,
    '---',
    '',
    `# ${id.split('/')[1]}`,
    '',
    `Made${from} by Scalepoint ${version}.`,
    '',
    row(columns.map(({ title }) => title)),
    row(columns.map(() => '---')),
    ...results.map((result) => row(columns.map(({ of }) => of(result)))),
    '',
    ...(lines.size === 0 ? [] : ['## Run it', '']),
    ...[...lines].flatMap(([code, program]) => [`With ${program}`, '', ...fence('', code)]),
    ...(commands.size === 0 ? [] : ['## Make it again', '', ...fence('sh', [...commands].join('\n'))]),
    `${marker}${facts} -->`,
    '',
  ].join('\n');
}

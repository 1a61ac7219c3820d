/**
 * Vocabularies of tiktoken, as GLM-4-9B has one in its tokenizer.model and Kimi K2 in its tiktoken.model: a token in base64 and its rank in each
 * line; and Mistral's tekken.json. They become what a tokenizer.json would say.
 * Reference: github.com/ggml-org/llama.cpp, conversion/ chatglm.py at 32e9e04 (bpe, token_bytes_to_string) and deepseek.py 01a723d; the classes
 * ChatGLM4Tokenizer of huggingface.co/THUDM/glm-4-9b and TikTokenTokenizer of huggingface.co/moonshotai/Kimi-K2-Instruct for patterns and added
 * tokens; github.com/mistralai/mistral-common, src/mistral_common/tokens/tokenizers/tekken.py at aa5223c, for tekken.json.
 */
import { type Note, noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import { quoted } from '../../formats/files/bytes.js';
import { badFolderFile, unsupported } from './errors.js';
import { arrayMember, isObject, type Json, member, objectMember } from './json.js';
import { type AddedToken, byteCharacters, isId } from './vocabulary.js';

/** Most bytes of a token. Real ones have up to 128. */
const longest = 256;

const line = /^([A-Za-z0-9+/]+=*)[ \t]+(\d+)\r?$/;

/** True for a vocabulary of tiktoken. */
export function isRankFile(bytes: Uint8Array): boolean {
  const end = bytes.subarray(0, 4 * longest).indexOf(10);
  return end > 0 && line.test(String.fromCharCode(...bytes.subarray(0, end)));
}

/** Tokens that the class adds behind the others, for files that do not list them. */
const classTokens = [
  ...['<|endoftext|>', '[MASK]', '[gMASK]', '[sMASK]', '<sop>', '<eop>', '<|system|>', '<|user|>', '<|assistant|>'],
  ...['<|observation|>', '<|begin_of_image|>', '<|end_of_image|>', '<|begin_of_video|>', '<|end_of_video|>'],
];

const glmPattern = String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`;

const [upper, lower] = ['Lu', 'Ll'].map(
  (kind) => String.raw`[\p{${kind}}${kind === 'Lu' ? String.raw`\p{Lt}` : ''}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]`,
);
const ending = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
const lead = String.raw`[^\r\n\p{L}\p{N}]?`;

/** The pattern of Kimi K2: as that of GPT-4o, with Chinese characters apart. */
export const kimiPattern = [
  String.raw`[\p{Han}]+`,
  `${lead}${upper}*${lower}+${ending}`,
  `${lead}${upper}+${lower}*${ending}`,
  String.raw`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
].join('|');

/** A file with a vocabulary of tiktoken, the pattern of its class, and the number of tokens that the class adds behind it. */
interface RankFile {
  readonly file: string;
  readonly pattern: string;
  readonly reserved: number;
}
export const glmRanks: RankFile = { file: 'tokenizer.model', pattern: glmPattern, reserved: 0 };
export const kimiRanks: RankFile = { file: 'tiktoken.model', pattern: kimiPattern, reserved: 256 };

/** Tokens in the letters that stand for bytes, with their ranks, which are their ids. */
function readRanks(file: string, bytes: Uint8Array): Map<string, number> {
  const ranks = new Map<string, number>();
  for (const [i, text] of new TextDecoder('latin1').decode(bytes).split('\n').entries()) {
    if (text.trim() === '') continue;
    const [, base64, rank] =
      line.exec(text) ?? badFolderFile(file, `line ${i + 1} is not a token in base64 and its rank`);
    let binary: string;
    try {
      binary = atob(base64 as string);
    } catch {
      return badFolderFile(file, `line ${i + 1} is not base64`);
    }
    if (binary.length > longest) badFolderFile(file, `the token of line ${i + 1} has ${binary.length} bytes`);
    const token = Array.from(binary, (byte) => byteCharacters[byte.charCodeAt(0)]).join('');
    if (ranks.has(token)) badFolderFile(file, `the token ${quoted(token)} occurs twice`);
    ranks.set(token, Number(rank));
  }
  return ranks;
}

/** The model of a tokenizer.json for a vocabulary of ranks. Tokens that more than two others make are reached by no merge. */
function tokenizerWith(
  file: string,
  ranks: ReadonlyMap<string, number>,
  pattern: string,
  { added, first = 0, more = {} }: { added: readonly AddedToken[]; first?: number; more?: Json },
): { readonly tokenizer: Json; readonly notes: readonly Note[] } {
  const merges: [string, string][] = [];
  const unreached: string[] = [];
  for (const [token, own] of [...ranks].sort(([, a], [, b]) => a - b)) {
    if (token.length === 1) continue;
    // Carry out all merges of smaller ranks.
    const parts = token.split('');
    for (let at = 0; at >= 0; ) {
      let least = own;
      at = -1;
      for (let i = 1; i < parts.length; i++) {
        const rank = ranks.get(`${parts[i - 1]}${parts[i]}`) ?? Infinity;
        if (rank < least) [at, least] = [i - 1, rank];
      }
      if (at >= 0) parts.splice(at, 2, `${parts[at]}${parts[at + 1]}`);
    }
    const [left, right, third] = parts as [string, string, string?];
    if (third === undefined) merges.push([left, right]);
    else unreached.push(token);
  }
  const tokenizer = {
    added_tokens: added,
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false },
        { type: 'ByteLevel', add_prefix_space: false, use_regex: false },
      ],
    },
    // Tokens of the class come before the others, where these do not begin at 0.
    model: {
      type: 'BPE',
      vocab: Object.fromEntries([...ranks].map(([token, rank]) => [token, first + rank])),
      merges,
      ...more,
    },
  };
  if (unreached.length === 0) return { tokenizer, notes: [] };
  const text =
    `${unreached.length} tokens of ${file}, such as ${quoted(unreached[0] as string)}, are whole words that no merge of two tokens makes: llama.cpp ` +
    'never cuts text to them, and tiktoken does';
  return { tokenizer, notes: [noteOf('ignoreMerges', { tokens: unreached.length }, text)] };
}

/**
 * The tokenizer.json of a vocabulary of tiktoken.
 * @param listed the added tokens that tokenizer_config.json lists
 */
export function tokenizerOfRanks(
  { file, pattern, reserved }: RankFile,
  bytes: Uint8Array,
  listed: readonly AddedToken[],
) {
  const ranks = readRanks(file, bytes);
  const classOnes =
    reserved === 0 ? classTokens : Array.from({ length: reserved }, (_, i) => `<|reserved_token_${ranks.size + i}|>`);
  const own = classOnes.map((content, i) => ({ id: ranks.size + i, content, special: true }));
  const ids = new Set(listed.map(({ id }) => id));
  // The reserved ones are those that no file names.
  const added = listed.length > 0 && reserved === 0 ? listed : [...listed, ...own.filter(({ id }) => !ids.has(id))];
  return tokenizerWith(file, ranks, pattern, { added });
}

const tekkenFile = 'tekken.json';

/** The tokenizer.json of Mistral's tekken.json, and its tokenizer_config.json. Its own tokens come before those of the vocabulary. */
export function tokenizerOfTekken(keys: Json) {
  const config = objectMember(keys, 'config');
  const pattern = member(config, 'pattern');
  const [all, first] = ['default_vocab_size', 'default_num_special_tokens'].map((name) => member(config, name));
  if (typeof pattern !== 'string' || !isId(all) || !isId(first) || first > all)
    return badFolderFile(tekkenFile, 'config lacks pattern, default_vocab_size or default_num_special_tokens');
  const own = arrayMember(keys, 'special_tokens').filter(isObject);
  if (own.length === 0)
    return unsupported(tekkenFile, 'it lists no special_tokens, as those of the first version do not');
  const added = own.map((token): AddedToken => {
    const [id, content] = [member(token, 'rank'), member(token, 'token_str')];
    if (!isId(id) || id >= first || typeof content !== 'string')
      return badFolderFile(tekkenFile, `a special token has the rank ${show(id)} and the text ${show(content)}`);
    return { id, content, special: true };
  });
  const ids = new Set(added.map(({ id }) => id));
  for (let id = 0; id < first; id++) if (!ids.has(id)) added.push({ id, content: `<SPECIAL_${id}>`, special: true });
  // The list may be longer than the vocabulary.
  const ranks = new Map<string, number>();
  for (const entry of arrayMember(keys, 'vocab')
    .filter(isObject)
    .slice(0, all - first)) {
    const [rank, base64] = [member(entry, 'rank'), member(entry, 'token_bytes')];
    if (!isId(rank) || typeof base64 !== 'string' || !/^[A-Za-z0-9+/]+=*$/.test(base64) || base64.length % 4 !== 0)
      return badFolderFile(tekkenFile, `a token has the rank ${show(rank)} and the bytes ${show(base64)}`);
    const token = Array.from(atob(base64), (byte) => byteCharacters[byte.charCodeAt(0)]).join('');
    if (token.length > longest || ranks.has(token))
      badFolderFile(tekkenFile, `the token ${quoted(token)} is too long, or occurs twice`);
    ranks.set(token, rank);
  }
  const names = { bos: '<s>', eos: '</s>', unk: '<unk>', pad: '<pad>' };
  const settings = Object.fromEntries(Object.entries(names).map(([role, text]) => [`${role}_token`, text]));
  return {
    ...tokenizerWith(tekkenFile, ranks, pattern, { added, first, more: { ignore_merges: true } }),
    settings: { ...settings, add_bos_token: true, add_eos_token: false },
  };
}

// Texts of a made language, with the tag of each word. Words are ambiguous as in English: the subject of the text decides if one is a noun, a
// verb or an adjective, an ending marks the plural of nouns and the singular of verbs, and objects may come first. So tags follow from the text.
import { randomNumbers } from '../../../web/demo/shared/digits.mjs';

/** Words and tags of a text. @typedef {{ ids: number[], tags: number[] }} TaggedText */

/** Ids of words without an ending. */
const [first, separator, conjunction, objectMark] = [1, 2, 3, 4];
const [singular, plural, either] = [
  [5, 6, 7],
  [8, 9, 10],
  [11, 12],
];
const [prepositions, relatives] = [
  [13, 14, 15, 16, 17, 18],
  [19, 20],
];
const adverbs = Array.from({ length: 20 }, (_, i) => 21 + i);
const stemStart = 41;
const stemCount = 96;

/** Number of words. */
export const wordCount = stemStart + 2 * stemCount;

const tagNames = [
  ...['subject', 'object', 'oblique'].flatMap((role) => [`${role} singular`, `${role} plural`]),
  ...['verb', 'verb of a clause'].flatMap((kind) => [`${kind} singular`, `${kind} plural`]),
  ...['adjective', 'determiner'].flatMap((kind) => [`${kind} singular`, `${kind} plural`]),
  ...['adverb', 'preposition', 'relative', 'conjunction', 'mark of objects', 'separator'],
];

/** Number of tags. */
export const tagCount = tagNames.length;

const tagOf = (/** @type {string} */ name) => tagNames.indexOf(name);

/** Number of subjects that a text may be about. */
const subjectCount = 4;

/** Stems by class for each subject of texts: which are frequent depends on it, and for half of them the class, too. */
const stemsOf = (() => {
  const random = randomNumbers(77);
  const classOf = () => Math.floor(3 * random() ** 1.4);
  const usual = Array.from({ length: stemCount }, classOf);
  return Array.from({ length: subjectCount }, (_, subject) => {
    /** @type {Record<'noun' | 'verb' | 'adjective', number[]>} */
    const found = { noun: [], verb: [], adjective: [] };
    const all = [found.noun, found.verb, found.adjective];
    for (let i = 0; i < stemCount; i++) {
      const stem = (i + (subject * stemCount) / subjectCount) % stemCount;
      all[random() < 0.5 ? /** @type {number} */ (usual[stem]) : classOf()]?.push(stem);
    }
    return found;
  });
})();

/** Draws words of one text. */
class Writer {
  /** @type {number[]} */
  ids = [];
  /** @type {number[]} */
  tags = [];
  #random;
  #stems;

  /** @param {() => number} random */
  constructor(random) {
    this.#random = random;
    this.#stems = /** @type {(typeof stemsOf)[number]} */ (stemsOf[Math.floor(subjectCount * random())]);
  }

  #is(/** @type {number} */ probability) {
    return this.#random() < probability;
  }

  /** One of a list. Earlier ones are more frequent. */
  #one(/** @type {readonly number[]} */ list) {
    return /** @type {number} */ (list[Math.floor(list.length * this.#random() ** 2)]);
  }

  #add(/** @type {number} */ id, /** @type {string} */ tag) {
    this.ids.push(id);
    this.tags.push(tagOf(tag));
  }

  #stem(
    /** @type {keyof (typeof stemsOf)[number]} */ kind,
    /** @type {boolean} */ hasEnding,
    /** @type {string} */ tag,
  ) {
    this.#add(stemStart + 2 * this.#one(this.#stems[kind]) + (hasEnding ? 1 : 0), tag);
  }

  #adverb() {
    this.#add(this.#one(adverbs), 'adverb');
  }

  #prepositional() {
    this.#add(this.#one(prepositions), 'preposition');
    this.#noun('oblique', this.#is(0.5) ? 'plural' : 'singular', 1);
  }

  #verb(/** @type {string} */ kind, /** @type {string} */ number) {
    this.#stem('verb', number === 'singular', `${kind} ${number}`);
  }

  /** A noun with what belongs to it. @param {string} role @param {string} number @param {number} depth */
  #noun(role, number, depth) {
    if (this.#is(0.85)) {
      const own = number === 'plural' ? plural : singular;
      this.#add(this.#one(this.#is(0.3) ? either : own), `determiner ${number}`);
    }
    while (this.#is(0.3)) this.#stem('adjective', false, `adjective ${number}`);
    this.#stem('noun', number === 'plural', `${role} ${number}`);
    if (depth > 0) return;
    if (this.#is(0.15)) this.#prepositional();
    if (this.#is(0.2)) {
      this.#add(this.#one(relatives), 'relative');
      const other = this.#is(0.5) ? 'plural' : 'singular';
      if (this.#is(0.6)) {
        this.#verb('verb of a clause', number);
        this.#noun('object', other, 1);
      } else {
        this.#noun('subject', other, 1);
        this.#verb('verb of a clause', other);
      }
    }
  }

  sentence() {
    const [subject, object] = [0, 1].map(() => (this.#is(0.4) ? 'plural' : 'singular'));
    if (this.#is(0.3)) {
      this.#add(objectMark, 'mark of objects');
      this.#noun('object', /** @type {string} */ (object), 0);
      this.#noun('subject', /** @type {string} */ (subject), 0);
      this.#verb('verb', /** @type {string} */ (subject));
    } else {
      this.#noun('subject', /** @type {string} */ (subject), 0);
      if (this.#is(0.2)) this.#adverb();
      this.#verb('verb', /** @type {string} */ (subject));
      if (this.#is(0.8)) this.#noun('object', /** @type {string} */ (object), 0);
    }
    if (this.#is(0.3)) this.#prepositional();
    if (this.#is(0.2)) this.#adverb();
    if (this.#is(0.3)) this.#add(conjunction, 'conjunction');
    else this.#add(separator, 'separator');
  }

  /** @param {number} length in words */
  text(length) {
    this.#add(first, 'separator');
    while (this.ids.length < length) this.sentence();
    return { ids: this.ids.slice(0, length), tags: this.tags.slice(0, length) };
  }
}

/**
 * Texts, always the same for a seed.
 * @param {{ count: number, length: number, seed: number }} wanted length of a text in words
 * @returns {TaggedText[]}
 */
export function taggedTexts({ count, length, seed }) {
  const random = randomNumbers(seed);
  return Array.from({ length: count }, () => new Writer(random).text(length));
}

/** Share of words that the most frequent tag of each word finds. @param {TaggedText[]} known @param {TaggedText[]} texts */
export function shareByWord(known, texts) {
  const counts = Array.from({ length: wordCount }, () => new Uint32Array(tagCount));
  for (const { ids, tags } of known) for (const [i, id] of ids.entries()) counts[id][tags[i]]++;
  const best = counts.map((row) => row.indexOf(row.reduce((a, b) => Math.max(a, b))));
  const found = texts.flatMap(({ ids, tags }) => ids.map((id, i) => (best[id] === tags[i] ? 1 : 0)));
  return found.reduce((/** @type {number} */ sum, one) => sum + one, 0) / found.length;
}

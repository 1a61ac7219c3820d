/**
 * Regular expressions given as text, matched in time linear in the name. JavaScript's own RegExp backtracks: `(a+)+$` takes hours on thirty
 * letters, and nothing can interrupt it.
 *
 * The syntax and the meaning are those of RegExp without flags: literals, `.`, classes, groups, `|`, `* + ? {m,n}`, `^ $ \b \B`, lookahead,
 * and the escapes below. Lookbehind, references to groups and modifiers are refused, as they cannot be matched this way.
 *
 * An expression becomes a nondeterministic automaton. Names are read from the end to the start, so that a lookahead is known before it is
 * needed. The sets of states that occur on the way are kept as states of a deterministic automaton (a lazy DFA, as in RE2).
 */
import { rangeError } from '../core/errors.js';
import { ofType } from '../core/option-problem.js';

// ------------------------------------------------------------------------------------------------------------------------ reading

/** UTF-16 code units in ranges, first and last in turn. */
interface CodeSet {
  readonly ranges: readonly number[];
  readonly isNegated: boolean;
}

type Assertion = 'start' | 'end' | 'boundary' | 'noBoundary';

type Node =
  | { readonly kind: 'code'; readonly set: CodeSet }
  | { readonly kind: 'assertion'; readonly assertion: Assertion }
  | { readonly kind: 'ahead'; readonly node: Node; readonly isNegated: boolean }
  | { readonly kind: 'repeat'; readonly node: Node; readonly min: number; readonly max: number }
  | { readonly kind: 'sequence'; readonly nodes: readonly Node[] }
  | { readonly kind: 'any'; readonly nodes: readonly Node[] };

/** Most groups inside each other. */
const mostDepth = 250;

/** Most states of an expression. Counts multiply: `((a{100}){100}){100}` would have a million. */
const mostStates = 50_000;

/** Most states of expressions that are matched together. A fit may have a rule for each of ten thousand tensors. */
const mostTogether = 2 ** 20;

const digit = [0x30, 0x39];
const word = [0x30, 0x39, 0x41, 0x5a, 0x5f, 0x5f, 0x61, 0x7a];
// biome-ignore format: a range a pair
const space = [
  0x09, 0x0d, 0x20, 0x20, 0xa0, 0xa0, 0x1680, 0x1680, 0x2000, 0x200a, 0x2028, 0x2029, 0x202f, 0x202f, 0x205f, 0x205f,
  0x3000, 0x3000, 0xfeff, 0xfeff,
];
/** Everything but ends of lines. */
const dot: CodeSet = { ranges: [0x0a, 0x0a, 0x0d, 0x0d, 0x2028, 0x2029], isNegated: true };

const classes: Readonly<Record<string, readonly number[]>> = { d: digit, w: word, s: space };
const controls: Readonly<Record<string, number>> = { 0: 0, n: 10, r: 13, t: 9, v: 11, f: 12 };

/** The ranges of all other code units. */
function complement(ranges: readonly number[]): number[] {
  const sorted = ranges.flatMap((at, i) => (i % 2 === 0 ? [[at, ranges[i + 1] as number] as const] : []));
  sorted.sort(([a], [b]) => a - b);
  const rest: number[] = [];
  let next = 0;
  for (const [first, last] of sorted) {
    if (first > next) rest.push(next, first - 1);
    next = Math.max(next, last + 1);
  }
  return next > 0xffff ? rest : [...rest, next, 0xffff];
}

function holdsCode({ ranges, isNegated }: CodeSet, code: number): boolean {
  for (let i = 0; i < ranges.length; i += 2) {
    if (code >= (ranges[i] as number) && code <= (ranges[i + 1] as number)) return !isNegated;
  }
  return isNegated;
}

const isWord = (code: number) => holdsCode({ ranges: word, isNegated: false }, code);

const twice = (code: number) => [code, code];

/** Reads an expression. Its methods throw a SyntaxError with the reason. */
class Reader {
  readonly #text: string;
  #at = 0;
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
  }

  read(): Node {
    const node = this.#alternatives();
    if (this.#at < this.#text.length) throw new SyntaxError('a ) has no (');
    return node;
  }

  /** Takes the text that a sticky expression matches. */
  #take(pattern: RegExp): RegExpExecArray | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text) ?? undefined;
    if (found !== undefined) this.#at += found[0].length;
    return found;
  }

  #alternatives(): Node {
    if (++this.#depth > mostDepth) throw new SyntaxError(`it has more than ${mostDepth} groups inside each other`);
    const nodes = [this.#sequence()];
    while (this.#take(/\|/y)) nodes.push(this.#sequence());
    this.#depth--;
    return nodes.length === 1 ? (nodes[0] as Node) : { kind: 'any', nodes };
  }

  #sequence(): Node {
    const nodes: Node[] = [];
    while (this.#at < this.#text.length && !/[|)]/.test(this.#text[this.#at] as string)) {
      const node = this.#term();
      const count = this.#count();
      if (count === undefined) nodes.push(node);
      else if (node.kind === 'assertion') throw new SyntaxError('nothing to repeat');
      else nodes.push({ kind: 'repeat', node, ...count });
    }
    return { kind: 'sequence', nodes };
  }

  /** Takes a quantifier. A lazy one finds the same names. */
  #count(): { readonly min: number; readonly max: number } | undefined {
    const [text, sign, least, comma, most] = this.#take(/(?:([*+?])|\{(\d+)(,?)(\d*)\})\??/y) ?? [];
    if (text === undefined) return undefined;
    if (sign !== undefined) return { min: sign === '+' ? 1 : 0, max: sign === '?' ? 1 : Infinity };
    const min = Number(least);
    const max = most ? Number(most) : comma ? Infinity : min;
    if (max < min) throw new SyntaxError('the numbers in {} are out of order');
    return { min, max };
  }

  #term(): Node {
    const text = this.#text;
    switch (text[this.#at]) {
      case '^':
      case '$':
        return { kind: 'assertion', assertion: text[this.#at++] === '^' ? 'start' : 'end' };
      case '.':
        this.#at++;
        return { kind: 'code', set: dot };
      case '(':
        return this.#group();
      case '[':
        return { kind: 'code', set: this.#class() };
      case '*':
      case '+':
      case '?':
        throw new SyntaxError('nothing to repeat');
      case '\\': {
        const boundary = this.#take(/\\[bB]/y)?.[0];
        if (boundary !== undefined)
          return { kind: 'assertion', assertion: boundary === '\\b' ? 'boundary' : 'noBoundary' };
        return { kind: 'code', set: { ranges: this.#escape(), isNegated: false } };
      }
    }
    // A { that begins no quantifier is a literal.
    if (this.#take(/(?=\{\d+,?\d*\})/y)) throw new SyntaxError('nothing to repeat');
    const code = text.charCodeAt(this.#at++);
    return { kind: 'code', set: { ranges: [code, code], isNegated: false } };
  }

  #group(): Node {
    const [, ahead] = this.#take(/\((?:\?(?:([=!])|:|<[A-Za-z_$][\w$]*>)|(?!\?))/y) ?? [undefined, 'refused'];
    if (ahead === 'refused') {
      const what = this.#text.startsWith('(?<', this.#at) ? 'lookbehind' : 'groups like';
      throw new SyntaxError(`rules have no ${what} ${this.#text.slice(this.#at, this.#at + 4)}`);
    }
    const node = this.#alternatives();
    if (!this.#take(/\)/y)) throw new SyntaxError('a ( has no )');
    // A group of one assertion can be repeated, unlike the assertion.
    if (ahead === undefined) return { kind: 'sequence', nodes: [node] };
    return { kind: 'ahead', node, isNegated: ahead === '!' };
  }

  /** Takes an escape: the code units that it stands for. */
  #escape(): readonly number[] {
    const form = /\\(?:([dwsDWS])|x([\da-fA-F]{2})|u([\da-fA-F]{4})|c([a-zA-Z])|([nrtvf]|0(?!\d)|[^\da-zA-Z]))/y;
    const [text, type, byte, unit, control, plain = ''] = this.#take(form) ?? [];
    if (text === undefined) {
      const found = this.#text.slice(this.#at, this.#at + 2);
      if (found === '\\') throw new SyntaxError('a \\ at the end escapes nothing');
      throw new SyntaxError(`rules have no ${/[1-9k]/.test(found) ? 'references like' : 'escape'} ${found}`);
    }
    if (type !== undefined) {
      const ranges = classes[type.toLowerCase()] as readonly number[];
      return /[a-z]/.test(type) ? ranges : complement(ranges);
    }
    const hexadecimal = byte ?? unit;
    if (hexadecimal !== undefined) return twice(Number.parseInt(hexadecimal, 16));
    return twice(control === undefined ? (controls[plain] ?? plain.charCodeAt(0)) : control.charCodeAt(0) % 32);
  }

  /** Takes a class in brackets. */
  #class(): CodeSet {
    const isNegated = this.#take(/\[(\^?)/y)?.[1] === '^';
    const ranges: number[] = [];
    for (;;) {
      if (this.#at >= this.#text.length) throw new SyntaxError('a [ has no ]');
      if (this.#take(/\]/y)) return { ranges, isNegated };
      const first = this.#member();
      const last = this.#take(/-(?!\])/y) && this.#member();
      if (last === undefined) ranges.push(...first);
      // Next to a class, the - stands for itself.
      else if (first.length !== 2 || last.length !== 2 || first[0] !== first[1] || last[0] !== last[1])
        ranges.push(...first, ...twice(0x2d), ...last);
      else if ((last[0] as number) < (first[0] as number)) throw new SyntaxError('a range in [] is out of order');
      else ranges.push(first[0] as number, last[0] as number);
    }
  }

  /** Takes a code unit or an escape in a class. */
  #member(): readonly number[] {
    if (this.#at >= this.#text.length) throw new SyntaxError('a [ has no ]');
    if (this.#take(/\\b/y)) return twice(8);
    return this.#text[this.#at] === '\\' ? this.#escape() : twice(this.#text.charCodeAt(this.#at++));
  }
}

// ---------------------------------------------------------------------------------------------------------------------- automaton

/** A step between states that reads nothing, if its condition holds. */
interface Step {
  /** The state before it. */
  readonly from: number;
  readonly assertion?: Assertion | undefined;
  /** The program of a lookahead. */
  readonly ahead?: number;
  readonly isNegated?: boolean;
}

/** The expression, or the expression of a lookahead. */
interface Program {
  readonly start: number;
  /** The state after all of it. */
  readonly end: number;
}

/** Most states and steps between them that are visited. With those that are kept, a name takes a step for each of its code units. */
const mostVisits = 2 ** 23;
const tooManyVisits = `it takes more than ${mostVisits} steps to match the names`;

/** The work on some expressions, which is bounded for all of them together. */
export class MatchingWork {
  #states = 0;
  #visits = 0;

  /** Counts the states of an expression. @throws SyntaxError */
  addStates(count: number): void {
    this.#states += count;
    if (this.#states > mostTogether)
      throw new SyntaxError(`with those before, it has more than ${mostTogether} states`);
  }

  /** Counts visited states. Returns false if they are too many. */
  visit(count: number): boolean {
    this.#visits += count;
    return this.#visits <= mostVisits;
  }
}

/** The states of an expression, with their steps in the direction in which names are read: to the state before. */
class Automaton {
  /** The steps that lead into each state. */
  readonly into: Step[][] = [];
  /** The states from which a code unit leads into each state. */
  readonly codesInto: number[][] = [];
  /** The code units of each state that reads one. */
  readonly sets: (CodeSet | undefined)[] = [];
  /** The program that each state belongs to. */
  readonly owners: number[] = [];
  /** The whole expression, then lookaheads, each after the program that contains it. */
  readonly programs: Program[] = [];
  #owner = 0;
  #work = 0;

  constructor(root: Node) {
    this.#program(root);
  }

  #state(set?: CodeSet): number {
    this.into.push([]);
    this.codesInto.push([]);
    this.owners.push(this.#owner);
    return this.sets.push(set) - 1;
  }

  #step(from: number, to: number, condition: Omit<Step, 'from'> = {}): void {
    this.into[to]?.push({ from, ...condition });
  }

  #program(node: Node): number {
    const outer = this.#owner;
    this.#owner = this.programs.length;
    const program = { start: 0, end: this.#state() };
    const number = this.programs.push(program) - 1;
    program.start = this.#before(node, program.end);
    this.#owner = outer;
    return number;
  }

  /** Adds the states of a node that lead to `next`. Returns the first of them. */
  #before(node: Node, next: number): number {
    // Counts of nothing make no states, but take time.
    if (++this.#work > mostStates) throw new SyntaxError(`it has more than ${mostStates} states`);
    switch (node.kind) {
      case 'code': {
        const state = this.#state(node.set);
        this.codesInto[next]?.push(state);
        return state;
      }
      case 'sequence':
        return node.nodes.reduceRight((after, one) => this.#before(one, after), next);
      case 'any': {
        const state = this.#state();
        for (const one of node.nodes) this.#step(state, this.#before(one, next));
        return state;
      }
      case 'repeat':
        return this.#repeated(node, next);
      case 'assertion': {
        const state = this.#state();
        this.#step(state, next, { assertion: node.assertion });
        return state;
      }
      case 'ahead': {
        const state = this.#state();
        this.#step(state, next, { ahead: this.#program(node.node), isNegated: node.isNegated });
        return state;
      }
    }
  }

  #repeated({ node, min, max }: Node & { kind: 'repeat' }, next: number): number {
    let first = next;
    if (max === Infinity) {
      first = this.#state();
      this.#step(first, next);
      this.#step(first, this.#before(node, first));
    }
    for (let i = min; max !== Infinity && i < max; i++) {
      const state = this.#state();
      this.#step(state, next);
      this.#step(state, this.#before(node, first));
      first = state;
    }
    for (let i = 0; i < min; i++) first = this.#before(node, first);
    return first;
  }
}

/** The states of the automaton at a position of a name. */
interface Position {
  /** The states that read the code unit before the position. */
  readonly readers: readonly number[];
  /** True if a match begins here. */
  readonly isMatch: boolean;
  /** True if no match can begin before. */
  readonly isLost: boolean;
  /** The position before, at 3 times the code unit between them, plus the side before that. */
  readonly before: (Position | undefined)[];
}

/** The code unit at one side of a position: the name ends there, a letter, digit or _, or another. */
type Side = 0 | 1 | 2;

/** Most positions that are kept, and most states in them. */
const mostPositions = 2000;
const mostReaders = 500_000;

/** A regular expression given as text. */
export class NamePattern {
  readonly source: string;
  readonly #option: string;
  /** Set anew for each call that matches names, as rules stay the same. */
  work: MatchingWork;
  readonly #automaton: Automaton;
  /** Most names lack it, and searching it is faster than all else. */
  readonly #text: string;
  readonly #usesWords: boolean;
  readonly #endsAtEnd: boolean;
  /** The kept positions, by their readers. */
  #positions = new Map<string, Position>();
  /** The number of their readers. */
  #readers = 0;
  /** The position at the end of names, by the side before it. */
  #last: (Position | undefined)[] = [];

  /**
   * @param source in the syntax of RegExp
   * @param option name for errors
   * @param work shared by expressions that are matched together
   * @throws RangeError if the syntax is wrong or not supported
   */
  constructor(source: string, option: string, work = new MatchingWork()) {
    this.source = source;
    this.#option = option;
    this.work = work;
    try {
      const root = new Reader(source).read();
      // Find the longest text that all matches contain, as far as it is easily seen.
      let [text, longest] = ['', ''];
      for (const node of root.kind === 'sequence' ? root.nodes : []) {
        const [first, last] = node.kind === 'code' && !node.set.isNegated ? node.set.ranges : [];
        const isLetter = node.kind === 'code' && node.set.ranges.length === 2 && first !== undefined && first === last;
        text = isLetter ? text + String.fromCharCode(first) : '';
        if (text.length > longest.length) longest = text;
      }
      this.#text = longest;
      this.#automaton = new Automaton(root);
      work.addStates(this.#automaton.sets.length);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      throw this.#wrong(error.message);
    }
    const steps = this.#automaton.into.flat();
    this.#usesWords = steps.some(({ assertion }) => assertion === 'boundary' || assertion === 'noBoundary');
    this.#endsAtEnd = this.#isAnchored();
  }

  #wrong(message: string): RangeError {
    return rangeError(this.#option, ofType('regular expression'), this.source, { kind: 'because', message });
  }

  /** True if a part of the name matches, or all of it. @throws RangeError if that takes too many steps */
  test(name: string): boolean {
    if (!name.includes(this.#text)) return false;
    let left = this.#sideAt(name, name.length - 1);
    this.#last[left] ??= this.#position([], true, 0, left);
    let position = this.#last[left] as Position;
    for (let i = name.length - 1; i >= 0; i--) {
      if (position.isMatch || position.isLost) return position.isMatch;
      const code = name.charCodeAt(i);
      const right = left;
      left = this.#sideAt(name, i - 1);
      position = position.before[3 * code + left] ?? this.#before(position, code, right, left);
    }
    return position.isMatch;
  }

  #sideAt(name: string, at: number): Side {
    if (at < 0) return 0;
    return this.#usesWords && isWord(name.charCodeAt(at)) ? 1 : 2;
  }

  /** The position before another, with a code unit between them. */
  #before(position: Position, code: number, right: Side, left: Side): Position {
    const { sets } = this.#automaton;
    let visits = position.readers.length;
    const seeds = position.readers.filter((state) => {
      const set = sets[state] as CodeSet;
      visits += set.ranges.length >> 1;
      return holdsCode(set, code);
    });
    if (!this.work.visit(visits)) throw this.#wrong(tooManyVisits);
    const before = this.#position(seeds, false, right, left);
    position.before[3 * code + left] = before;
    return before;
  }

  /** True if the expression matches up to the end of names only. */
  #isAnchored(): boolean {
    const { into, codesInto, programs } = this.#automaton;
    const { start, end } = programs[0] as Program;
    const found = new Set([end]);
    for (const state of found) {
      if (state === start || (codesInto[state] as number[]).length > 0) return false;
      for (const { from, assertion } of into[state] as Step[]) if (assertion !== 'end') found.add(from);
    }
    return true;
  }

  /**
   * The position with states that have read the code unit after it.
   * @param isEnd true at the end of the name
   */
  #position(seeds: readonly number[], isEnd: boolean, right: Side, left: Side): Position {
    const { into, codesInto, owners, programs } = this.#automaton;
    const starts = programs.map(() => false);
    const isTrue = ({ assertion, ahead, isNegated }: Step): boolean => {
      if (ahead !== undefined) return starts[ahead] !== isNegated;
      if (assertion === undefined) return true;
      if (assertion === 'start') return left === 0;
      if (assertion === 'end') return isEnd;
      return ((left === 1) !== (right === 1)) === (assertion === 'boundary');
    };
    const readers: number[] = [];
    let isLost = false;
    // Decide each lookahead before the programs that contain it.
    for (let i = programs.length - 1; i >= 0; i--) {
      const { start, end } = programs[i] as Program;
      const states = new Set(seeds.filter((state) => owners[state] === i));
      // A match may end at any position, unless it is anchored to the end of the name.
      if (i > 0 || isEnd || !this.#endsAtEnd) states.add(end);
      const before = readers.length;
      // The loop also visits the states that it adds.
      for (const state of states) {
        if (!this.work.visit(1 + (into[state] as Step[]).length)) throw this.#wrong(tooManyVisits);
        for (const reader of codesInto[state] as number[]) readers.push(reader);
        for (const step of into[state] as Step[]) if (isTrue(step)) states.add(step.from);
      }
      starts[i] = states.has(start);
      isLost = i === 0 && this.#endsAtEnd && readers.length === before;
    }
    return this.#kept({ readers: readers.sort((a, b) => a - b), isMatch: starts[0] as boolean, isLost });
  }

  /** The kept position that equals this one. */
  #kept({ readers, isMatch, isLost }: Omit<Position, 'before'>): Position {
    const key = `${isMatch} ${readers}`;
    const known = this.#positions.get(key);
    if (known !== undefined) return known;
    this.#readers += readers.length;
    if (this.#positions.size >= mostPositions || this.#readers > mostReaders) {
      this.#positions = new Map();
      this.#last = [];
      this.#readers = readers.length;
    }
    const position: Position = { readers, isMatch, isLost, before: [] };
    this.#positions.set(key, position);
    return position;
  }
}

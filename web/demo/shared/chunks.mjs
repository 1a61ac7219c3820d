// Fewer files of the site: chunks that are mostly loaded together become one.
//
// Written by hand because Rolldown makes a chunk for each set of entries that share modules, dynamic imports among them: a model would open
// with 113 files, of which each worker reads 60 again. Rolldown's own groups, which join all that some entries share, know neither what is
// there before an entry nor what a file more costs.

/** @typedef {{ fileName: string, code: string, isEntry: boolean, imports: string[], dynamicImports: string[] }} Chunk */

/** Bytes of code that take as long to load as one file more. */
const fileCost = 4_000;

/**
 * The chunks that are loaded once an entry is, by the entry.
 * @param {Map<string, Chunk>} chunks @returns {Map<string, Set<string>>}
 */
function loadedBy(chunks) {
  const roots = [...chunks.values()].filter(({ isEntry }) => isEntry).map(({ fileName }) => fileName);
  /** Chunks of each entry without its dynamic imports. @type {Map<string, Set<string>>} */
  const entries = new Map(roots.map((root) => [root, new Set()]));
  /** Entries by the chunks that import them dynamically. @type {Map<string, Set<string>>} */
  const importers = new Map();
  // Both grow while they are walked.
  for (const [entry, reached] of entries) {
    reached.add(entry);
    for (const name of reached) {
      const { imports, dynamicImports } = /** @type {Chunk} */ (chunks.get(name));
      for (const one of imports) reached.add(one);
      for (const one of dynamicImports) {
        if (!entries.has(one)) entries.set(one, new Set());
        importers.set(one, (importers.get(one) ?? new Set()).add(name));
      }
    }
  }
  // Entries that are surely there with an entry, itself among them: at first all, then fewer until nothing changes.
  const before = new Map(
    [...entries.keys()].map((entry) => [entry, new Set(roots.includes(entry) ? [entry] : entries.keys())]),
  );
  for (let isChanged = true; isChanged; ) {
    isChanged = false;
    for (const [entry, there] of before) {
      if (roots.includes(entry)) continue;
      const places = [...entries].filter(([, reached]) =>
        [...(importers.get(entry) ?? [])].some((name) => reached.has(name)),
      );
      for (const one of there) {
        if (one === entry || places.every(([place]) => before.get(place)?.has(one))) continue;
        there.delete(one);
        isChanged = true;
      }
    }
  }
  return new Map(
    [...before].map(([entry, there]) => [entry, new Set([...there].flatMap((one) => [...(entries.get(one) ?? [])]))]),
  );
}

/** @typedef {{ names: string[], size: number, with: Set<string>, imports: Set<Group> }} Group */

/** True if a group imports another one by way of a third: as one file they would import what imports them. @param {Group} from @param {Group} to */
function isAround(from, to) {
  const reached = new Set(from.imports);
  reached.delete(to);
  for (const one of reached) for (const next of one.imports) if (next !== from) reached.add(next);
  return reached.has(to);
}

/**
 * Groups the chunks of a build.
 * @param {readonly Chunk[]} all
 * @returns {string[][]} file names; entries that the browser begins with, pages and workers, are in no group
 */
export function groupsOf(all) {
  const chunks = new Map(all.map((chunk) => [chunk.fileName, chunk]));
  const loads = loadedBy(chunks);
  /** @type {Map<string, Group>} */
  const groupOf = new Map();
  for (const { fileName, code, isEntry } of all) {
    if (isEntry) continue;
    const loaders = [...loads].filter(([, loaded]) => loaded.has(fileName)).map(([entry]) => entry);
    groupOf.set(fileName, { names: [fileName], size: code.length, with: new Set(loaders), imports: new Set() });
  }
  const groups = [...groupOf.values()];
  // A chunk that imports the own one of a page would bring that page to others.
  const mixes = groups.filter(({ names: [name = ''] }) => chunks.get(name)?.imports.every((one) => groupOf.has(one)));
  for (const [name, { imports }] of groupOf) {
    for (const one of chunks.get(name)?.imports ?? []) {
      const group = groupOf.get(one);
      if (group !== undefined) imports.add(group);
    }
  }
  for (;;) {
    /** The two that save most. @type {{ gain: number, a: Group, b: Group } | undefined} */
    let best;
    for (const [i, a] of mixes.entries()) {
      for (const b of mixes.slice(i + 1)) {
        let both = 0;
        for (const entry of a.with) if (b.with.has(entry)) both++;
        const gain = both * fileCost - (b.with.size - both) * a.size - (a.with.size - both) * b.size;
        if (gain > (best?.gain ?? 0) && !isAround(a, b) && !isAround(b, a)) best = { gain, a, b };
      }
    }
    if (best === undefined) return groups.filter(({ names }) => names.length > 0).map(({ names }) => names);
    const { a, b } = best;
    mixes.splice(mixes.indexOf(b), 1);
    a.names.push(...b.names.splice(0));
    a.size += b.size;
    for (const entry of b.with) a.with.add(entry);
    for (const one of b.imports) a.imports.add(one);
    for (const { imports } of groups) if (imports.delete(b)) imports.add(a);
    a.imports.delete(a);
  }
}

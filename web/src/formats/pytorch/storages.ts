/** The files of torch.save: the value that was saved, and the place of each storage. */
import { ScalepointError } from '../../core/errors.js';
import { type ByteSource, quoted } from '../files/bytes.js';
import { badFile } from '../files/errors.js';
import { checkEntriesApart, entriesOf, InflatedSource, type PlacedEntry, placed } from '../zip.js';
import { isKind, mostPickleBytes, pickleIn } from './pickle.js';
import { legacyMagic } from './signature.js';
import type { PickleValue, StorageValue } from './values.js';

/** Bytes of a storage. */
interface Place {
  /** The packed entry that they are in; undefined for those in the file itself. */
  readonly inflated?: InflatedSource | undefined;
  readonly begin: number;
  readonly bytes: number;
}

/** A file of torch.save. */
export interface SavedFile {
  readonly value: PickleValue;
  /** True if the elements have their highest byte first. */
  readonly isBigEndian: boolean;
  /** Locates a storage. @throws ScalepointError `BAD_FILE` if it is not there, or has another size */
  place(storage: StorageValue): Place;
}

function unfinished(byteOffset: number): never {
  return badFile('pickle: it has no end', byteOffset);
}

/** Entries that are looked at at a time, since each is a read of its own. */
const atOnce = 32;

/** The bytes of a small entry. */
async function entryContent(source: ByteSource, place: PlacedEntry, most: number): Promise<Uint8Array<ArrayBuffer>> {
  const { name, size, at } = place.entry;
  if (size > most) badFile(`${quoted(name)} has ${size} bytes, more than the ${most} allowed`, at);
  if (place.entry.method === 0) return source.read(place.begin, place.begin + size);
  const inflated = new InflatedSource(source, place);
  try {
    return await inflated.read(0, size);
  } finally {
    await inflated.close();
  }
}

/**
 * Opens a zip archive, as torch.save writes it since PyTorch 1.6. Reference: torch/serialization.py of github.com/pytorch/pytorch at
 * 00f730b, _save and _load. Checksums are not compared, because torch.load does not, and torch.save can leave them out. It does not pack
 * entries; other tools do, and torch.load reads them (caffe2/serialize/inline_container.cc, PyTorchStreamReader::getRecord).
 */
async function openArchive(file: ByteSource): Promise<SavedFile> {
  // Find the pickle, and the folder that it is in.
  const { entries, listAt } = await entriesOf(file);
  const pickles = entries.filter(({ name }) => /^([^/]*\/)?data\.pkl$/.test(name));
  const [main, other] = pickles;
  if (main === undefined) {
    throw new ScalepointError(
      'UNKNOWN_FORMAT',
      'the file is a zip archive without data.pkl, so torch.save has not written it',
      { byteOffset: 0 },
    );
  }
  if (other !== undefined)
    badFile(`${quoted(main.name)} and ${quoted(other.name)} are both in the zip archive`, other.at);
  const folder = main.name.slice(0, -'data.pkl'.length);
  if (entries.some(({ name }) => name === `${folder}constants.pkl`)) {
    throw new ScalepointError(
      'UNKNOWN_FORMAT',
      'the file is a program of TorchScript; save the state_dict of the model',
      { byteOffset: 0 },
    );
  }
  const located: PlacedEntry[] = [];
  for (let i = 0; i < entries.length; i += atOnce) {
    located.push(...(await Promise.all(entries.slice(i, i + atOnce).map((entry) => placed(file, entry)))));
  }
  checkEntriesApart(located, listAt);
  const places = new Map<string, PlacedEntry>();
  for (const place of located) {
    const { name, at } = place.entry;
    if (places.has(name)) badFile(`${quoted(name)} is in the zip archive twice`, at);
    places.set(name, place);
  }

  // Read it.
  const order = places.get(`${folder}byteorder`);
  const byteOrder = order && new TextDecoder().decode(await entryContent(file, order, 16));
  if (byteOrder !== undefined && byteOrder !== 'little' && byteOrder !== 'big') {
    badFile(`the byte order ${quoted(byteOrder)} is unknown`, (order as PlacedEntry).entry.at);
  }
  const place = places.get(main.name) as PlacedEntry;
  const bytes = await entryContent(file, place, mostPickleBytes);
  const { value, end } = pickleIn(bytes, place.begin) ?? unfinished(place.begin + bytes.length);
  if (end !== bytes.length) badFile('pickle: more bytes follow its end', place.begin + end);
  /** Packed storages, each once. */
  const inflated = new Map<string, InflatedSource>();
  return {
    value,
    isBigEndian: byteOrder === 'big',
    place({ key, type, count, at }) {
      const name = `${folder}data/${key}`;
      const found = places.get(name);
      if (found === undefined) return badFile(`the storage ${quoted(name)} is not in the zip archive`, at);
      const { size, method } = found.entry;
      if (size !== count * type.bytes) {
        badFile(`${quoted(name)} has ${size} bytes; ${count} elements of ${type.name} take ${count * type.bytes}`, at);
      }
      if (method === 0) return { begin: found.begin, bytes: size };
      const source = inflated.get(name) ?? new InflatedSource(file, found);
      inflated.set(name, source);
      return { inflated: source, begin: 0, bytes: size };
    },
  };
}

/** Bytes of a pickle of unknown length that are read at first. */
const firstBytes = 2 ** 20;

/** Reads the pickle at an offset, whose length nothing states. */
async function pickleAt(source: ByteSource, at: number): Promise<{ value: PickleValue; end: number }> {
  const most = Math.min(source.size - at, mostPickleBytes);
  for (let length = Math.min(firstBytes, most); ; length = Math.min(4 * length, most)) {
    const found = pickleIn(await source.read(at, at + length), at);
    if (found !== undefined) return { value: found.value, end: at + found.end };
    if (length === most) return unfinished(at + length);
  }
}

/** The storages that a value refers to, by key. */
function storagesIn(value: PickleValue): Map<string, StorageValue> {
  const storages = new Map<string, StorageValue>();
  const seen = new Set<PickleValue>();
  const open: PickleValue[] = [value];
  for (let one = open.pop(); one !== undefined; one = open.pop()) {
    if (typeof one !== 'object' || one === null || seen.has(one)) continue;
    seen.add(one);
    if (isKind(one, 'storage')) storages.set(one.key, storages.get(one.key) ?? one);
    else if (isKind(one, 'tensor')) open.push(one.storage);
    else if (isKind(one, 'list')) for (const item of one.items) open.push(item);
    else if (isKind(one, 'dict')) for (const [key, item] of one.entries) open.push(key, item);
  }
  return storages;
}

/**
 * Opens a file of before PyTorch 1.6: five pickles, then the storages. Reference: torch/serialization.py, _legacy_save and _legacy_load.
 */
async function openLegacy(source: ByteSource): Promise<SavedFile> {
  // Read the version, the machine and the value.
  const version = await pickleAt(source, legacyMagic.length);
  if (version.value !== 1001) badFile('the file has an unknown version', legacyMagic.length);
  const machine = await pickleAt(source, version.end);
  const main = await pickleAt(source, machine.end);
  const list = await pickleAt(source, main.end);
  const littleEndian = isKind(machine.value, 'dict') ? machine.value.entries.get('little_endian') : undefined;
  if (typeof littleEndian !== 'boolean') badFile('the file does not say in which order its bytes are', version.end);
  if (!isKind(list.value, 'list')) badFile('the list of the storages is missing', main.end);

  // Go through the storages: the count of elements, then the elements.
  const known = storagesIn(main.value);
  const places = new Map<string, Place>();
  let at = list.end;
  for (const key of list.value.items) {
    const storage = typeof key === 'string' ? known.get(key) : undefined;
    if (storage === undefined || typeof key !== 'string')
      badFile('the list of the storages names one that nothing uses', main.end);
    if (places.has(key)) badFile(`the storage ${quoted(key)} is in the list twice`, main.end);
    if (at + 8 > source.size) badFile(`the file ends before the storage ${quoted(key)}`, source.size);
    const { buffer } = await source.read(at, at + 8);
    const count = Number(new DataView(buffer).getBigUint64(0, littleEndian));
    if (count !== storage.count)
      badFile(`the storage ${quoted(key)} has ${count} elements in place of ${storage.count}`, at);
    const place = { begin: at + 8, bytes: count * storage.type.bytes };
    if (!(place.begin + place.bytes <= source.size))
      badFile(`the file ends within the storage ${quoted(key)}`, source.size);
    places.set(key, place);
    at = place.begin + place.bytes;
  }
  if (at !== source.size) badFile('more bytes follow the last storage', at);
  return {
    value: main.value,
    isBigEndian: !littleEndian,
    place({ key, count, type, at: offset }) {
      const place = places.get(key);
      if (place === undefined) return badFile(`the storage ${quoted(key)} is not in the file`, offset);
      if (count * type.bytes !== place.bytes) badFile(`the storage ${quoted(key)} has two sizes`, offset);
      return place;
    },
  };
}

/** Opens a file of torch.save. @throws ScalepointError `BAD_FILE`, `UNKNOWN_FORMAT` */
export async function openSaved(source: ByteSource): Promise<SavedFile> {
  const head = await source.read(0, Math.min(legacyMagic.length, source.size));
  if (head[0] === 0x50 && head[1] === 0x4b) return openArchive(source);
  if (legacyMagic.every((byte, i) => head[i] === byte)) return openLegacy(source);
  throw new ScalepointError('UNKNOWN_FORMAT', 'the file is a pickle that torch.save has not written', {
    byteOffset: 0,
  });
}

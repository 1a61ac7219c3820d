import { type Storage, widths } from './network.js';

/** Settings of the page that its address holds. Undefined members are as they come. */
export interface LinkedSettings {
  /** Width at the top. */
  readonly bits?: number | undefined;
  readonly lab?: Storage | undefined;
  /** Beginning of the story. */
  readonly begin?: string | undefined;
  /** Width of the story that is lit. */
  readonly tellBits?: number | undefined;
  readonly groups?: boolean | undefined;
  readonly search?: boolean | undefined;
}

const oneOf = <T extends string>(value: string | null, list: readonly T[]): T | undefined =>
  list.find((one) => one === value);

const widthIn = (value: string | null): number | undefined => widths.find((bits) => String(bits) === value);

const flagIn = (value: string | null): boolean | undefined => (value === null ? undefined : value === 'yes');

/** The settings of an address. What it holds besides is ignored. @param hash with or without `#` */
export function readLink(hash: string): LinkedSettings {
  const parameters = new URLSearchParams(hash.replace(/^#/, ''));
  const labBits = widthIn(parameters.get('lab'));
  const lab =
    labBits === undefined || labBits > 8
      ? undefined
      : {
          bits: labBits,
          granularity: oneOf(parameters.get('scales'), ['tensor', 'row', 'group']) ?? 'tensor',
          range: oneOf(parameters.get('range'), ['min-max', 'mse']) ?? 'min-max',
          codes: oneOf(parameters.get('levels'), ['even', 'nf4']) ?? 'even',
        };
  return {
    bits: widthIn(parameters.get('bits')),
    lab,
    begin: parameters.get('story') ?? undefined,
    tellBits: widthIn(parameters.get('story-bits')),
    groups: flagIn(parameters.get('groups')),
    search: flagIn(parameters.get('search')),
  };
}

/** Writes settings to the address, in place of those that it has for the same controls. */
export function writeLink({ bits, lab, begin, tellBits, groups, search }: LinkedSettings): void {
  const parameters = new URLSearchParams(location.hash.replace(/^#/, ''));
  // Drop the name of a place in the page, which looks like a setting without a value.
  for (const [name, value] of [...parameters]) if (value === '' && name !== 'story') parameters.delete(name);
  const set = (name: string, value: string | undefined) => value !== undefined && parameters.set(name, value);
  const flag = (value: boolean | undefined) => (value === undefined ? undefined : value ? 'yes' : 'no');
  set('bits', bits?.toString());
  set('lab', lab?.bits.toString());
  set('scales', lab?.granularity);
  set('range', lab?.range);
  set('levels', lab?.codes);
  set('story', begin);
  set('story-bits', tellBits?.toString());
  set('groups', flag(groups));
  set('search', flag(search));
  history.replaceState(history.state, '', `#${parameters}`);
}

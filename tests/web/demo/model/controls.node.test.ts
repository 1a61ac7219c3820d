// Controls under More beside the options that the formats have.
import type { ModelFormat } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { optionNames } from '../../../../web/demo/model/choice.js';
import { controlsFor, pageOptions } from '../../../../web/demo/model/controls.js';
import { formats } from '../../../../web/src/tooling.js';

const entries = formats.flatMap(({ options }) => Object.entries(options.entries));

describe('the options of the page', () => {
  it('have an entry for every option that is not a switch of the command line', () => {
    const open = entries.filter(([name, { flags }]) => {
      const [first] = flags;
      return first?.value !== undefined && !Object.hasOwn(pageOptions, name);
    });
    expect(open.map(([name]) => name)).toEqual([]);
  });

  it('exist', () => {
    const known = [...entries.map(([name]) => name), 'to', 'rules', 'targetSize', 'targetBitsPerWeight'];
    expect(Object.keys(pageOptions).filter((name) => !known.includes(name))).toEqual([]);
  });

  it('have controls whose values mean what flags of the command line mean', () => {
    for (const format of formats) {
      for (const { name } of format.targets) {
        for (const { option, values } of controlsFor(
          format,
          optionNames(format.name as ModelFormat, name),
          true,
          true,
        )) {
          const entry = format.options.entries[option];
          for (const { words } of values.slice(1)) {
            expect(() => entry?.check(entry.read(words), option), option).not.toThrow();
            expect(Object.keys(words)).not.toEqual([]);
          }
        }
      }
    }
  });
});

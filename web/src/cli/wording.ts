/** Messages of the model functions, which speak of options, in the words of a command line. */
import { formats, keepMention, type OptionInfo } from '../tooling.js';

/** Options that are about no format. */
export const plainFlags: Readonly<Record<string, string>> = {
  to: 'to',
  targetSize: 'target-size',
  targetBitsPerWeight: 'target-bpw',
  workers: 'workers',
  minSqnrDb: 'min-sqnr',
  output: 'output',
  overwrite: 'force',
};

function optionsByName(): ReadonlyMap<string, OptionInfo> {
  return new Map(formats().flatMap(({ options }) => Object.entries(options.entries)));
}

/** A message about anything: what can be done is told in flags. */
export function inCommandWords(message: string): string {
  let text = message.replaceAll(keepMention, "--rule 'REGEX=keep'").replaceAll('run.dimensions tells', '--dim tells');
  for (const [name, { mention, flags }] of optionsByName()) {
    const flag = `--${flags[0]?.name}`;
    if (mention !== undefined) text = text.replaceAll(mention, flag);
    for (const { mention: own } of flags) if (own !== undefined) text = text.replaceAll(...own);
    // What a note is about.
    if (flags.length > 0 && text.startsWith(`${name}: `)) text = `${flag}${text.slice(name.length)}`;
  }
  return text;
}

/** A message about an option: values that it mentions are told as they are given here, `--to int8` for `to: 'int8'`. */
export function inFlags(message: string): string {
  let text = inCommandWords(message);
  const names = [...optionsByName()].flatMap(
    ([
      name,
      {
        flags: [flag],
      },
    ]) => (flag ? [[name, flag.name] as const] : []),
  );
  for (const [name, flag] of [...names, ['to', 'to'] as const]) {
    // Without a colon, "to" is a word of the sentence.
    const colon = name === 'to' ? ':' : ':?';
    text = text.replace(
      new RegExp(`(?<![\\w.\\]-])${name}${colon} ('[^']*'(?:(?:, | or )'[^']*')*)`, 'g'),
      (_, values: string) => {
        return `--${flag} ${values.replaceAll("'", '')}`;
      },
    );
    text = text.replace(new RegExp(`(?<![\\w.\\]-])${name}: true`, 'g'), `--${flag}`);
  }
  return text;
}

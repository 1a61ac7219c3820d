/** Scripts with which shells complete command lines, made of the tables of flags. */
import { type CommandFlag, type CommandFlags, completionsFlags } from './flags.js';
import { type Commands, groupsOf, makeCommand, positionalFiles } from './parse.js';
import { UsageError } from './process.js';

const shells = ['bash', 'zsh', 'fish'] as const;

/** The flags of all commands, with the values that are completed. */
function flagsByCommand(commands: Commands): Readonly<Record<string, CommandFlags>> {
  const withValues = ([name, flag]: [string, CommandFlag]): [string, CommandFlag] => {
    const values = flag.lists?.().flatMap((list) => list.values);
    return [name, values === undefined ? flag : { ...flag, choices: [...new Set(values)] }];
  };
  return Object.fromEntries(
    Object.entries(commands).map(([name, command]) => {
      const flags = groupsOf(command).flatMap((group) => Object.entries(group.flags).map(withValues));
      return [name, Object.fromEntries(flags)];
    }),
  );
}

/** True if a flag names a file. */
const takesFileName = ({ value = '' }: CommandFlag) => ['FILE', 'OUT'].includes(value);

/** The spellings of a flag: `-o`, `--output`. */
const spellings = ([name, { short }]: [string, CommandFlag]) => [
  ...(short === undefined ? [] : [`-${short}`]),
  `--${name}`,
];

/** A text in single quotes, inside of which all three shells leave everything as it is. Only zsh and bash continue words after a quote. */
const shellQuoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

// --------------------------------------------------------------------------------------------------------------------------- bash

function bashScript(commands: Commands): string {
  const names = Object.keys(commands);
  const all = Object.entries(flagsByCommand(commands));
  // Values by command and flag, then flags by command.
  const cases = all.flatMap(([command, flags]) => {
    const values = Object.entries(flags).flatMap((entry) => {
      const [, { value, choices }] = entry;
      if (value === undefined) return [];
      const patterns = spellings(entry).map((spelling) => `'${command} ${spelling}'`);
      return [`    ${patterns.join('|')}) values=${shellQuoted((choices ?? []).join(' '))}; takes=value ;;`];
    });
    return values;
  });
  const flags = all.map(
    ([command, own]) => `    ${command}) flags=${shellQuoted(Object.entries(own).flatMap(spellings).join(' '))} ;;`,
  );
  return `# Completions of scalepoint for bash.
_scalepoint() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]} command=quantize flags= values= takes= before=
  COMPREPLY=()
  # Readline splits --to=int8 into three words.
  if [[ $cur == = ]]; then cur=
  elif [[ $prev == = ]]; then prev=\${COMP_WORDS[COMP_CWORD-2]}; fi
  if ((COMP_CWORD > 1)); then
    case \${COMP_WORDS[1]} in ${[...names, 'help'].join('|')}) command=\${COMP_WORDS[1]} ;; esac
  fi
  case "$command $prev" in
${cases.join('\n')}
  esac
  if [[ $takes ]]; then
    # Without values, the shell completes names of files.
    [[ $cur == *,* ]] && before=\${cur%,*},
    COMPREPLY=($(compgen -P "$before" -W "$values" -- "\${cur##*,}"))
    return
  fi
  case $command in
${flags.join('\n')}
  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif [[ $command == completions ]]; then
    COMPREPLY=($(compgen -W '${shells.join(' ')}' -- "$cur"))
  elif [[ $command == help ]]; then
    COMPREPLY=($(compgen -W '${names.join(' ')}' -- "$cur"))
  elif ((COMP_CWORD == 1)); then
    local IFS=$'\\n'
    compopt -o filenames 2> /dev/null
    COMPREPLY=($(compgen -W ${shellQuoted([...names, 'help'].join('\n'))} -- "$cur") $(compgen -f -- "$cur"))
  fi
}
complete -o default -F _scalepoint scalepoint
`;
}

// ---------------------------------------------------------------------------------------------------------------------------- zsh

function zshScript(commands: Commands): string {
  const names = Object.keys(commands);
  const cases = Object.entries(flagsByCommand(commands)).map(([command, flags]) => {
    const lines = Object.entries(flags).map((entry) => {
      const [name, flag] = entry;
      const { value, short, multiple, about, choices } = flag;
      const end = value === undefined ? '' : '=';
      // The action that completes the value.
      const label = `:${(value ?? '').replace(/[^\w]/g, '')}:`;
      const kind = takesFileName(flag) ? '_files' : ' ';
      const words = choices?.join(' ');
      const list = name === 'to' ? `_values -s , ${label.slice(1, -1)} ${words}` : `(${words})`;
      const action = value === undefined ? '' : label + (choices === undefined ? kind : list);
      const text = shellQuoted(`[${about.replace(/[[\]\\:]/g, '\\$&')}]${action}`);
      const star = multiple ? "'*'" : '';
      if (short === undefined) return `${star}--${name}${end}${text}`;
      const both = `{-${short}${value === undefined ? '' : '+'},--${name}${end}}`;
      return `${star || `'(-${short} --${name})'`}${both}${text}`;
    });
    const rest = command === 'completions' ? `'1:shell:(${shells.join(' ')})'` : "'*:file:_files'";
    return `    ${command}) _arguments -s ${[...lines, rest].join(' \\\n      ')} ;;`;
  });
  const described = Object.entries(commands).map(([name, { about }]) =>
    shellQuoted(`${name}:${about.replaceAll(':', '\\:')}`),
  );
  return `#compdef scalepoint
# Completions of scalepoint for zsh.
_scalepoint() {
  local command=quantize
  local -a commands
  commands=(${described.join(' ')} 'help:explain a command')
  if ((CURRENT == 2)) && [[ $PREFIX != -* ]]; then
    _describe -t commands command commands
    _files
    return
  fi
  case $words[2] in
    ${[...names, 'help'].join('|')}) command=$words[2]; shift words; ((CURRENT--)) ;;
  esac
  case $command in
    help) _describe -t commands command commands ;;
${cases.join('\n')}
  esac
}
if [[ $funcstack[1] == _scalepoint ]]; then _scalepoint "$@"; else compdef _scalepoint scalepoint; fi
`;
}

// --------------------------------------------------------------------------------------------------------------------------- fish

/** A text in single quotes for fish, which escapes them by a backslash. */
const fishText = (text: string) => `'${text.replace(/[\\']/g, '\\$&')}'`;

function fishScript(commands: Commands): string {
  const names = Object.keys(commands);
  const byLine = new Map<string, string[]>();
  for (const [command, flags] of Object.entries(flagsByCommand(commands))) {
    for (const [name, flag] of Object.entries(flags)) {
      const { value, short, choices, about } = flag;
      const words = [
        ...(short === undefined ? [] : [`-s ${short}`]),
        `-l ${name}`,
        ...(value === undefined ? [] : [takesFileName(flag) ? '-r -F' : '-x']),
        ...(choices === undefined ? [] : [`-a ${fishText(choices.join(' '))}`]),
        `-d ${fishText(about)}`,
      ].join(' ');
      byLine.set(words, [...(byLine.get(words) ?? []), command]);
    }
  }
  const flags = [...byLine].map(
    ([words, commands]) => `complete -c scalepoint -n '__scalepoint_command ${commands.join(' ')}' ${words}`,
  );
  return `# Completions of scalepoint for fish.
function __scalepoint_command
  set -l words (commandline -opc)
  set -l command quantize
  contains -- "$words[2]" ${[...names, 'help'].join(' ')}; and set command $words[2]
  contains -- $command $argv
end
function __scalepoint_first
  test (count (commandline -opc)) -eq 1
end
${Object.entries(commands)
  .map(([name, { about }]) => `complete -c scalepoint -n __scalepoint_first -a ${name} -d ${fishText(about)}`)
  .join('\n')}
complete -c scalepoint -n __scalepoint_first -a help -d 'explain a command'
complete -c scalepoint -n '__scalepoint_command help' -f -a '${names.join(' ')}'
complete -c scalepoint -n '__scalepoint_command completions' -f -a '${shells.join(' ')}'
${flags.join('\n')}
`;
}

/** Makes the command that prints the completions of a shell. @param commands all commands, with this one */
export const makeCompletions = (commands: () => Commands) =>
  makeCommand({
    about: 'complete commands by the tab key',
    line: () => `completions ${shells.join('|')}`,
    usage: ['completions SHELL'],
    text: () =>
      'Prints a script with which the shell completes commands, options and their values by the tab key. SHELL is bash, zsh or fish.',
    flags: () => completionsFlags,
    examples: () => [
      'completions bash > ~/.local/share/bash-completion/completions/scalepoint',
      'completions zsh > ~/.zfunc/_scalepoint',
      'completions fish > ~/.config/fish/completions/scalepoint.fish',
    ],
    async carryOut({ positionals }) {
      const [word] = positionalFiles(positionals, ['SHELL'], 'completions');
      const shell = shells.find((known) => known === word);
      if (shell === undefined)
        throw new UsageError(`completions: expected ${shells.join(', ')}, got ${JSON.stringify(word)}`);
      const scripts = { bash: bashScript, zsh: zshScript, fish: fishScript };
      process.stdout.write(scripts[shell](commands()));
      return 0;
    },
  });

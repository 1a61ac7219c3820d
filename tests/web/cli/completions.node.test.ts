// The shells themselves complete command lines. Those that are not installed are left out.
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { hangLimit } from '../../../scripts/chromium.mjs';
import { path, run, useFolder } from './support.js';

useFolder();

/** The output of a shell in the folder of the test. */
const outputOf = (shell: string, ...args: readonly string[]) =>
  execFileSync(shell, args, { cwd: path(), encoding: 'utf8', timeout: hangLimit });

const isInstalled = (shell: string) => spawnSync(shell, ['-c', 'true']).status === 0;

/** Writes the script of a shell into the folder of the test. Returns its path. */
async function scriptOf(shell: string): Promise<string> {
  const { code, stdout, stderr } = await run(['completions', shell]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  await writeFile(path(`script.${shell}`), stdout);
  return path(`script.${shell}`);
}

const commands = ['quantize', 'inspect', 'plan', 'split', 'merge', 'compare', 'verify', 'bench', 'completions'];

describe.runIf(isInstalled('bash'))('in bash', () => {
  /** The words that bash offers for the last of some words. */
  async function offered(...words: string[]): Promise<string[]> {
    const script = await scriptOf('bash');
    const program = `source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _scalepoint; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const text = outputOf('bash', '--norc', '-c', program, 'bash', script, ...words);
    return text.split('\n').filter((line) => line !== '');
  }

  it('completes commands, and files in their place', async () => {
    expect(await offered('scalepoint', 'com')).toEqual(['compare', 'completions']);
    await writeFile(path('my model.gguf'), '');
    mkdirSync(path('mine'));
    expect((await offered('scalepoint', 'm')).sort()).toEqual(['merge', 'mine', 'my model.gguf']);
    expect(await offered('scalepoint', 'help', 'v')).toEqual(['verify']);
    expect(await offered('scalepoint', 'completions', '')).toEqual(['bash', 'zsh', 'fish']);
  });

  it('completes options of the command, or of quantize', async () => {
    expect(await offered('scalepoint', 'inspect', 'm.gguf', '--so')).toEqual(['--sort']);
    expect(await offered('scalepoint', 'inspect', 'm.gguf', '--to')).toEqual([]);
    expect(await offered('scalepoint', 'm.gguf', '--imat')).toEqual(['--imatrix']);
    expect(await offered('scalepoint', 'split', 'm.gguf', '--split-')).toEqual(['--split-size', '--split-tensors']);
    for (const command of commands) expect(await offered('scalepoint', command, '--hel')).toContain('--help');
  });

  it('completes values, also behind an equals sign or a comma', async () => {
    expect(await offered('scalepoint', 'm.gguf', '--to', 'Q4_K')).toEqual(['Q4_K_S', 'Q4_K_M']);
    expect(await offered('scalepoint', 'm.gguf', '--to', '=', 'bf')).toEqual(['bfloat16']);
    expect(await offered('scalepoint', 'm.gguf', '--preset', '=')).toEqual(['small', 'balanced', 'safe']);
    expect(await offered('scalepoint', 'm.onnx', '--to', 'q8,q4f')).toEqual(['q8,q4f16']);
    expect(await offered('scalepoint', 'inspect', '--sort', 'na')).toEqual(['name']);
    expect(await offered('scalepoint', 'compare', 'a', 'b', '--sort', '')).toEqual(['file', 'sqnr']);
    expect(await offered('scalepoint', 'm.safetensors', '--scheme', 'a')).toEqual(['asymmetric']);
    // The shell completes names of files.
    expect(await offered('scalepoint', 'm.gguf', '-o', '')).toEqual([]);
  });
});

describe.runIf(isInstalled('fish'))('in fish', () => {
  async function offered(line: string): Promise<string[]> {
    const script = await scriptOf('fish');
    const program = `source $argv[1]; complete -C $argv[2]`;
    const text = outputOf('fish', '--no-config', '-c', program, script, line);
    return text.split('\n').flatMap((one) => (one === '' ? [] : (one.split('\t')[0] as string)));
  }

  it('completes commands, options and values', async () => {
    expect(await offered('scalepoint com')).toEqual(['compare', 'completions']);
    expect(await offered('scalepoint inspect m.gguf --so')).toEqual(['--sort']);
    expect(await offered('scalepoint inspect m.gguf --preset')).toEqual([]);
    expect((await offered('scalepoint m.gguf --to Q4_K')).sort()).toEqual(['Q4_K_M', 'Q4_K_S']);
    expect(await offered('scalepoint compare a b --sort s')).toEqual(['sqnr']);
    expect(await offered('scalepoint completions z')).toEqual(['zsh']);
    await writeFile(path('rules.txt'), '');
    expect(await offered('scalepoint m.gguf --rules ru')).toEqual(['rules.txt']);
  });
});

describe.runIf(isInstalled('zsh'))('in zsh', () => {
  /** The output of a terminal after the tab key, up to the expected rest of the word. */
  async function completed(line: string, expected: string): Promise<string> {
    const program = `
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PROMPT=; autoload -Uz compinit; compinit -u -D; source '$1'; print RE""ADY'
zpty -r -m shell text '*READY*'
zpty -w -n shell $2$'\\t'
zpty -r -m shell text "*$3*"
print -r -- $text`;
    return outputOf('zsh', '-f', '-c', program, 'zsh', await scriptOf('zsh'), line, expected);
  }

  it('completes commands, options and values', async () => {
    for (const [line, expected] of [
      ['scalepoint quant', 'ize'],
      ['scalepoint inspect m.gguf --fil', 'ter'],
      ['scalepoint m.gguf --to bfl', 'oat16'],
      ['scalepoint compare a b --sort=s', 'qnr'],
      ['scalepoint completions b', 'ash'],
    ] as const) {
      expect(await completed(line, expected)).toContain(expected);
    }
  });
});

it('says which shells there are', async () => {
  expect(await run(['completions', 'tcsh'])).toEqual({
    code: 2,
    stdout: '',
    stderr: 'scalepoint: completions: expected bash, zsh, fish, got "tcsh"; see scalepoint completions --help\n',
  });
  expect((await run(['completions'])).stderr).toBe(
    'scalepoint: completions needs a SHELL; see scalepoint completions --help\n',
  );
});

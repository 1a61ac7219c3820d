// Prints what an editor shows in a program: the completions at each /*C*/, the hover text behind each /*H*/, and at each /*N*/ the completions
// that have no documentation. Takes the version of TypeScript and the file.
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';

const [version, file] = process.argv.slice(2);
const ts = createRequire(import.meta.url)(`typescript-${version}`);
const marks = [];
let text = '';
for (const [i, part] of readFileSync(file, 'utf8')
  .split(/\/\*([CHN])\*\//)
  .entries()) {
  if (i % 2 === 0) text += part;
  else marks.push({ kind: part, at: text.length });
}
const options = {
  module: ts.ModuleKind.NodeNext,
  moduleResolution: ts.ModuleResolutionKind.NodeNext,
  target: ts.ScriptTarget.ES2022,
  strict: true,
  types: [],
  noErrorTruncation: true,
};
const read = (path) => (path === file ? text : existsSync(path) ? readFileSync(path, 'utf8') : undefined);
const service = ts.createLanguageService({
  ...ts.sys,
  getCompilationSettings: () => options,
  getScriptFileNames: () => [file],
  getScriptVersion: () => '1',
  getScriptSnapshot: (path) => (read(path) === undefined ? undefined : ts.ScriptSnapshot.fromString(read(path))),
  getCurrentDirectory: () => dirname(file),
  getDefaultLibFileName: ts.getDefaultLibFilePath,
  readFile: read,
  useCaseSensitiveFileNames: () => true,
});
for (const { kind, at } of marks) {
  const hover = () => {
    const { displayParts, documentation } = service.getQuickInfoAtPosition(file, at) ?? {};
    return `${ts.displayPartsToString(displayParts)} ${ts.displayPartsToString(documentation)}`.replace(/\s+/g, ' ');
  };
  const completions = () => (service.getCompletionsAtPosition(file, at, {})?.entries ?? []).map(({ name }) => name);
  const isPlain = (name) =>
    (service.getCompletionEntryDetails(file, at, name, {}, undefined, {}, undefined)?.documentation ?? []).length === 0;
  const plain = () => completions().filter(isPlain);
  console.log(kind === 'H' ? hover() : (kind === 'N' ? plain() : completions()).sort().join(' '));
}

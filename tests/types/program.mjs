// The entry points of a package as the type checker of TypeScript sees them. For scripts that take the files of declarations.
import ts from 'typescript-5.9';

/** @param {import('typescript').CompilerOptions} [more] options of the compiler besides those of strict packages */
export function programOf(files, more = {}) {
  const program = ts.createProgram(files, {
    strict: true,
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    types: [],
    ...more,
  });
  const checker = program.getTypeChecker();
  /** The symbol that a name stands for. */
  const resolve = (symbol) => (symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol);
  const exported = files.flatMap((file) =>
    checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(file))).map(resolve),
  );
  return { checker, resolve, exported: new Set(exported) };
}

// Prints the types in signatures of a package's entry points that no entry point exports. Takes the files of declarations. Interfaces that
// others extend are left out: the reference shows their members where they are inherited.
import ts from 'typescript-5.9';
import { programOf } from './program.mjs';

const { checker, resolve, exported } = programOf(process.argv.slice(2));
const missing = new Set();
const isPrivate = (node) =>
  ts.canHaveModifiers(node) && ts.getModifiers(node)?.some(({ kind }) => kind === ts.SyntaxKind.PrivateKeyword);
/** True if a module of the package exports it, and not the module of the platform. Write out other types where they are used. */
const isOurs = (declaration) =>
  ts.isSourceFile(declaration.parent) &&
  ts.getModifiers(declaration)?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword) &&
  /[\\/]dist[\\/]/.test(declaration.getSourceFile().fileName) &&
  !/platform\.d\.ts$/.test(declaration.getSourceFile().fileName);
for (const symbol of exported) {
  for (const declaration of symbol.declarations ?? []) {
    const visit = (node) => {
      if (isPrivate(node)) return;
      if (ts.isHeritageClause(node)) return;
      const name = ts.isTypeReferenceNode(node) ? node.typeName : undefined;
      const found = name && checker.getSymbolAtLocation(name);
      if (found) {
        const target = resolve(found);
        if (!exported.has(target) && target.declarations?.some(isOurs)) missing.add(`${target.name} in ${symbol.name}`);
      }
      ts.forEachChild(node, visit);
    };
    visit(declaration);
  }
}
for (const line of [...missing].sort()) console.log(line);

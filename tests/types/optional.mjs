// Prints the optional properties in the types of a package's entry points that refuse undefined. Takes the files of declarations.
import ts from 'typescript-5.9';
import { programOf } from './program.mjs';

const { checker, exported } = programOf(process.argv.slice(2), { exactOptionalPropertyTypes: true });
const takesUndefined = (type) =>
  (type.isUnion() ? type.types : [type]).some(
    ({ flags }) => flags & (ts.TypeFlags.Undefined | ts.TypeFlags.Any | ts.TypeFlags.Unknown),
  );
const isOurs = (node) => !/typescript-5|[\\/]platform\.d\.ts$/.test(node.getSourceFile().fileName);
const missing = new Set();

/** Properties that are written in a declaration. */
function visitNode(node, path) {
  const isProperty = ts.isPropertySignature(node) || ts.isPropertyDeclaration(node);
  const name = isProperty && ts.isIdentifier(node.name) ? `${path}.${node.name.text}` : path;
  if (isProperty && node.questionToken && node.type && !takesUndefined(checker.getTypeFromTypeNode(node.type)))
    missing.add(name);
  ts.forEachChild(node, (child) => visitNode(child, name));
}

/** Properties of a type, wherever they are declared. */
function visitType(type, path) {
  if (type.isUnionOrIntersection()) for (const part of type.types) visitType(part, path);
  for (const property of checker.getPropertiesOfType(type))
    for (const declaration of property.declarations ?? []) if (isOurs(declaration)) visitNode(declaration, path);
}

for (const symbol of exported) {
  if (symbol.flags & ts.SymbolFlags.Type) visitType(checker.getDeclaredTypeOfSymbol(symbol), symbol.name);
  for (const declaration of symbol.declarations ?? []) visitNode(declaration, symbol.name);
}
for (const line of [...missing].sort()) console.log(line);

// A plugin of TypeDoc, for the parts of the site's reference that its options cannot express: addresses, order, overloads under one
// description, types as the source writes them, types that no entry point exports, and the check for missing doc comments.

import {
  Application,
  Comment,
  CommentTag,
  Converter,
  Context as ConverterContext,
  LiteralType,
  makeRecursiveVisitor,
  ReflectionKind,
} from 'typedoc';
import { MarkdownTheme, MarkdownThemeContext, ModuleRouter } from 'typedoc-plugin-markdown';
import ts from 'typescript';

/** Names to show before the others of their group, in the order in which programs use them. */
const first = [
  'load',
  'Scalepoint',
  'inspectModel',
  'planModel',
  'estimateModel',
  'quantizeModel',
  'compareModels',
  'verifyModel',
];

/** @param {{ name: string }} reflection */
const rank = ({ name }) => (first.includes(name) ? first.indexOf(name) : first.length);

/** The names that lead from the module to a reflection: `Scalepoint.quantize`. @param {import('typedoc').Reflection} reflection */
function pathOf(reflection) {
  const names = [];
  for (
    let at = reflection;
    at !== undefined && !at.kindOf(ReflectionKind.SomeModule | ReflectionKind.Project);
    at = at.parent
  )
    if (!at.kindOf(ReflectionKind.SomeSignature | ReflectionKind.TypeLiteral)) names.unshift(at.name);
  return names.join('.');
}

/** Gives each name an address that stays when others come: `#Scalepoint.quantize`. */
class Router extends ModuleRouter {
  buildAnchors(target, page) {
    // Calls this method for each part of the target.
    super.buildAnchors(target, page);
    if (!this.anchors.has(target)) return;
    const anchor = pathOf(target);
    this.anchors.set(target, anchor);
    this.fullUrls.set(target, this.fullUrls.get(target).replace(/#.*/, `#${anchor}`));
  }
}

class Context extends MarkdownThemeContext {
  partials = this.#partials(this.partials);

  /** @param {MarkdownThemeContext['partials']} given */
  #partials(given) {
    return {
      ...given,
      // Tables of properties have their defaults in the description, which leaves room for it.
      comment: (model, options) => {
        const text = given.comment(model, options);
        const value = options?.isTableColumn ? model.getTag('@defaultValue') : undefined;
        return value === undefined ? text : `${text} Default: ${this.helpers.getCommentParts(value.content)}`.trim();
      },
      constructor: (model) => this.#callable(model.signatures, (signature) => given.signatureTitle(signature)),
      signatures: (model) => this.#callable(model.signatures, (signature) => given.signatureTitle(signature)),
      accessor: ({ name, getSignature }) =>
        this.#callable([getSignature], ({ type }) => `> **${name}**: ${given.someType(type)}`),
    };
  }

  /**
   * All signatures of a function, then each of their doc comments once.
   * @param {import('typedoc').SignatureReflection[]} signatures
   * @param {(signature: import('typedoc').SignatureReflection) => string} titleOf
   */
  #callable(signatures, titleOf) {
    const docs = signatures.map((signature) => {
      const parameters = (signature.parameters ?? []).filter(({ comment }) => comment !== undefined);
      const list = parameters.map(
        ({ name, comment }) => `- \`${name}\`: ${this.helpers.getCommentParts(comment.summary)}`,
      );
      const text = { headingLevel: undefined, showReturns: true };
      return signature.comment === undefined
        ? ''
        : [
            this.partials.comment(signature.comment, { ...text, showTags: false }),
            list.join('\n'),
            this.partials.comment(signature.comment, { ...text, showSummary: false }),
          ].join('\n\n');
    });
    return [signatures.map(titleOf).join('\n>\n'), ...new Set(docs)].join('\n\n');
  }
}

class Theme extends MarkdownTheme {
  getRenderContext(page) {
    return new Context(this, page, this.application.options);
  }
}

/**
 * True if a reflection needs a description. Members with one possible value need no words, and neither do parts of what a
 * function takes or returns.
 * @param {import('typedoc').Reflection} reflection
 */
function needsDoc(reflection) {
  if (reflection.kindOf(ReflectionKind.SomeModule | ReflectionKind.Reference)) return false;
  if (reflection.type instanceof LiteralType || reflection.name === '[dispose]') return false;
  for (let at = reflection.parent; at !== undefined; at = at.parent)
    if (at.kindOf(ReflectionKind.SomeSignature)) return false;
  return true;
}

/** Heading of the types that members have, and that no entry point exports. */
const nestedGroup = 'Types of members';

/**
 * The references in the types of a module, without the interfaces that others extend: their members are shown where they are inherited.
 * @param {import('typedoc').DeclarationReflection} module
 */
function referencesIn(module) {
  /** @type {import('typedoc').ReferenceType[]} */
  const found = [];
  const visitor = makeRecursiveVisitor({
    reference: (type) => void found.push(type),
    reflection: ({ declaration }) => visit(declaration),
  });
  /** @param {import('typedoc').Reflection} reflection */
  function visit(reflection) {
    reflection.type?.visit(visitor);
    reflection.default?.visit(visitor);
    reflection.traverse((child) => void visit(child));
  }
  visit(module);
  return found;
}

/** True for a symbol of this package with a doc comment. @param {ts.Symbol} symbol @param {ts.TypeChecker} checker */
function isDocumented(symbol, checker) {
  const isOwn = symbol.declarations?.some((declaration) => {
    const isType = ts.isInterfaceDeclaration(declaration) || ts.isTypeAliasDeclaration(declaration);
    return isType && !declaration.getSourceFile().fileName.includes('/node_modules/');
  });
  const isValue = (symbol.flags & ts.SymbolFlags.Value) !== 0;
  return isOwn === true && !isValue && symbol.getDocumentationComment(checker).length > 0;
}

/**
 * Adds the types that members of exported types have, and that no entry point exports. Programs reach them by the member, as in
 * `CompareReport['tensors'][number]`.
 * @param {Application} app
 */
function addNestedTypes(app) {
  /** @type {WeakMap<import('typedoc').ReferenceType, ts.Symbol>} */
  const symbols = new WeakMap();
  const create = ConverterContext.prototype.createSymbolReference;
  ConverterContext.prototype.createSymbolReference = function (symbol, ...rest) {
    const reference = create.call(this, symbol, ...rest);
    symbols.set(reference, symbol);
    return reference;
  };
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, (context) => {
    const [program] = context.programs;
    context.setActiveProgram(program);
    const added = new Set();
    for (const module of context.project.children ?? []) {
      // Types of the added types, too.
      for (let before = -1; before !== added.size; ) {
        before = added.size;
        for (const reference of referencesIn(module)) {
          const found = symbols.get(reference);
          if (found === undefined || reference.reflection !== undefined) continue;
          const symbol = found.flags & ts.SymbolFlags.Alias ? context.checker.getAliasedSymbol(found) : found;
          if (added.has(symbol) || context.getReflectionFromSymbol(symbol) || !isDocumented(symbol, context.checker))
            continue;
          added.add(symbol);
          const known = new Set(module.children);
          context.converter.convertSymbol(context.withScope(module), symbol);
          for (const child of module.children ?? [])
            if (!known.has(child))
              child.comment?.blockTags.push(new CommentTag('@group', [{ kind: 'text', text: nestedGroup }]));
        }
      }
    }
    context.setActiveProgram(undefined);
  });
}

/** @param {Application} app */
export function load(app) {
  addNestedTypes(app);
  app.renderer.defineRouter('scalepoint', Router);
  app.renderer.defineTheme('scalepoint', Theme);
  // Types are shown as the source writes them. TypeScript would spell out some of those that have a name.
  const convertType = app.converter.convertType.bind(app.converter);
  app.converter.convertType = (context, type, node) => convertType(context, node ?? type);
  app.converter.on(Converter.EVENT_CREATE_TYPE_PARAMETER, (context, reflection) => {
    const [declaration] =
      context.getSymbolFromReflection(reflection)?.declarations?.filter(ts.isTypeParameterDeclaration) ?? [];
    if (declaration?.constraint) reflection.type = convertType(context, declaration.constraint);
    if (declaration?.default) reflection.default = convertType(context, declaration.default);
  });
  // A class that is exported as a type only is a class all the same.
  app.converter.on(Converter.EVENT_CREATE_DECLARATION, (context, reflection) => {
    const symbol = context.getSymbolFromReflection(reflection);
    if (symbol?.declarations?.some(ts.isClassDeclaration)) reflection.kind = ReflectionKind.Class;
  });
  // Members of a namespace have no doc comments: `plain` holds loops to compare with.
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    for (const namespace of project.getReflectionsByKind(ReflectionKind.Namespace)) project.removeReflection(namespace);
  });
  app.converter.on(
    Converter.EVENT_RESOLVE_END,
    ({ project }) => {
      for (const module of project.children ?? [])
        for (const { children } of module.groups ?? []) children.sort((a, b) => rank(a) - rank(b));
    },
    -1000,
  );
  app.on(Application.EVENT_VALIDATE_PROJECT, (project) => {
    const documented = ReflectionKind.SomeExport | ReflectionKind.SomeMember;
    for (const reflection of project.getReflectionsByKind(documented)) {
      const comments = [reflection, ...(reflection.signatures ?? []), reflection.getSignature].map(
        (each) => each?.comment,
      );
      const isTold = comments.some(
        (comment) => comment !== undefined && Comment.combineDisplayParts(comment.summary) !== '',
      );
      if (!isTold && needsDoc(reflection)) app.logger.validationWarning(`undocumented: ${pathOf(reflection)}`);
    }
  });
}

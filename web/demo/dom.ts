const svgNamespace = 'http://www.w3.org/2000/svg';

/** Attributes of an element made here. False leaves one out. */
export type Attributes = Readonly<Record<string, string | number | false>>;

/** The element of that id. The page's own markup is wrong if it is missing, so this throws. */
export function byId<T extends Element>(id: string, type: abstract new (...args: never[]) => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new TypeError(`#${id} is no ${type.name}`);
  return found;
}

function fill(node: Element, attributes: Attributes, children: readonly (Node | string)[]): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false) node.setAttribute(name, String(value));
  }
  node.append(...children);
}

/** Makes an HTML element. */
export function html<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(name);
  fill(node, attributes, children);
  return node;
}

/** Makes an SVG element. */
export function svg<K extends keyof SVGElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): SVGElementTagNameMap[K] {
  const node = document.createElementNS(svgNamespace, name);
  fill(node, attributes, children);
  return node;
}

/** Writes text only where it changes, so that nothing is read out or repainted for no reason. */
export function setText(node: Element, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

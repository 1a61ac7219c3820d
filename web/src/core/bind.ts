// Methods that can be taken out of their object: `const { quantize } = sp`.

/** Binds the methods of an object of a class to it. */
export function bindMethods(object: object): void {
  for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(Object.getPrototypeOf(object)))) {
    if (typeof value !== 'function' || name === 'constructor') continue;
    Object.defineProperty(object, name, { value: value.bind(object), writable: true, configurable: true });
  }
}

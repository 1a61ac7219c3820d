/** Remembers the path of a file in its folder, where the package looks for it. */
export function withPath(file: File, path: string): File {
  return Object.defineProperty(file, 'webkitRelativePath', { value: path });
}

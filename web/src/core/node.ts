// The parts of Node's modules that the library uses. They come from `process.getBuiltinModule`, never from an import, so that files that
// use them load in a browser as well.

/** An open file of Node's `fs/promises`, as far as it is used. */
export interface NodeFileHandle {
  /** The descriptor, by which workers read. */
  readonly fd?: number | undefined;
  /** Reads into a part of the buffer. */
  read(buffer: Uint8Array, offset: number, length: number, position: number): Promise<{ readonly bytesRead: number }>;
  /** The facts that the system has about the file. */
  stat(): Promise<{
    readonly size: number;
    readonly mtimeMs?: number | undefined;
    readonly dev?: number | undefined;
    readonly ino?: number | undefined;
    isFile(): boolean;
  }>;
}

/** An open file of Node's `fs/promises` for writing, as far as one of a caller is used. */
export interface NodeWritableHandle {
  /** Writes a part of the buffer. */
  write(
    buffer: Uint8Array,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ readonly bytesWritten: number }>;
  /** Cuts the file off, or fills it up with zeros. */
  truncate(length: number): Promise<void>;
}

/** A file that the library opened for writing, as far as it is used. */
export interface WritableFileHandle extends NodeFileHandle, Pick<NodeWritableHandle, 'write'> {
  chmod(mode: number): Promise<void>;
  datasync(): Promise<void>;
  close(): Promise<void>;
}

/** Node's modules, as far as they are used. Written out, so that users of the types do not need those of Node. */
export interface NodeModules {
  'node:fs/promises': {
    open(path: string, flags: string | number, mode?: number): Promise<WritableFileHandle>;
    lstat(path: string): Promise<{
      readonly mode: number;
      readonly dev?: number;
      readonly ino?: number;
      isFile(): boolean;
      isSymbolicLink(): boolean;
    }>;
    realpath(path: string): Promise<string>;
    readlink(path: string): Promise<string>;
    readdir(path: string): Promise<string[]>;
    stat(path: string): Promise<{ readonly size: number; isDirectory(): boolean; isFile(): boolean }>;
    link(from: string, to: string): Promise<void>;
    rename(from: string, to: string): Promise<void>;
    rm(path: string, options: { force: boolean }): Promise<void>;
    mkdir(path: string): Promise<unknown>;
    rmdir(path: string): Promise<void>;
  };
  'node:fs': {
    /** O_NONBLOCK is missing on some systems. */
    readonly constants: { readonly O_RDONLY: number; readonly O_WRONLY: number; readonly O_NONBLOCK?: number };
    openSync(path: string, flags: number): number;
    readFileSync(path: string): Uint8Array;
    createReadStream(path: string): AsyncIterable<Uint8Array>;
    closeSync(descriptor: number): void;
    readSync(descriptor: number, buffer: Uint8Array, offset: number, length: number, position: number): number;
    writeSync(descriptor: number, buffer: Uint8Array, offset: number, length: number, position: number): number;
    rmSync(path: string, options: { force: boolean }): void;
    fstatSync(descriptor: number): {
      readonly size: number;
      readonly mtimeMs?: number;
      readonly dev?: number;
      readonly ino?: number;
    };
  };
  'node:os': { availableParallelism(): number; homedir(): string; hostname(): string; tmpdir(): string };
  'node:worker_threads': {
    readonly Worker: new (
      url: URL,
      options: { readonly execArgv: string[]; readonly resourceLimits: { readonly maxYoungGenerationSizeMb: number } },
    ) => {
      postMessage(message: unknown, transfer: ArrayBuffer[]): void;
      terminate(): unknown;
    };
    readonly parentPort: {
      postMessage(message: unknown, transfer: Transferable[]): void;
      on(type: 'message', listener: (message: unknown) => void): void;
    } | null;
  };
  'node:path': {
    dirname(path: string): string;
    basename(path: string): string;
    join(...parts: string[]): string;
    resolve(...parts: string[]): string;
  };
  'node:zlib': { gunzipSync(packed: Uint8Array): Uint8Array };
  'node:crypto': {
    createHash(algorithm: 'sha1' | 'sha256'): { update(bytes: Uint8Array): unknown; digest(form: 'hex'): string };
  };
  'node:url': { fileURLToPath(url: URL): string; pathToFileURL(path: string): URL };
}

/** A module of Node; undefined outside of Node. */
export function nodeModule<K extends keyof NodeModules>(name: K): NodeModules[K] | undefined {
  const { process } = globalThis as { process?: { getBuiltinModule?(name: K): NodeModules[K] | undefined } };
  return process?.getBuiltinModule?.(name);
}

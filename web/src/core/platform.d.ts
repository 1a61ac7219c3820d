// Types of browsers and Node in public signatures. A project may have them from the DOM library or from @types/node. If it has neither, the
// types here take their place. The build imports them into each file of declarations that uses such a name.

/** A class of the platform: the project's own type, or else the fallback. */
type Known<Name extends string, Fallback> =
  typeof globalThis extends Record<Name, { prototype: infer T }> ? T : Fallback;

export type AbortSignal = Known<
  'AbortSignal',
  {
    readonly aborted: boolean;
    readonly reason: unknown;
    throwIfAborted(): void;
    addEventListener(type: 'abort', listener: () => void): void;
    removeEventListener(type: 'abort', listener: () => void): void;
  }
>;

export type Blob = Known<
  'Blob',
  {
    readonly size: number;
    readonly type: string;
    slice(start?: number, end?: number): Blob;
    arrayBuffer(): Promise<ArrayBuffer>;
  }
>;

export type Event = Known<'Event', { readonly type: string }>;

export type FileList = Known<'FileList', { readonly length: number; item(index: number): Blob | null }>;

export type FileSystemDirectoryHandle = Known<
  'FileSystemDirectoryHandle',
  { readonly kind: 'directory'; readonly name: string; getFileHandle(name: string): Promise<object> }
>;

export type FileSystemFileHandle = Known<
  'FileSystemFileHandle',
  { readonly kind: 'file'; readonly name: string; getFile(): Promise<Blob>; createWritable(): Promise<object> }
>;

export type Response = Known<
  'Response',
  { readonly ok: boolean; readonly url: string; arrayBuffer(): Promise<ArrayBuffer> }
>;

export type Transferable = ArrayBuffer | object;

export type URL = Known<'URL', { readonly href: string; readonly protocol: string; readonly pathname: string }>;

export type WritableStream<W = unknown> = typeof globalThis extends { WritableStream: { new (): infer T } }
  ? T
  : {
      readonly locked: boolean;
      abort(reason?: unknown): Promise<void>;
      getWriter(): { write(chunk: W): Promise<void>; close(): Promise<void> };
    };

export type BufferSource = ArrayBufferView | ArrayBuffer;

type Wasm<Name extends string> = typeof globalThis extends { WebAssembly: Record<Name, { prototype: infer T }> }
  ? T
  : object;

export type WebAssemblyModule = Wasm<'Module'>;
export type WebAssemblyInstance = Wasm<'Instance'>;
export type WebAssemblyImports = Record<string, Record<string, unknown>>;

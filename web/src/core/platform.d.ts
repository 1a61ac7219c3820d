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

export type ReadableStream<R = unknown> = typeof globalThis extends { ReadableStream: { new (): infer T } }
  ? T
  : {
      readonly locked: boolean;
      cancel(reason?: unknown): Promise<void>;
      getReader(): { read(): Promise<{ readonly done: boolean; readonly value?: R | undefined }> };
    };

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

/** Arrays: those of an ArrayBuffer are what `slice` returns, which has no type argument before TypeScript 5.7. */
type Fresh<Buffer, Any, New> = unknown extends Buffer ? Any : New;
export type BigInt64Array<Buffer = unknown> = Fresh<
  Buffer,
  globalThis.BigInt64Array,
  ReturnType<globalThis.BigInt64Array['slice']>
>;
export type BigUint64Array<Buffer = unknown> = Fresh<
  Buffer,
  globalThis.BigUint64Array,
  ReturnType<globalThis.BigUint64Array['slice']>
>;
export type Float32Array<Buffer = unknown> = Fresh<
  Buffer,
  globalThis.Float32Array,
  ReturnType<globalThis.Float32Array['slice']>
>;
export type Float64Array<Buffer = unknown> = Fresh<
  Buffer,
  globalThis.Float64Array,
  ReturnType<globalThis.Float64Array['slice']>
>;
export type Int16Array<Buffer = unknown> = Fresh<
  Buffer,
  globalThis.Int16Array,
  ReturnType<globalThis.Int16Array['slice']>
>;
export type Int32Array<Buffer = unknown> = Fresh<
  Buffer,
  globalThis.Int32Array,
  ReturnType<globalThis.Int32Array['slice']>
>;
export type Int8Array<Buffer = unknown> = Fresh<
  Buffer,
  globalThis.Int8Array,
  ReturnType<globalThis.Int8Array['slice']>
>;
export type Uint16Array<Buffer = unknown> = Fresh<
  Buffer,
  globalThis.Uint16Array,
  ReturnType<globalThis.Uint16Array['slice']>
>;
export type Uint32Array<Buffer = unknown> = Fresh<
  Buffer,
  globalThis.Uint32Array,
  ReturnType<globalThis.Uint32Array['slice']>
>;
export type Uint8Array<Buffer = unknown> = Fresh<
  Buffer,
  globalThis.Uint8Array,
  ReturnType<globalThis.Uint8Array['slice']>
>;

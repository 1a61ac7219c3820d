// Types of embedded.mjs, which scripts/build.mjs makes: files of this package, compressed by gzip, in base64.
export const simd: string;
export const scalar: string;
export const worker: string;

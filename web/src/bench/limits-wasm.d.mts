/** Base64 of limits.wasm, which scripts/build.mjs makes from limits.cpp. */
export declare const limits: string;

/** What importing a .wasm file gives depends on the bundler; most give its address. */
declare const url: string;
export default url;

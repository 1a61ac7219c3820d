/** An imported .wasm file. Bundlers differ in its value; most give the address of the file. */
declare const url: string;
export default url;

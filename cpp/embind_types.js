// The part of Embind that the door uses, in place of Embind's own (src/embind/embind.js of Emscripten 3.1.6), so that the glue is smaller.
// Calls take and return numbers and booleans of at most 32 bits, and doubles. WebAssembly converts the arguments as the C++ functions take
// them; a result needs the function that its type registers here. Embind registers all types at the start; functions without content stand
// for the types that no call has.
mergeInto(LibraryManager.library, {
  // From results of wasm to those of the door, by Embind's number of a type.
  $doorResults: {},
  _embind_register_void__deps: ['$doorResults'],
  _embind_register_void: function (type) {
    doorResults[type] = () => undefined;
  },
  _embind_register_bool__deps: ['$doorResults'],
  _embind_register_bool: function (type) {
    doorResults[type] = (value) => !!value;
  },
  _embind_register_integer__deps: ['$doorResults'],
  _embind_register_integer: function (type, _name, _size, min) {
    doorResults[type] = (value) => (min === 0 ? value >>> 0 : value);
  },
  _embind_register_float__deps: ['$doorResults'],
  _embind_register_float: function (type) {
    doorResults[type] = (value) => value;
  },
  // Types may be registered after the functions, so their conversions are looked up in the call.
  _embind_register_function__deps: ['$doorResults', '$getWasmTableEntry'],
  _embind_register_function: function (nameAt, _count, typesAt, _signature, _invoker, functionAt) {
    let name = '';
    for (let at = nameAt; HEAPU8[at] !== 0; at++) name += String.fromCharCode(HEAPU8[at]);
    const type = HEAPU32[typesAt >> 2];
    const call = getWasmTableEntry(functionAt);
    Module[name] = (...values) => doorResults[type](call(...values));
  },
  _embind_register_bigint: function () {},
  _embind_register_bigint__deps: [],
  _embind_register_emval: function () {},
  _embind_register_emval__deps: [],
  _embind_register_memory_view: function () {},
  _embind_register_memory_view__deps: [],
  _embind_register_std_string: function () {},
  _embind_register_std_string__deps: [],
  _embind_register_std_wstring: function () {},
  _embind_register_std_wstring__deps: [],
});

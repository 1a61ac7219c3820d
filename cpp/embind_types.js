// Leaves out of Embind what the door does not use, so that the glue is smaller: numbers alone pass through it, none of them 64-bit integers, and
// no objects whose fields Embind reads. Embind registers all types at the start; functions without content take the place of those for other
// types. See src/embind/embind.js of Emscripten 3.1.6.
mergeInto(LibraryManager.library, {
  _embind_register_bigint: function () {},
  _embind_register_emval: function () {},
  _embind_register_emval__deps: [],
  _embind_register_memory_view: function () {},
  _embind_register_std_string: function () {},
  _embind_register_std_wstring: function () {},
  $floatReadValueFromPointer: function () {},
  $integerReadValueFromPointer: function () {},
  $getDynCaller: function () {},
  $getDynCaller__deps: [],
});

# The WebAssembly modules of the npm package. scripts/build.mjs names the toolchain, the compiler and the number of the build.

# The compiler with the flags of em++ (scripts/build.mjs). em++ itself takes longer to start than most files take.
if(SCALEPOINT_COMPILE)
  set(CMAKE_CXX_COMPILE_OBJECT "${SCALEPOINT_COMPILE} <DEFINES> <INCLUDES> <FLAGS> -o <OBJECT> -c <SOURCE>")
endif()

# Loops that gain by vectors are written over lanes (*_loops.cpp). In all other loops the compiler would put vectors together from single
# values. That code is 2 kB larger and no faster.
# The stack has 64 kB, so a frame must leave room for others.
set(wasm_options -fno-vectorize -fno-slp-vectorize -Wframe-larger-than=24576)

# Since version 4 the glue keeps to itself what is not asked for.
if(EMSCRIPTEN_VERSION VERSION_GREATER_EQUAL 4)
  set(glue_exports -sEXPORTED_RUNTIME_METHODS=HEAP8,HEAPU8,HEAP16,HEAPU16,HEAP32,HEAPU32,HEAPF32,HEAPF64)
endif()

# Leaves out of the glue what only other programs use: settings from outside, environments that differ in how they fetch wasm (load.ts does
# that), and types that do not pass through the door.
set(small_glue -sENVIRONMENT=web -sINCOMING_MODULE_JS_API=[instantiateWasm,print,printErr]
               --js-library ${PROJECT_SOURCE_DIR}/cpp/embind_types.js)

# Code that is called once a tile, and the calls themselves, are kept small. Loops over elements stay fast.
set(small ${sources_same})
list(FILTER small INCLUDE REGEX "/(codecs|calibration)/")
list(FILTER small EXCLUDE REGEX "block_fit")
list(REMOVE_ITEM sources_same ${small})

# Files of the same options share their standard headers, too: a group takes them from `headers_of`, which may be the group itself.
function(add_objects name headers_of options)
  add_library(objects_${name} OBJECT ${ARGN})
  # The build folder holds door_exports_*.h, made by scripts/make_door.mjs.
  target_include_directories(objects_${name} PRIVATE cpp ${CMAKE_BINARY_DIR})
  target_compile_definitions(objects_${name} PRIVATE NDEBUG)
  target_compile_options(objects_${name} PRIVATE ${options} ${wasm_options} ${core_options} -Werror)
  if(headers_of STREQUAL name)
    target_precompile_headers(objects_${name} PRIVATE ${standard_headers})
  else()
    target_precompile_headers(objects_${name} REUSE_FROM objects_${headers_of})
  endif()
endfunction()
# SCALEPOINT_BUILD_ID lets the loader (web/src/core/load.ts) refuse a module that was built from other sources. It changes with every
# source, so only the file that reads it is compiled with it.
set_source_files_properties(
  cpp/bindings_arrays.cpp PROPERTIES COMPILE_DEFINITIONS SCALEPOINT_BUILD_ID=${SCALEPOINT_BUILD_ID} SKIP_PRECOMPILE_HEADERS ON)
# The compiler must not replace loops of memcpy by calls of it.
set_source_files_properties(cpp/libc_memory.cpp PROPERTIES COMPILE_OPTIONS -fno-builtin SKIP_PRECOMPILE_HEADERS ON)
add_objects(same same -O2 ${sources_same})
add_objects(small small "-Os;-fno-inline-functions" cpp/bindings_arrays.cpp ${small})
add_objects(only_arrays same -O2 cpp/ggml/block_formats_arrays.cpp)
add_objects(only_core small "-Os;-fno-inline-functions" cpp/bindings_models.cpp ${all_formats})
# The scalar tier is for few browsers, so it is kept small: at -O3 it is 3 kB larger and no faster.
add_objects(scalar same -O2 cpp/libc_memory.cpp ${sources_lanes})
add_objects(simd simd "-O3;-msimd128" cpp/libc_memory.cpp ${sources_lanes})

# Two modules, each in two tiers: core-* for model files, and arrays-*, which has fewer calls and block types; *-simd, and *-scalar for
# browsers without SIMD. All four share one glue file, and the files without lanes.
# -lexports.js adds no code. It makes the linker keep the names of imports and exports, which it would shorten in an order of each module's
# own. The shared glue needs the same names in all modules. --stack-first puts the stack below the tables: an overflow leaves the memory, which
# is a trap, and overwrites nothing.
foreach(tier IN ITEMS simd scalar)
  foreach(module IN ITEMS arrays core)
    add_executable(${module}-${tier})
    foreach(part IN ITEMS same small only_${module} ${tier})
      target_sources(${module}-${tier} PRIVATE $<TARGET_OBJECTS:objects_${part}>)
    endforeach()
    set_target_properties(${module}-${tier} PROPERTIES SUFFIX ".mjs" LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cpp/embind_types.js)
    target_link_options(
      ${module}-${tier} PRIVATE -Oz --bind --no-entry --emit-symbol-map -sMODULARIZE=1 -sEXPORT_ES6=1 -sUSE_ES6_IMPORT_META=0
      -sEXPORT_NAME=createCore -sDYNAMIC_EXECUTION=0 -sFILESYSTEM=0
      -sINITIAL_MEMORY=4MB -sTOTAL_STACK=64KB -Wl,--stack-first -sALLOW_MEMORY_GROWTH=1 -sMAXIMUM_MEMORY=4GB -lexports.js ${glue_exports} ${small_glue})
  endforeach()
endforeach()

# Loops that measure the memory limit for the benchmark (web/src/bench/limits.ts).
add_executable(limits web/src/bench/limits.cpp)
set_target_properties(limits PROPERTIES SUFFIX ".wasm")
target_compile_options(limits PRIVATE -O3 -msimd128)
target_link_options(
  limits PRIVATE -O3 --no-entry -sSTANDALONE_WASM -sINITIAL_MEMORY=64KB -sTOTAL_STACK=16KB -sALLOW_MEMORY_GROWTH=1
  -sEXPORTED_FUNCTIONS=_limit_read,_limit_four_to_one,_limit_one_to_four,_limit_divide)

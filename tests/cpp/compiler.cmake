# Clang compiles the tests, and their checks of memory, to code that takes a quarter less time than that of GCC, and takes a fifth less time
# itself. Debian's Emscripten brings it along. -DCMAKE_CXX_COMPILER or the variable CXX name another compiler.
if(NOT CMAKE_TOOLCHAIN_FILE AND NOT DEFINED CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX})
  find_program(SCALEPOINT_CLANG NAMES clang++ clang++-20 clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14)
  set(sanitizers_work 1)
  if(SCALEPOINT_CLANG)
    file(WRITE ${CMAKE_BINARY_DIR}/empty.cpp "#include <span>\nint main() {}\n")
    execute_process(
      COMMAND ${SCALEPOINT_CLANG} -std=c++20 -fsanitize=address,undefined -o ${CMAKE_BINARY_DIR}/empty ${CMAKE_BINARY_DIR}/empty.cpp
      RESULT_VARIABLE sanitizers_work OUTPUT_QUIET ERROR_QUIET)
  endif()
  if(sanitizers_work EQUAL 0)
    set(CMAKE_CXX_COMPILER ${SCALEPOINT_CLANG})
  endif()
endif()

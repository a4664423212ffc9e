# Settings and helpers that every folder uses.

set(PUSHPULL_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them")

find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(GTest REQUIRED)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# Everything lands side by side: core finds its modules in its own directory.
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)

add_library(pushpull_options INTERFACE)
target_include_directories(pushpull_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(pushpull_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror)
if(PUSHPULL_SANITIZE)
  target_compile_options(pushpull_options INTERFACE -fsanitize=${PUSHPULL_SANITIZE}
                                                    -fno-omit-frame-pointer)
  target_link_options(pushpull_options INTERFACE -fsanitize=${PUSHPULL_SANITIZE})
  if(PUSHPULL_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC's does not know fences; Asio has some, beside the mutex that it does know.
    target_compile_options(pushpull_options INTERFACE -Wno-tsan)
  endif()
endif()
target_compile_definitions(pushpull_options INTERFACE ASIO_STANDALONE ASIO_NO_DEPRECATED
                                                      SPDLOG_FMT_EXTERNAL)

# Limits of tests in seconds are for code at its full speed: a sanitizer takes up to fifteen times as long.
set(PUSHPULL_TEST_PATIENCE 1)
if(PUSHPULL_SANITIZE)
  set(PUSHPULL_TEST_PATIENCE 4)
endif()

# pushpull_module(NAME SOURCES... [LIBS ...]): libNAME.so, opened by core at run time.
function(pushpull_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} MODULE ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE pushpull_options pushpull ${ARG_LIBS})
  set_target_properties(${name} PROPERTIES BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN")
  if(NOT CMAKE_CURRENT_SOURCE_DIR MATCHES "^${CMAKE_SOURCE_DIR}/tests/")
    install(TARGETS ${name} LIBRARY DESTINATION pushpull/_lib COMPONENT wheel)
    set_property(GLOBAL APPEND PROPERTY PUSHPULL_MODULES ${name})
  endif()
endfunction()

# In sanitized programs, what was loaded stays loaded until the end, so that reports can name it.
function(pushpull_keep_modules name)
  if(PUSHPULL_SANITIZE)
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support/sanitized/keep_modules.cc)
    target_link_options(${name} PRIVATE -Wl,--export-dynamic-symbol=dlclose)
  endif()
endfunction()

# pushpull_test(NAME SOURCES... [LIBS ...] [TIMEOUT seconds] [LABELS ...] [CORES n]):
# one GoogleTest program, one ctest entry.
function(pushpull_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;CORES" "SOURCES;LIBS;LABELS;ARGS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE pushpull_options pushpull GTest::gtest GTest::gtest_main
                                        ${ARG_LIBS})
  pushpull_keep_modules(${name})
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * ${PUSHPULL_TEST_PATIENCE}")
  if(NOT ARG_CORES)
    set(ARG_CORES 1)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ARG_CORES}
                                          LABELS "${ARG_LABELS}")
endfunction()

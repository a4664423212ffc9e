#include "backends/mpi/mpi_help.h"

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace pushpull {
namespace {

// Open MPI 4, opal/util/show_help.h.
using ShowHelp = int (*)(const char* file, const char* topic, int want_header, ...);
using Render = char* (*)(const char* file, const char* topic, int want_header, va_list arguments);

Render renderer() {
  return reinterpret_cast<Render>(dlsym(RTLD_DEFAULT, "opal_show_help_vstring"));
}

int show_help_here(const char* file, const char* topic, int want_header, ...) {
  va_list arguments;
  va_start(arguments, want_header);
  char* const text = renderer()(file, topic, want_header, arguments);
  va_end(arguments);
  if (text == nullptr) return 0;
  std::fputs(text, stderr);
  std::free(text);
  return 0;
}

}  // namespace

void print_mpi_help_here() {
  auto* const hook = static_cast<ShowHelp*>(dlsym(RTLD_DEFAULT, "opal_show_help"));
  if (hook != nullptr && renderer() != nullptr) *hook = show_help_here;
}

}  // namespace pushpull

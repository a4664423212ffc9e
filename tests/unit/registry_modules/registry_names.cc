// Prints the names of the stores that a registry finds, one a line.
#include <cstdio>

#include "core/registry.h"

int main() {
  for (const std::string& name : pushpull::Registry().store_names()) std::puts(name.c_str());
}

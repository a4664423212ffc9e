// A shared library with a module's file name that is none.
#include "core/backend.h"

PUSHPULL_MODULE_EXPORT int pushpull_something_else() { return 1; }

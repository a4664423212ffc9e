// Only in sanitized programs: what Open MPI loads stays loaded, so that reports can name it and the
// lists of third-party findings can leave it out.
extern "C" __attribute__((visibility("default"))) int dlclose(void*) { return 0; }

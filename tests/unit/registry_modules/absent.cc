// A library that needy.cc needs.
extern "C" __attribute__((visibility("default"))) int pushpull_absent() { return 1; }

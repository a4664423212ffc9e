// Threads of ours take no signals: handlers belong to the program, and a broken pipe is an error
// value.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace pushpull {

// Blocks all signals while it lives; threads started meanwhile keep them blocked.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace pushpull

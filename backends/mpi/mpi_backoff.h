// Waiting for MPI, which has no wake-ups: poll shortly, then give way to others, then sleep, longer
// the longer it takes. After a long wait the next one sleeps at once: with blocks that come from
// another host at the pace of the link, polling would take the processor from the training.
#pragma once

#include "core/deadline.h"

namespace pushpull {

class MpiBackoff {
 public:
  // `crowded`: more ranks on this host than processors, so polling only takes time from the rank
  // that is waited for.
  explicit MpiBackoff(bool crowded) : crowded_(crowded) {}

  // After a poll that found nothing. Whether it slept.
  bool pause();
  // After one that found something. The object is for one wait after the other.
  void reset();

 private:
  bool crowded_;
  bool slow_ = false;  // the wait before was long, or somebody else wanted the processor
  bool waiting_ = false;
  bool taken_ = false;
  Deadline since_{};
  Deadline polls_until_{};
  Deadline yields_until_{};
};

}  // namespace pushpull

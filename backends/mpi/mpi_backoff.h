// Waiting for MPI, which has no wake-ups: poll shortly, then give way to others, then sleep
// shortly.
#pragma once

namespace pushpull {

class MpiBackoff {
 public:
  // `crowded`: more ranks on this host than processors, so polling only takes time from the rank
  // that is waited for.
  explicit MpiBackoff(bool crowded) : crowded_(crowded) {}

  // After a poll that found nothing. Whether it slept.
  bool pause();
  // After one that found something.
  void reset();

 private:
  bool crowded_;
  int polls_ = 0;
  int sleeps_ = 0;
};

}  // namespace pushpull

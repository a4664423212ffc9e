// Threads as ranks.
#pragma once

#include <functional>
#include <thread>
#include <vector>

namespace pushpull::testing {

// Runs body(0) … body(n - 1), each on a thread of its own, and waits for all.
inline void run_ranks(int n, const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < n; ++rank) threads.emplace_back([&body, rank] { body(rank); });
}

}  // namespace pushpull::testing

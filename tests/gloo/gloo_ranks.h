// Threads as ranks of a Gloo context over our transport.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <memory>

#include "backends/gloo/gloo_context.h"
#include "tests/support/loopback.h"
#include "tests/support/ranks.h"

namespace pushpull::testing {

inline std::shared_ptr<GlooContext> connect_gloo(LoopbackNetwork& network, int rank) {
  const Group group = network.group(rank);
  auto sockets = group.mesh->connect(deadline_in(std::chrono::seconds(10)));
  EXPECT_TRUE(sockets);
  std::vector<transport::Peer> peers;
  for (int r = 0; r < group.size(); ++r)
    peers.push_back({"rank " + std::to_string(r), "localhost"});
  auto device = std::make_shared<transport::Device>(std::move(*sockets), std::move(peers));
  return std::make_shared<GlooContext>(rank, group.size(), device, std::chrono::seconds(60));
}

// Contexts stay connected until all ranks are done.
inline void run_gloo(int n, const std::function<void(std::shared_ptr<GlooContext>)>& body) {
  LoopbackNetwork network(n);
  std::barrier<> all_done(n);
  run_ranks(n, [&](int rank) {
    auto context = connect_gloo(network, rank);
    try {
      body(context);
    } catch (const std::exception& exception) {
      ADD_FAILURE() << "rank " << rank << ": " << exception.what();
      context.reset();  // so that the others do not wait for this rank
    }
    all_done.arrive_and_wait();
  });
}

}  // namespace pushpull::testing

#include "tests/support/kv_group.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/redis_server.h"

namespace pushpull::testing {

bool under_mpi() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }

std::vector<int> group_sizes(std::vector<int> sizes) {
  if (under_mpi()) return {std::atoi(std::getenv("OMPI_COMM_WORLD_SIZE"))};
  return sizes;
}

namespace {

const RedisServer& redis() {
  static const std::unique_ptr<RedisServer> server = [] {
    auto started = RedisServer::start();
    if (!started) throw std::runtime_error(started.error().message());
    return std::move(*started);
  }();
  return *server;
}

}  // namespace

int host_of(int rank) { return rank % 3 == 1 ? 1 : 0; }

Settings group_settings(const std::string& backend, int size) {
  static std::atomic<int> groups = 0;
  Settings settings;
  settings.backend = backend;
  settings.job = fmt::format("test-{}-{}", ::getpid(), groups++);
  settings.size = size;
  settings.rendezvous_timeout = std::chrono::seconds(30);
  settings.heartbeat_timeout = std::chrono::seconds(10);
  settings.log = "error";
  if (backend == "gloo-redis") {
    settings.rendezvous = redis().url();
  } else {
    settings.rendezvous = fmt::format("tcp://127.0.0.1:{}", free_port());
  }
  return settings;
}

void run_ranks(int size, const std::function<void(int)>& body) {
  if (under_mpi()) return body(std::atoi(std::getenv("OMPI_COMM_WORLD_RANK")));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) threads.emplace_back([&, r] { body(r); });
  for (auto& t : threads) t.join();
}

void run_group(const Settings& settings, const std::function<void(KVStore&)>& body) {
  run_ranks(settings.size, [&](int rank) {
    Settings mine = settings;
    mine.rank = rank;
    if (!mine.host_label.empty()) mine.host_label += std::to_string(host_of(rank));
    static Registry mpi_registry;  // MPI is initialised once per process
    Registry own;
    Registry& registry = under_mpi() ? mpi_registry : own;
    if (under_mpi()) {
      mine.job = fmt::format("test-mpi-{}", settings.job.substr(settings.job.rfind('-') + 1));
      auto backend = registry.backend("mpi");
      ASSERT_TRUE(backend) << backend.error().message();
      auto identity = (*backend)->identity();
      ASSERT_TRUE(identity) << identity.error().message();
    }
    auto store = KVStore::create(mine, registry);
    ASSERT_TRUE(store) << "rank " << rank << ": " << store.error().message();
    body(**store);
    const auto closed = (*store)->close();
    EXPECT_TRUE(closed) << closed.error().message();
  });
}

void run_group(const std::string& backend, int size, const std::function<void(KVStore&)>& body) {
  run_group(group_settings(backend, size), body);
}

}  // namespace pushpull::testing

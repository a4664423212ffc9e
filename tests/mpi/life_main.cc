// The life of MPI in a process, one scenario per process: mpi_life NAME. Exit code 0 where all was
// as it should be; mpirun adds its own complaint where a rank ends without having finalised MPI.
#include <fmt/format.h>
#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "core/kvstore.h"

namespace pushpull {
namespace {

using namespace std::chrono_literals;

[[noreturn]] void give_up(const std::string& what) {
  fmt::print(stderr, "mpi_life: {}\n", what);
  _exit(1);
}

void expect(bool condition, const std::string& what) {
  if (!condition) give_up(what);
}

Settings settings(const std::string& job) {
  Settings all;
  all.backend = "mpi";
  all.job = job;
  all.local = "backend";  // over MPI, though all are on one host
  return all;
}

// As the C API does it: identity first, then the store.
Result<std::unique_ptr<KVStore>> create(Registry& registry, const std::string& job) {
  Settings mine = settings(job);
  auto backend = registry.backend("mpi");
  if (!backend) return fail(backend.error());
  auto identity = (*backend)->identity();
  if (!identity) return fail(identity.error());
  mine.rank = (**identity).rank;
  mine.size = (**identity).size;
  return KVStore::create(mine, registry);
}

void use(KVStore& store) {
  std::vector<float> values(1000, 1.0f);
  const Tensor tensor{values.data(), DType::kFloat32, {1000}};
  const auto ok = store.pushpull("k", {&tensor, 1}, {&tensor, 1}).wait();
  expect(ok.has_value(), ok ? "" : ok.error().message());
  expect(values[999] == static_cast<float>(store.num_workers()), "wrong sum");
}

void create_use_close(Registry& registry, const std::string& job) {
  auto store = create(registry, job);
  expect(store.has_value(), store ? "" : store.error().message());
  use(**store);
  expect((*store)->close().has_value(), "close failed");
}

void refused(const std::string& job, const std::string& sentence) {
  Registry registry;
  auto store = create(registry, job);
  expect(!store, "a store was created");
  expect(store.error().code() == ErrorCode::kUnavailable, "another code");
  expect(store.error().message().find(sentence) != std::string::npos, store.error().message());
}

void stores_one_after_the_other() {
  for (int i = 0; i < 3; ++i) {
    Registry registry;
    create_use_close(registry, "same name");
  }
}

// The thread that initialises is not the one that ends the process.
void store_in_a_thread() {
  Registry registry;
  std::thread([&] { create_use_close(registry, "threaded"); }).join();
  create_use_close(registry, "main");
}

void initialized_with(int wanted) {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, wanted, &level);
  expect(level == wanted, "MPI gave another thread level");
}

void after_mpi_init() {
  initialized_with(MPI_THREAD_MULTIPLE);
  Registry registry;
  create_use_close(registry, "beside");
  MPI_Barrier(MPI_COMM_WORLD);
  create_use_close(registry, "beside");
  MPI_Finalize();
}

void after_serialized_init() {
  initialized_with(MPI_THREAD_SERIALIZED);
  {
    Registry registry;
    auto one = create(registry, "one"), two = create(registry, "two");
    expect(one.has_value(), one ? "" : one.error().message());
    expect(two.has_value(), two ? "" : two.error().message());
    for (int i = 0; i < 20; ++i) {
      use(**one);
      use(**two);
    }
    expect((*one)->close() && (*two)->close(), "close failed");
  }
  MPI_Finalize();
}

void after_single_init() {
  initialized_with(MPI_THREAD_SINGLE);
  refused("single", "MPI runs with MPI_THREAD_SINGLE in this process");
  MPI_Finalize();
}

void after_finalize() {
  initialized_with(MPI_THREAD_MULTIPLE);
  MPI_Finalize();
  refused("late", "MPI has already been finalised");
}

// MPI's life in the child is over, the parent's goes on.
void forked() {
  Registry registry;
  auto store = create(registry, "parent");
  expect(store.has_value(), store ? "" : store.error().message());
  const pid_t child = fork();
  if (child == 0) {
    refused("child", "was forked from one that uses MPI");
    exit(0);  // with exit handlers
  }
  int status = 0;
  waitpid(child, &status, 0);
  expect(status == 0, "the child failed");
  use(**store);
  expect((*store)->close().has_value(), "close failed");
}

// Ranks come and go at different times.
void closed_late() {
  Registry registry;
  auto backend = registry.backend("mpi");
  expect(backend.has_value(), "no backend");
  auto identity = (*backend)->identity();
  expect(identity.has_value(), "no identity");
  std::this_thread::sleep_for((**identity).rank * 300ms);
  create_use_close(registry, "late");
  std::this_thread::sleep_for((**identity).rank * 300ms);
}

void without_mpirun() {
  Registry registry;
  auto backend = registry.backend("mpi");
  expect(backend.has_value(), "no backend");
  auto identity = (*backend)->identity();
  expect(identity && (**identity).rank == 0 && (**identity).size == 1, "not rank 0 of 1");
  create_use_close(registry, "alone");
}

const std::map<std::string, std::function<void()>> kScenarios{
    {"stores_one_after_the_other", stores_one_after_the_other},
    {"store_in_a_thread", store_in_a_thread},
    {"after_mpi_init", after_mpi_init},
    {"after_serialized_init", after_serialized_init},
    {"after_single_init", after_single_init},
    {"after_finalize", after_finalize},
    {"forked", forked},
    {"closed_late", closed_late},
    {"without_mpirun", without_mpirun},
};

}  // namespace
}  // namespace pushpull

#if defined(__SANITIZE_ADDRESS__)
// A forked child has its parent's memory without the threads that hold it: no leaks of its own.
const pid_t kMainProcess = getpid();
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() {
  return getpid() != kMainProcess ? 1 : 0;
}
#endif

int main(int argc, char** argv) {
  const auto scenario = pushpull::kScenarios.find(argc > 1 ? argv[1] : "");
  if (scenario == pushpull::kScenarios.end()) pushpull::give_up("which scenario?");
  scenario->second();
  return 0;
}

// oneCCL on host memory.
//   RANK, SIZE   who this process is (or PMI_RANK, PMI_SIZE under an MPI starter)
//   CCL_KVS      path of a file by which rank 0 tells the others its address
#include <oneapi/ccl.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "bench/peers/workload.h"

namespace {

const char* need(const char* name, const char* other) {
  for (const char* candidate : {name, other}) {
    if (const char* value = std::getenv(candidate)) return value;
  }
  std::fprintf(stderr, "the environment lacks %s\n", name);
  std::exit(2);
}

ccl::shared_ptr_class<ccl::kvs> meet(int rank, const std::string& path) {
  if (rank == 0) {
    auto kvs = ccl::create_main_kvs();
    const auto address = kvs->get_address();
    const std::string unfinished = path + ".new";
    std::ofstream(unfinished, std::ios::binary)
        .write(address.data(), std::streamsize(address.size()));
    std::rename(unfinished.c_str(), path.c_str());
    return kvs;
  }
  ccl::kvs::address_type address;
  for (int tries = 0; tries < 3000; ++tries) {
    std::ifstream in(path, std::ios::binary);
    if (in && in.read(address.data(), std::streamsize(address.size()))) {
      return ccl::create_kvs(address);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::fprintf(stderr, "rank %d: rank 0 did not write %s within 60 s\n", rank, path.c_str());
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = pushpull::bench::parse_options(argc, argv);
  pushpull::bench::Library library{};
  library.rank = std::atoi(need("RANK", "PMI_RANK"));
  library.size = std::atoi(need("SIZE", "PMI_SIZE"));
  ccl::init();
  const auto kvs = meet(library.rank, need("CCL_KVS", "CCL_KVS"));
  auto communicator = ccl::create_communicator(library.size, library.rank, kvs);
  std::vector<ccl::event> events;
  library.barrier = [&] { ccl::barrier(communicator).wait(); };
  library.allreduce = [&](std::span<const pushpull::bench::Call> calls) {
    events.clear();
    for (const auto& call : calls) {
      events.push_back(
          ccl::allreduce(call.data, call.data, call.count, ccl::reduction::sum, communicator));
    }
    for (auto& event : events) event.wait();
  };
  pushpull::bench::measure(options, library);
  return 0;
}

// Raw Gloo over its TCP transport.
//   RANK, SIZE     who this process is
//   GLOO_ADDRESS   the address to bind (default 127.0.0.1)
//   GLOO_STORE     a folder that all ranks see, empty at the start
// --variant ring (default) | bcube
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>

#include "bench/peers/workload.h"

namespace {

const char* need(const char* name, const char* fallback = nullptr) {
  const char* value = std::getenv(name);
  if (value) return value;
  if (fallback) return fallback;
  std::fprintf(stderr, "the environment lacks %s\n", name);
  std::exit(2);
}

std::shared_ptr<gloo::Context> connect(int rank, int size) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = need("GLOO_ADDRESS", "127.0.0.1");
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(need("GLOO_STORE"));
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->setTimeout(std::chrono::seconds(120));
  context->connectFullMesh(store, device);
  return context;
}

void sum(void* out, const void* a, const void* b, std::size_t count) {
  gloo::sum<float>(out, a, b, count);
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = pushpull::bench::parse_options(argc, argv);
  pushpull::bench::Library library{};
  library.rank = std::atoi(need("RANK"));
  library.size = std::atoi(need("SIZE"));
  const auto context = connect(library.rank, library.size);
  const auto algorithm = options.variant == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                                    : gloo::AllreduceOptions::Algorithm::RING;
  library.barrier = [&] {
    gloo::BarrierOptions barrier(context);
    gloo::barrier(barrier);
  };
  std::uint32_t tag = 0;
  library.allreduce = [&](std::span<const pushpull::bench::Call> calls) {
    for (const auto& call : calls) {
      gloo::AllreduceOptions request(context);
      request.setAlgorithm(algorithm);
      request.setOutput(call.data, call.count);
      request.setReduceFunction(sum);
      request.setTag(++tag % 0x10000);
      gloo::allreduce(request);
    }
  };
  pushpull::bench::measure(options, library);
  return 0;
}

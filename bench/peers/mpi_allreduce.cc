// Raw MPI, compiled once against each MPI. --variant is one of
//   allreduce     MPI_Allreduce (default)
//   nonblocking   MPI_Iallreduce for every call, then MPI_Waitall
//   ring          a plain ring of MPI_Sendrecv in pieces of 1 MiB: what the wire gives to MPI's
//                 point-to-point, whatever algorithm its own allreduce picks
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "bench/peers/workload.h"

using pushpull::bench::Call;

namespace {

constexpr std::size_t kPiece = (1 << 20) / sizeof(float);

void allreduce(std::span<const Call> calls) {
  for (const Call& call : calls) {
    MPI_Allreduce(MPI_IN_PLACE, call.data, int(call.count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
}

void nonblocking(std::span<const Call> calls) {
  std::vector<MPI_Request> requests(calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    MPI_Iallreduce(MPI_IN_PLACE, calls[i].data, int(calls[i].count), MPI_FLOAT, MPI_SUM,
                   MPI_COMM_WORLD, &requests[i]);
  }
  MPI_Waitall(int(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

/// Ring neighbours and the block of a call that slice s covers.
struct Ring {
  int rank;
  int size;
  std::size_t count;

  int next() const { return (rank + 1) % size; }
  int previous() const { return (rank + size - 1) % size; }
  int slice(int steps_back) const { return ((rank - steps_back) % size + size) % size; }
  std::size_t begin(int s) const { return count * std::size_t(s) / std::size_t(size); }
  std::size_t length(int s) const { return begin(s + 1) - begin(s); }
  std::size_t longest() const { return (count + std::size_t(size) - 1) / std::size_t(size); }
};

void pass_on(const Ring& ring, float* data, int out, int in, bool add) {
  float scratch[kPiece];
  const std::size_t to_send = ring.length(out), to_receive = ring.length(in);
  // As many pieces on every rank, also where its slices are an element shorter.
  for (std::size_t at = 0; at < ring.longest(); at += kPiece) {
    const std::size_t sent = at < to_send ? std::min(kPiece, to_send - at) : 0;
    const std::size_t received = at < to_receive ? std::min(kPiece, to_receive - at) : 0;
    float* target = data + ring.begin(in) + at;
    MPI_Sendrecv(data + ring.begin(out) + at, int(sent), MPI_FLOAT, ring.next(), 0,
                 add ? scratch : target, int(received), MPI_FLOAT, ring.previous(), 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (std::size_t i = 0; add && i < received; ++i) target[i] += scratch[i];
  }
}

void ring_allreduce(int rank, int size, std::span<const Call> calls) {
  for (const Call& call : calls) {
    const Ring ring{rank, size, call.count};
    for (int step = 0; step + 1 < size; ++step) {
      pass_on(ring, call.data, ring.slice(step), ring.slice(step + 1), true);
    }
    for (int step = 0; step + 1 < size; ++step) {
      pass_on(ring, call.data, ring.slice(step - 1), ring.slice(step), false);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const auto options = pushpull::bench::parse_options(argc, argv);
  pushpull::bench::Library mpi{};
  MPI_Comm_rank(MPI_COMM_WORLD, &mpi.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &mpi.size);
  mpi.barrier = [] { MPI_Barrier(MPI_COMM_WORLD); };
  if (options.variant.empty() || options.variant == "allreduce") {
    mpi.allreduce = allreduce;
  } else if (options.variant == "nonblocking") {
    mpi.allreduce = nonblocking;
  } else if (options.variant == "ring") {
    mpi.allreduce = [&mpi](std::span<const Call> calls) {
      ring_allreduce(mpi.rank, mpi.size, calls);
    };
  } else {
    std::fprintf(stderr, "unknown variant %s\n", options.variant.c_str());
    return 2;
  }
  pushpull::bench::measure(options, mpi);
  MPI_Finalize();
  return 0;
}

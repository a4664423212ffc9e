// The exchange over TCP on loopback against raw Gloo over its own TCP transport, side by side.
//
//   exchange_compare RANKS SHAPES|BYTES [rounds=20] [VARIANT…]
//
// SHAPES: a file with one element count per line; BYTES: one tensor. VARIANT is a kind and
// settings, such as
// "ours,chunk=65536,exchange=ring,batch=4194304,dtype=float16,sndbuf=1048576,rcvbuf=1048576";
// kinds:
//   ours          this project's exchange over its transport; batch: cut and grouped as core does
//   gloo          gloo::allreduce (ring) on one buffer, over Gloo's TCP transport
//   gloo-on-ours  the same over this project's transport
//   memcpy        a copy of the set
//
// The ranks are processes; an iteration counts with its slowest rank; variants take turns. CPU time
// is user and system, of all ranks.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "backends/exchange/exchange.h"
#include "backends/gloo/gloo_context.h"
#include "backends/gloo/gloo_point_to_point.h"
#include "bench/micro/cpu_seconds.h"
#include "tests/support/loopback.h"
#include "tests/support/process.h"

namespace {

using namespace pushpull;

constexpr int kMaxRanks = 64;

// Shared by the processes of all ranks.
struct Board {
  std::atomic<int> arrived[2];
  std::atomic<int> turn;
  double seconds[kMaxRanks];
  double cpu[kMaxRanks];

  void meet(int ranks) {
    const int mine = turn.load();
    auto& count = arrived[mine & 1];
    if (count.fetch_add(1) + 1 == ranks) {
      count = 0;
      turn = mine + 1;
      return;
    }
    while (turn.load() == mine) std::this_thread::yield();
  }
};

struct Options {
  std::vector<size_t> counts;
  int ranks = 2;
  int rounds = 20;
  std::vector<std::string> variants;
};

// One variant, taken apart.
struct Choice {
  std::string text;
  std::string kind;
  size_t batch = 0;  // 0: everything in one call
  DType dtype = DType::kFloat32;
  int send_buffer = 0;  // 0: as the system has it
  int receive_buffer = 0;
  Settings settings;
};

class Variant {
 public:
  virtual ~Variant() = default;
  virtual void step() = 0;
};

void die(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::_Exit(1);
}

class Ours : public Variant {
 public:
  Ours(const Options& options, const Choice& choice, std::shared_ptr<GlooContext> context,
       char* data)
      : collective_(
            make_exchange(std::make_unique<GlooPointToPoint>(context, std::chrono::seconds(60)),
                          choice.settings)) {
    const size_t width = size_of(choice.dtype);
    batches_.emplace_back();
    size_t filled = 0;
    for (size_t count : options.counts) {
      Part part{data, data, choice.dtype, count, 0, 0};
      data += (count * width + 63) / 64 * 64;
      const size_t length = slice_length(count, options.ranks);
      // As core cuts them: pieces of large tensors, several small ones together.
      const size_t share = choice.batch / width / static_cast<size_t>(options.ranks);
      const size_t most = choice.batch == 0 ? length : std::max<size_t>(share, 16);
      for (size_t begin = 0; begin < length; begin += most) {
        part.begin = begin;
        part.end = std::min(length, begin + most);
        const size_t bytes = (part.end - part.begin) * width * static_cast<size_t>(options.ranks);
        if (choice.batch != 0 && filled != 0 && filled + bytes > choice.batch) {
          batches_.emplace_back();
          filled = 0;
        }
        batches_.back().push_back(part);
        filled += bytes;
      }
    }
  }
  void step() override {
    for (const auto& batch : batches_)
      if (auto ok = collective_->allreduce(batch, {}, [](size_t) {}); !ok)
        die(ok.error().message());
  }

 private:
  std::unique_ptr<Collective> collective_;
  std::vector<std::vector<Part>> batches_;
};

// gloo::allreduce, ring, on one buffer.
class Gloo : public Variant {
 public:
  Gloo(std::shared_ptr<gloo::Context> context, float* data, size_t count)
      : context_(std::move(context)), data_(data), count_(count) {}
  void step() override {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(data_, count_);
    options.setTag(++tag_ & 0xffff);
    options.setReduceFunction(
        [](void* a, const void* b, const void* c, size_t n) { gloo::sum<float>(a, b, c, n); });
    gloo::allreduce(options);
  }

 private:
  std::shared_ptr<gloo::Context> context_;
  float* data_;
  size_t count_;
  uint32_t tag_ = 0;
};

class MemcpyOfTheSet : public Variant {
 public:
  MemcpyOfTheSet(char* data, size_t bytes) : data_(data), bytes_(bytes), other_(bytes, 1) {}
  void step() override { std::memcpy(data_, other_.data(), bytes_); }

 private:
  char* data_;
  size_t bytes_;
  std::vector<char> other_;
};

std::shared_ptr<GlooContext> connect(testing::LoopbackNetwork& network, int rank,
                                     const Choice& choice) {
  const Group group = network.group(rank);
  auto sockets = group.mesh->connect(never());
  if (!sockets) die(sockets.error().message());
  for (const Socket& socket : *sockets) {
    if (!socket.valid()) continue;
    if (choice.send_buffer != 0)
      setsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &choice.send_buffer, sizeof(int));
    if (choice.receive_buffer != 0)
      setsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUF, &choice.receive_buffer, sizeof(int));
  }
  std::vector<transport::Peer> peers(static_cast<size_t>(group.size()));
  auto device = std::make_shared<transport::Device>(std::move(*sockets), std::move(peers));
  return std::make_shared<GlooContext>(rank, group.size(), device, std::chrono::seconds(60));
}

std::shared_ptr<gloo::Context> connect_stock(const std::string& folder, int rank, int ranks) {
  gloo::transport::tcp::attr attr;
  attr.hostname = "127.0.0.1";
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attr);
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  return context;
}

void report(const char* name, std::vector<double> seconds, std::vector<double> cpu, size_t bytes) {
  std::sort(seconds.begin(), seconds.end());
  std::sort(cpu.begin(), cpu.end());
  const auto middle = seconds.size() / 2;
  std::printf("%-40s median %8.3f ms  best %8.3f  worst %8.3f   CPU %8.3f ms  %5.2f ns/byte\n",
              name, seconds[middle] * 1e3, seconds[0] * 1e3, seconds.back() * 1e3,
              cpu[middle] * 1e3, cpu[middle] * 1e9 / static_cast<double>(bytes));
}

Choice parse_choice(const std::string& text) {
  Choice choice;
  choice.text = text;
  std::istringstream in(text);
  std::getline(in, choice.kind, ',');
  for (std::string word; std::getline(in, word, ',');) {
    const auto equals = word.find('=');
    const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
    const auto number = static_cast<size_t>(std::atoll(value.c_str()));
    if (key == "chunk") choice.settings.chunk_bytes = number;
    if (key == "exchange") choice.settings.exchange = value;
    if (key == "batch") choice.batch = number;
    if (key == "dtype") choice.dtype = parse_dtype(value).value_or(DType::kFloat32);
    if (key == "sndbuf") choice.send_buffer = static_cast<int>(number);
    if (key == "rcvbuf") choice.receive_buffer = static_cast<int>(number);
  }
  return choice;
}

struct Run {
  Choice choice;
  std::unique_ptr<Variant> variant;
  size_t bytes = 0;
  std::vector<double> seconds, cpu;
};

void run_rank(const Options& options, Board& board, std::deque<testing::LoopbackNetwork>& networks,
              const std::string& folder, int rank) {
  size_t elements = 0;
  for (size_t count : options.counts) elements += (count + 63) / 64 * 64;
  std::vector<double> memory(elements + 16, 0.0);
  char* data = reinterpret_cast<char*>(memory.data());
  auto* floats = reinterpret_cast<float*>(data);
  std::vector<Run> runs;
  for (size_t i = 0; i < options.variants.size(); ++i) {
    Run run;
    run.choice = parse_choice(options.variants[i]);
    run.bytes = elements * size_of(run.choice.dtype);
    testing::LoopbackNetwork& network = networks[i];
    if (run.choice.kind == "ours")
      run.variant =
          std::make_unique<Ours>(options, run.choice, connect(network, rank, run.choice), data);
    else if (run.choice.kind == "gloo")
      run.variant = std::make_unique<Gloo>(
          connect_stock(folder + "/" + std::to_string(i), rank, options.ranks), floats, elements);
    else if (run.choice.kind == "gloo-on-ours")
      run.variant = std::make_unique<Gloo>(connect(network, rank, run.choice), floats, elements);
    else if (run.choice.kind == "memcpy")
      run.variant = std::make_unique<MemcpyOfTheSet>(data, run.bytes);
    else
      die("unknown variant " + run.choice.text);
    runs.push_back(std::move(run));
  }

  const auto n = static_cast<size_t>(options.ranks);
  for (int round = -2; round < options.rounds; ++round)
    for (Run& run : runs) {
      board.meet(options.ranks);
      const auto start = Clock::now();
      const double cpu = cpu_seconds();
      run.variant->step();
      board.seconds[rank] = std::chrono::duration<double>(Clock::now() - start).count();
      board.cpu[rank] = cpu_seconds() - cpu;
      board.meet(options.ranks);
      if (rank != 0 || round < 0) continue;
      run.seconds.push_back(*std::max_element(board.seconds, board.seconds + n));
      run.cpu.push_back(std::accumulate(board.cpu, board.cpu + n, 0.0));
    }
  if (rank == 0)
    for (const Run& run : runs)
      report(run.choice.text.c_str(), run.seconds, run.cpu, run.bytes * n);
  board.meet(options.ranks);
}

Options parse(int argc, char** argv) {
  Options options;
  if (argc < 3) die("usage: exchange_compare RANKS SHAPES|BYTES [rounds=20] [VARIANT...]");
  options.ranks = std::atoi(argv[1]);
  std::ifstream file(argv[2]);
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) options.counts.push_back(std::strtoul(line.c_str(), nullptr, 10));
  std::reverse(options.counts.begin(), options.counts.end());
  if (!file.is_open()) options.counts = {std::strtoul(argv[2], nullptr, 10) / 4};
  for (int i = 3; i < argc; ++i) {
    const std::string text = argv[i];
    if (text.rfind("rounds=", 0) == 0)
      options.rounds = std::atoi(text.c_str() + 7);
    else
      options.variants.push_back(text);
  }
  if (options.variants.empty()) options.variants = {"ours", "gloo", "gloo-on-ours", "memcpy"};
  if (options.ranks < 1 || options.ranks > kMaxRanks || options.counts.empty())
    die("bad arguments");
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  auto* board = static_cast<Board*>(
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::deque<testing::LoopbackNetwork> networks;  // one per variant
  for (size_t i = 0; i < options.variants.size(); ++i)
    if (auto ok = networks.emplace_back(options.ranks).prepare(); !ok) die(ok.error().message());
  const testing::TemporaryDirectory temporary;
  const std::string& folder = temporary.path();
  if (folder.empty()) die("no temporary folder");
  for (size_t i = 0; i < options.variants.size(); ++i)
    std::filesystem::create_directory(folder + "/" + std::to_string(i));
  std::vector<pid_t> children;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      run_rank(options, *board, networks, folder, rank);
      std::fflush(stdout);
      std::_Exit(0);
    }
    children.push_back(child);
  }
  int failed = 0;
  for (pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    failed |= status;
  }
  return failed == 0 ? 0 : 1;
}

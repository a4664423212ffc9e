#include "bench/peers/workload.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <sstream>

namespace pushpull::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Series {
  std::string name;
  std::size_t bytes;
  std::size_t calls;
  double cpu_s;
  std::vector<double> us;
};

[[noreturn]] void refuse(const std::string& sentence) {
  std::fprintf(stderr, "%s\n", sentence.c_str());
  std::exit(2);
}

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double elapsed_us(Clock::time_point since) {
  return std::chrono::duration<double, std::micro>(Clock::now() - since).count();
}

std::vector<std::size_t> parse_sizes(const std::string& text) {
  std::vector<std::size_t> sizes;
  std::stringstream in(text);
  for (std::string item; std::getline(in, item, ',');) {
    sizes.push_back(std::strtoull(item.c_str(), nullptr, 10));
  }
  return sizes;
}

/// Small whole numbers, so that every order of summation gives the same float.
float planted(std::size_t element, int factor) { return float(int(element % 5 + 1) * factor); }

void check_sums(const Library& library, std::vector<float>& data, std::span<const Call> calls) {
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = planted(i, library.rank + 1);
  library.allreduce(calls);
  const int factor = library.size * (library.size + 1) / 2;
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (data[i] == planted(i, factor)) continue;
    std::fprintf(stderr, "rank %d: element %zu is %g, expected %g\n", library.rank, i,
                 double(data[i]), double(planted(i, factor)));
    std::exit(3);
  }
}

Series time_series(const std::string& name, const Options& options, const Library& library,
                   const std::vector<std::size_t>& counts) {
  std::vector<float> data(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  std::vector<Call> calls;
  float* next = data.data();
  for (const std::size_t count : counts) {
    calls.push_back({next, count});
    next += count;
  }
  check_sums(library, data, calls);

  // Ones become size^k after k steps: start anew before they overflow a float.
  const int renew = library.size > 1 ? int(120 / std::log2(library.size)) : 1 << 30;
  Series series{name, data.size() * sizeof(float), calls.size(), 0, {}};
  double cpu_before = 0;
  for (int i = 0; i < options.warmup + options.iters; ++i) {
    if (i % renew == 0) data.assign(data.size(), 1.f);
    if (i == options.warmup) cpu_before = cpu_seconds();
    library.barrier();
    const auto start = Clock::now();
    library.allreduce(calls);
    if (i >= options.warmup) series.us.push_back(elapsed_us(start));
  }
  series.cpu_s = cpu_seconds() - cpu_before;
  return series;
}

void write_json(const std::string& path, int rank, int size, const std::vector<Series>& all) {
  std::ofstream out(path);
  out << "{\"rank\": " << rank << ", \"size\": " << size << ", \"series\": [";
  for (std::size_t s = 0; s < all.size(); ++s) {
    out << (s ? ", " : "") << "{\"name\": \"" << all[s].name << "\", \"bytes\": " << all[s].bytes
        << ", \"calls\": " << all[s].calls << ", \"cpu_s\": " << all[s].cpu_s << ", \"us\": [";
    for (std::size_t i = 0; i < all[s].us.size(); ++i) out << (i ? ", " : "") << all[s].us[i];
    out << "]}";
  }
  out << "]}\n";
  if (!out.flush()) refuse("cannot write " + path);
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) refuse(flag + " needs a value");
    const std::string value = argv[i + 1];
    if (flag == "--mode")
      options.mode = value;
    else if (flag == "--model")
      options.model = value;
    else if (flag == "--sizes")
      options.sizes = parse_sizes(value);
    else if (flag == "--iters")
      options.iters = std::atoi(value.c_str());
    else if (flag == "--warmup")
      options.warmup = std::atoi(value.c_str());
    else if (flag == "--out")
      options.out = value;
    else if (flag == "--variant")
      options.variant = value;
    else
      refuse("unknown option " + flag);
  }
  const bool latency = options.mode == "latency";
  if (!latency && options.mode != "tensor" && options.mode != "fused") {
    refuse("unknown mode " + options.mode + "; known are tensor, fused, latency");
  }
  if (latency ? options.sizes.empty() : options.model.empty()) {
    refuse(latency ? "--mode latency needs --sizes" : "--mode " + options.mode + " needs --model");
  }
  return options;
}

std::vector<std::size_t> read_model(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::size_t> counts;
  for (std::string line; std::getline(in, line);) {
    counts.push_back(std::strtoull(line.c_str(), nullptr, 10));
    if (counts.back() == 0) refuse(path + ": no element count in the line '" + line + "'");
  }
  if (counts.empty()) refuse("cannot read the model " + path);
  return counts;
}

void measure(const Options& options, const Library& library) {
  std::vector<Series> all;
  if (options.mode == "latency") {
    for (const std::size_t bytes : options.sizes) {
      const std::vector<std::size_t> counts{bytes / sizeof(float)};
      all.push_back(time_series(std::to_string(bytes), options, library, counts));
    }
  } else {
    std::vector<std::size_t> counts = read_model(options.model);
    std::reverse(counts.begin(), counts.end());
    if (options.mode == "fused") {
      counts = {std::accumulate(counts.begin(), counts.end(), std::size_t{0})};
    }
    all.push_back(time_series(options.mode, options, library, counts));
  }
  const std::string path = options.out + "/" + std::to_string(library.rank) + ".json";
  write_json(path, library.rank, library.size, all);
}

void write_times(const Options& options, const std::string& name, std::size_t bytes,
                 const std::vector<double>& us) {
  write_json(options.out + "/0.json", 0, 1, {Series{name, bytes, 1, 0, us}});
}

}  // namespace pushpull::bench

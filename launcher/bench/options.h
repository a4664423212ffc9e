// What `pushpull bench` is asked to measure: its flags, and the cases that they stand for.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"

namespace CLI {
class App;
}

namespace pushpull::launcher {

enum class BenchOperation { kPushPull, kBroadcast };

// One row of the table: an iteration exchanges all tensors once.
struct BenchCase {
  std::string name;            // "resnet50", "64KiB"
  std::vector<size_t> counts;  // elements of each tensor, in the order in which calls are made
  size_t elements() const;
};

struct BenchOptions {
  BenchOperation operation = BenchOperation::kPushPull;
  DType dtype = DType::kFloat32;
  bool through_mxnet = false;
  bool synchronous = false;  // --latency: one call at a time, no barrier between iterations
  bool fused = false;
  size_t iterations = 0;
  size_t warmup = 0;
  double link_bits_per_second = 0;  // 0: not said
  std::string json_file;            // empty: none
  std::vector<BenchCase> cases;
};

// The flags as texts, so that they can be handed on to workers as they came.
class BenchFlags {
 public:
  // The object must outlive `command`.
  void add_to(CLI::App& command);
  // `model_folder`: where shape lists named without a path are. Errors name the flag.
  [[nodiscard]] Result<BenchOptions> parse(const std::string& model_folder) const;
  // The same flags again, as words of a command line; a file name as an absolute one.
  std::vector<std::string> words(const std::string& working_folder) const;

 private:
  Result<std::vector<BenchCase>> cases(DType dtype, const std::string& model_folder) const;

  std::string sizes_;
  std::string model_;
  std::string operation_ = "pushpull";
  std::string dtype_ = "float32";
  std::string level_ = "store";
  std::string iterations_;
  std::string warmup_;
  std::string factor_ = "2";
  std::string link_rate_;
  std::string json_;
  bool fused_ = false;
  bool latency_ = false;
};

// Bytes of each row: "4,1KiB,64KiB-1MiB"; a range multiplies by `factor` from its first size on.
[[nodiscard]] Result<std::vector<size_t>> parse_sizes(std::string_view text, size_t factor);
// "1gbit", "2.5gbit", "100mbit": bits per second.
[[nodiscard]] Result<double> parse_link_rate(std::string_view text);
// A shape list: a line per tensor, first layer first, that begins with the number of elements.
// `model`: the name of a list in `folder`, or a path.
[[nodiscard]] Result<std::vector<size_t>> read_model(const std::string& model,
                                                     const std::string& folder);
// Whether `model` is a path: there is a slash in it, or a file of that name here.
bool is_model_file(const std::string& model);
// Where the shape lists were installed.
std::string installed_models();

}  // namespace pushpull::launcher

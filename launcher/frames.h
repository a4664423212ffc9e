// The messages between a shim and the launcher: a type, a length, the content.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace pushpull::launcher {

enum class FrameType : uint8_t {
  // From the shim.
  kStarted = 2,     // pid
  kNotStarted = 3,  // exit code, sentence
  kOut = 4,         // bytes of standard output
  kErr = 5,         // bytes of standard error
  kEnded = 6,       // wait status
  // To the shim.
  kStart = 16,        // StartRequest
  kSignal = 17,       // number
  kCloseStream = 18,  // 1 or 2
  kPause = 20,        // 1: read no output of the worker, 0: go on
  kLeave = 19,        // nothing; the shim cleans up and ends
};

struct Frame {
  FrameType type;
  std::string content;
};

inline constexpr size_t kLargestFrame = size_t{64} << 20;

std::string encode_frame(FrameType type, std::string_view content);

// Puts frames together from bytes as they arrive.
class FrameReader {
 public:
  void feed(std::string_view bytes) { input_ += bytes; }
  // nullopt: more bytes are needed. An error where no frame can begin like this.
  [[nodiscard]] Result<std::optional<Frame>> next();

 private:
  std::string input_;
  size_t used_ = 0;
};

// Lists of numbers and texts as content of a frame.
class FieldWriter {
 public:
  FieldWriter& number(int64_t value);
  FieldWriter& text(std::string_view value);
  FieldWriter& texts(const std::vector<std::string>& values);
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reading past the end, or a length that is not there, makes ok() false and gives empty values.
class FieldReader {
 public:
  explicit FieldReader(std::string_view content) : rest_(content) {}
  int64_t number();
  std::string text();
  std::vector<std::string> texts();
  // All fields were there, and nothing else.
  bool complete() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

// What a shim says of itself in the hello of its connection (Hello::detail).
struct ShimGreeting {
  std::string host;
  std::string address;  // numeric, by which other hosts reach it
  int port = 0;         // that it keeps free for a rendezvous there; 0: none is free
  std::vector<int> cores;

  std::string encode() const;
  [[nodiscard]] static Result<ShimGreeting> decode(std::string_view content);
};

// What a shim is to run. Its own process's variables of the MPI starter are added to the
// environment.
struct StartRequest {
  std::vector<std::string> argv;
  std::vector<std::string> environment;
  bool inherit = false;  // the environment comes on top of the shim's own
  std::vector<int> cores;
  std::string log_file;     // empty: output goes through the connection
  bool append_log = false;  // behind what is in it

  std::string encode() const;
  [[nodiscard]] static Result<StartRequest> decode(std::string_view content);
};

}  // namespace pushpull::launcher

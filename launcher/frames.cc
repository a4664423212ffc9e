#include "launcher/frames.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace pushpull::launcher {
namespace {

constexpr size_t kHeaderBytes = 5;

uint32_t read_length(const char* bytes) {
  uint32_t length = 0;
  std::memcpy(&length, bytes, sizeof(length));
  return length;
}

}  // namespace

std::string encode_frame(FrameType type, std::string_view content) {
  const auto length = static_cast<uint32_t>(content.size());
  std::string frame(1, static_cast<char>(type));
  frame.append(reinterpret_cast<const char*>(&length), sizeof(length));
  frame.append(content);
  return frame;
}

Result<std::optional<Frame>> FrameReader::next() {
  const std::string_view rest = std::string_view(input_).substr(used_);
  const size_t length = rest.size() < kHeaderBytes ? 0 : read_length(rest.data() + 1);
  if (length > kLargestFrame) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a frame claims to have {} bytes", length));
  }
  if (rest.size() < kHeaderBytes + length || rest.size() < kHeaderBytes) {
    input_.erase(0, used_);
    used_ = 0;
    return std::nullopt;
  }
  used_ += kHeaderBytes + length;
  return Frame{static_cast<FrameType>(rest[0]), std::string(rest.substr(kHeaderBytes, length))};
}

FieldWriter& FieldWriter::number(int64_t value) {
  out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  return *this;
}

FieldWriter& FieldWriter::text(std::string_view value) {
  number(static_cast<int64_t>(value.size()));
  out_.append(value);
  return *this;
}

FieldWriter& FieldWriter::texts(const std::vector<std::string>& values) {
  number(static_cast<int64_t>(values.size()));
  for (const std::string& value : values) text(value);
  return *this;
}

int64_t FieldReader::number() {
  int64_t value = 0;
  if (rest_.size() < sizeof(value)) {
    ok_ = false;
    rest_ = {};
    return 0;
  }
  std::memcpy(&value, rest_.data(), sizeof(value));
  rest_.remove_prefix(sizeof(value));
  return value;
}

std::string FieldReader::text() {
  const int64_t length = number();
  if (length < 0 || static_cast<uint64_t>(length) > rest_.size()) {
    ok_ = false;
    rest_ = {};
    return {};
  }
  const std::string value(rest_.substr(0, static_cast<size_t>(length)));
  rest_.remove_prefix(static_cast<size_t>(length));
  return value;
}

std::vector<std::string> FieldReader::texts() {
  std::vector<std::string> values;
  const int64_t count = number();
  for (int64_t i = 0; i < count && ok_; ++i) values.push_back(text());
  return values;
}

namespace {

constexpr int64_t kMostCores = 65536;

void write_cores(FieldWriter& writer, const std::vector<int>& cores) {
  writer.number(static_cast<int64_t>(cores.size()));
  for (const int core : cores) writer.number(core);
}

std::vector<int> read_cores(FieldReader& reader) {
  std::vector<int> cores;
  const int64_t count = reader.number();
  for (int64_t i = 0; i < count && i < kMostCores; ++i) {
    cores.push_back(static_cast<int>(reader.number()));
  }
  return cores;
}

}  // namespace

std::string ShimGreeting::encode() const {
  FieldWriter writer;
  writer.text(host).text(address).number(port);
  // A hello has room for as many; who has more binds workers to the first of them.
  write_cores(writer,
              {cores.begin(),
               cores.begin() + std::min<ptrdiff_t>(static_cast<ptrdiff_t>(cores.size()), 200)});
  return writer.take();
}

Result<ShimGreeting> ShimGreeting::decode(std::string_view content) {
  FieldReader reader(content);
  ShimGreeting greeting;
  greeting.host = reader.text();
  greeting.address = reader.text();
  greeting.port = static_cast<int>(reader.number());
  greeting.cores = read_cores(reader);
  if (!reader.complete()) {
    return fail(ErrorCode::kInvalidArgument, "what a shim says of itself is damaged");
  }
  return greeting;
}

std::string StartRequest::encode() const {
  FieldWriter writer;
  writer.texts(argv).texts(environment).number(inherit ? 1 : 0);
  writer.text(log_file).number(append_log ? 1 : 0);
  write_cores(writer, cores);
  return writer.take();
}

Result<StartRequest> StartRequest::decode(std::string_view content) {
  FieldReader reader(content);
  StartRequest request;
  request.argv = reader.texts();
  request.environment = reader.texts();
  request.inherit = reader.number() != 0;
  request.log_file = reader.text();
  request.append_log = reader.number() != 0;
  request.cores = read_cores(reader);
  if (!reader.complete() || request.argv.empty()) {
    return fail(ErrorCode::kInvalidArgument, "the launcher's request to start a worker is damaged");
  }
  return request;
}

}  // namespace pushpull::launcher

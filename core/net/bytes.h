// Fixed-width little-endian integers and length-prefixed strings, for small messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace pushpull {

// Appends to a string.
class ByteWriter {
 public:
  explicit ByteWriter(std::string* out) : out_(out) {}

  template <class Integer>
  void integer(Integer value) {
    auto bits = static_cast<std::make_unsigned_t<Integer>>(value);
    for (size_t i = 0; i < sizeof(Integer); ++i) {
      out_->push_back(static_cast<char>(bits & 0xff));
      bits = static_cast<decltype(bits)>(static_cast<uint64_t>(bits) >> 8);
    }
  }
  // With its length as a Length in front; the caller has checked that it fits.
  template <class Length>
  void string(std::string_view text) {
    integer(static_cast<Length>(text.size()));
    out_->append(text);
  }

 private:
  std::string* out_;
};

// Never reads past the end: what is missing or too long reads as zero or empty and makes ok()
// false.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <class Integer>
  Integer integer() {
    const std::string_view bytes = take(sizeof(Integer));
    uint64_t bits = 0;
    for (size_t i = bytes.size(); i-- > 0;) bits = bits << 8 | static_cast<uint8_t>(bytes[i]);
    return static_cast<Integer>(bits);
  }
  template <class Length>
  std::string string(size_t longest) {
    const size_t length = integer<Length>();
    if (length > longest) ok_ = false;
    return std::string(take(length));
  }
  std::string_view take(size_t bytes) {
    if (!ok_ || bytes > rest_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  bool ok() const { return ok_; }
  bool finished() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace pushpull

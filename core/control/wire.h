// Writing and reading the fields of a control-plane frame.
//
// Writer and Reader have the same functions, so that one list of fields describes both directions
// and they cannot drift apart (see fields() in messages.cc). Neither throws; a Reader that met
// something malformed stays failed, reads zeros from then on, and never leaves its bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace pushpull::wire {

inline constexpr size_t kMaxTextBytes = 16u << 10;  // sentences are cut to this
inline constexpr size_t kMaxBytes = 1u << 20;       // longest string that is read
inline constexpr size_t kMaxListItems = 1u << 20;

inline uint64_t zigzag(int64_t v) {
  return (static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63);
}
inline int64_t unzigzag(uint64_t v) {
  return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1);
}

class Writer {
 public:
  template <class T>
  using Of = const T;

  explicit Writer(std::string* out) : out_(out) {}

  void byte(uint8_t v) { out_->push_back(static_cast<char>(v)); }
  void varint(uint64_t v) {
    char bytes[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7) bytes[n++] = static_cast<char>(v | 0x80);
    bytes[n++] = static_cast<char>(v);
    out_->append(bytes, n);
  }
  void number(uint64_t v) { varint(v); }
  void number(uint32_t v) { varint(v); }
  void number(int64_t v) { varint(zigzag(v)); }
  void number(int32_t v) { varint(zigzag(v)); }
  void flag(bool v) { byte(v ? 1 : 0); }
  void real(double v) {
    auto bits = std::bit_cast<uint64_t>(v);
    for (int i = 0; i < 8; ++i, bits >>= 8) byte(static_cast<uint8_t>(bits));
  }
  void bytes(std::string_view v) {
    varint(v.size());
    out_->append(v);
  }
  // For people: cut at a character's border where it is too long.
  void text(std::string_view v) {
    if (v.size() > kMaxTextBytes) {
      size_t end = kMaxTextBytes;
      while (end > 0 && (static_cast<uint8_t>(v[end]) & 0xC0) == 0x80) --end;
      v = v.substr(0, end);
    }
    bytes(v);
  }
  template <class E>
  void choice(E v, E /*largest*/) {
    byte(static_cast<uint8_t>(v));
  }
  template <class T>
  void list(const std::vector<T>& items) {
    varint(items.size());
    for (const T& item : items) {
      if constexpr (std::is_integral_v<T>) {
        number(item);
      } else {
        fields(*this, item);
      }
    }
  }

 private:
  std::string* out_;
};

class Reader {
 public:
  template <class T>
  using Of = T;

  explicit Reader(std::string_view bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}

  // nullptr while all is well.
  const char* error() const { return error_; }
  bool at_end() const { return at_ == end_; }
  void fail(const char* error) {
    if (error_ == nullptr) error_ = error;
    at_ = end_;
  }

  uint8_t byte() {
    if (at_ == end_) {
      fail("it ends too early");
      return 0;
    }
    return static_cast<uint8_t>(*at_++);
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint64_t b = byte();
      if (shift == 63 && b > 1) break;
      value |= (b & 0x7F) << shift;
      if (b < 0x80) return value;
    }
    fail("a number is too long");
    return 0;
  }
  void number(uint64_t& v) { v = varint(); }
  void number(uint32_t& v) { v = narrow<uint32_t>(varint()); }
  void number(int64_t& v) { v = unzigzag(varint()); }
  void number(int32_t& v) { v = narrow<int32_t>(unzigzag(varint())); }
  void flag(bool& v) {
    const uint8_t b = byte();
    if (b > 1) fail("a flag is neither 0 nor 1");
    v = b == 1;
  }
  void real(double& v) {
    uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits |= static_cast<uint64_t>(byte()) << (8 * i);
    v = std::bit_cast<double>(bits);
  }
  void bytes(std::string& v) {
    const uint64_t size = varint();
    if (size > kMaxBytes || size > static_cast<uint64_t>(end_ - at_)) {
      fail("a string is longer than allowed or than the frame");
      v.clear();
      return;
    }
    v.assign(at_, size);
    at_ += size;
  }
  void text(std::string& v) { bytes(v); }
  template <class E>
  void choice(E& v, E largest) {
    const uint8_t b = byte();
    if (b > static_cast<uint8_t>(largest)) fail("a field has an unknown value");
    v = error_ == nullptr ? static_cast<E>(b) : E{};
  }
  template <class T>
  void list(std::vector<T>& items) {
    const uint64_t size = varint();
    if (size > kMaxListItems || size > static_cast<uint64_t>(end_ - at_)) {
      fail("a list is longer than allowed or than the frame");
      return;
    }
    // Every item takes a byte at least; what it takes in memory is reserved only as it proves real.
    items.reserve(size < 1024 ? size : 1024);
    for (uint64_t i = 0; i < size && error_ == nullptr; ++i) {
      if constexpr (std::is_integral_v<T>) {
        number(items.emplace_back());
      } else {
        fields(*this, items.emplace_back());
      }
    }
  }

 private:
  template <class To, class From>
  To narrow(From v) {
    if (v > static_cast<From>(std::numeric_limits<To>::max()) ||
        (std::is_signed_v<From> && v < static_cast<From>(std::numeric_limits<To>::min()))) {
      fail("a number is too large");
      return 0;
    }
    return static_cast<To>(v);
  }

  const char* at_;
  const char* end_;
  const char* error_ = nullptr;
};

}  // namespace pushpull::wire

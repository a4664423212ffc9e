// Memory for messages that do not come out of or go into a tensor directly.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace pushpull {

// Equal buffers, kept from call to call. The one returned last is given out first, while it is
// still in cache.
class BufferPool {
 public:
  // Between calls, when all buffers are back: buffers will have at least `bytes`.
  void prepare(size_t bytes) {
    free_.clear();
    for (auto& buffer : all_) free_.push_back(buffer.get());
    if (bytes <= bytes_) return;
    free_.clear();
    all_.clear();
    bytes_ = (bytes + kAlign - 1) / kAlign * kAlign;
  }

  char* take() {
    if (free_.empty()) {
      char* fresh = static_cast<char*>(std::aligned_alloc(kAlign, bytes_));
      if (fresh == nullptr) throw std::bad_alloc();
      all_.emplace_back(fresh);
      return fresh;
    }
    char* buffer = free_.back();
    free_.pop_back();
    return buffer;
  }

  // Takes a buffer back and forgets it; null is fine.
  void give_back(char*& buffer) {
    if (buffer != nullptr) free_.push_back(buffer);
    buffer = nullptr;
  }

 private:
  static constexpr size_t kAlign = 64;
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  size_t bytes_ = 0;
  std::vector<std::unique_ptr<char, Free>> all_;
  std::vector<char*> free_;
};

}  // namespace pushpull

#include "tests/stores/memory_store.h"

#include <charconv>

#include <fmt/format.h>

namespace pushpull::testing {

namespace {

constexpr size_t kMaxValue = 64u << 10;

class MemoryStore : public Store {
 public:
  MemoryStore(std::shared_ptr<MemoryStoreFactory::Content> content, std::string description)
      : content_(std::move(content)), description_(std::move(description)) {}

  Result<void> set(std::string_view key, std::string_view value, Deadline) override {
    if (value.size() > kMaxValue) return fail(ErrorCode::kInvalidArgument, "the value is too long");
    const std::scoped_lock lock(content_->mutex);
    content_->values.insert_or_assign(std::string(key), std::string(value));
    content_->changed.notify_all();
    return {};
  }

  Result<std::string> set_if_absent(std::string_view key, std::string_view value,
                                    Deadline) override {
    if (value.size() > kMaxValue) return fail(ErrorCode::kInvalidArgument, "the value is too long");
    const std::scoped_lock lock(content_->mutex);
    const auto [it, added] = content_->values.try_emplace(std::string(key), value);
    if (added) content_->changed.notify_all();
    return it->second;
  }

  Result<std::optional<std::string>> get(std::string_view key, Deadline) override {
    const std::scoped_lock lock(content_->mutex);
    const auto it = content_->values.find(key);
    if (it == content_->values.end()) return std::optional<std::string>();
    return std::optional(it->second);
  }

  Result<std::string> wait(std::string_view key, std::string_view known,
                           Deadline deadline) override {
    std::unique_lock lock(content_->mutex);
    const auto there = [&] {
      const auto it = content_->values.find(key);
      return it != content_->values.end() && (known.empty() || it->second != known);
    };
    if (content_->changed.wait_until(lock, deadline, there)) {
      return content_->values.find(key)->second;
    }
    return fail(ErrorCode::kTimeout,
                fmt::format("the key {} at {} did not come in time", key, description_));
  }

  Result<int64_t> add(std::string_view key, int64_t delta, Deadline) override {
    const std::scoped_lock lock(content_->mutex);
    std::string& text = content_->values.try_emplace(std::string(key), "0").first->second;
    int64_t value = 0;
    const char* end = text.data() + text.size();
    if (std::from_chars(text.data(), end, value).ptr != end ||
        __builtin_add_overflow(value, delta, &value)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the key {} at {} holds no counter", key, description_));
    }
    text = std::to_string(value);
    content_->changed.notify_all();
    return value;
  }

  Result<void> remove_if(std::string_view key, std::string_view value, Deadline) override {
    const std::scoped_lock lock(content_->mutex);
    const auto it = content_->values.find(key);
    if (it != content_->values.end() && it->second == value) content_->values.erase(it);
    return {};
  }

  bool trusted() const override { return true; }
  std::string description() const override { return description_; }

 private:
  std::shared_ptr<MemoryStoreFactory::Content> content_;
  std::string description_;
};

}  // namespace

Result<std::unique_ptr<Store>> MemoryStoreFactory::open(const StoreOptions& options, Deadline) {
  const std::scoped_lock lock(mutex_);
  auto& content = contents_[options.url];
  if (!content) content = std::make_shared<Content>();
  return std::make_unique<MemoryStore>(content, options.url);
}

}  // namespace pushpull::testing

// What every store has to do. Which stores there are: store_places.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "core/registry.h"
#include "tests/stores/memory_store.h"
#include "tests/stores/store_places.h"

namespace pushpull::testing {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPlenty = 20s;
constexpr int kThreads = 8;
constexpr size_t kMaxValue = 64u << 10;

Deadline soon() { return deadline_in(kPlenty); }

class StoreSuite : public ::testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    registry_.add(std::make_unique<MemoryStoreFactory>());
    auto place = GetParam().make();
    ASSERT_TRUE(place) << place.error().message();
    place_ = *place;
    auto factory = registry_.store(GetParam().module);
    ASSERT_TRUE(factory) << factory.error().message();
    factory_ = *factory;
    place_.options.host_it = true;
    store_ = open();
    ASSERT_NE(store_, nullptr);
    place_.options.host_it = false;
  }

  std::unique_ptr<Store> open() {
    auto store = factory_->open(place_.options, soon());
    EXPECT_TRUE(store) << store.error().message();
    return store ? std::move(*store) : nullptr;
  }

  // Runs `body(i, store)` in threads, each with a store of its own, all starting together.
  template <class Body>
  void in_threads(int count, const Body& body) {
    std::vector<std::unique_ptr<Store>> stores;
    for (int i = 0; i < count; ++i) stores.push_back(open());
    ASSERT_EQ(std::count(stores.begin(), stores.end(), nullptr), 0);
    std::vector<std::jthread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] { body(i, *stores[static_cast<size_t>(i)]); });
    }
  }

  std::string get(std::string_view key) {
    auto value = store_->get(key, soon());
    EXPECT_TRUE(value) << value.error().message();
    return value && *value ? **value : "(absent)";
  }
  void set(std::string_view key, std::string_view value) {
    const auto done = store_->set(key, value, soon());
    EXPECT_TRUE(done) << done.error().message();
  }

  Registry registry_;
  StorePlace place_;
  StoreFactory* factory_ = nullptr;
  std::unique_ptr<Store> store_;  // the first, which hosts where that is needed
};

std::string every_byte() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  return bytes + "\r\n$-1\r\n" + bytes;
}

TEST_P(StoreSuite, GetsWhatWasSet) {
  EXPECT_EQ(get("pushpull:job:run"), "(absent)");
  set("pushpull:job:run", "one");
  EXPECT_EQ(get("pushpull:job:run"), "one");
  set("pushpull:job:run", "two");
  EXPECT_EQ(get("pushpull:job:run"), "two");
}

TEST_P(StoreSuite, OthersSeeWhatWasSetAfterItsWriterLeft) {
  auto writer = open();
  ASSERT_TRUE(writer->set("pushpull:job:run", "left behind", soon()));
  writer.reset();
  EXPECT_EQ(get("pushpull:job:run"), "left behind");
}

TEST_P(StoreSuite, AnEmptyValueIsAValue) {
  set("pushpull:empty", "");
  EXPECT_EQ(get("pushpull:empty"), "");
  auto value = store_->set_if_absent("pushpull:empty", "late", soon());
  ASSERT_TRUE(value) << value.error().message();
  EXPECT_EQ(*value, "");
  value = store_->wait("pushpull:empty", "", soon());
  ASSERT_TRUE(value) << value.error().message();
  EXPECT_EQ(*value, "");
}

TEST_P(StoreSuite, ValuesAreBytes) {
  const std::string bytes = every_byte();
  set("pushpull:bytes", bytes);
  EXPECT_EQ(get("pushpull:bytes"), bytes);
  const auto kept = store_->set_if_absent("pushpull:more", bytes, soon());
  ASSERT_TRUE(kept) << kept.error().message();
  EXPECT_EQ(*kept, bytes);
  ASSERT_TRUE(store_->remove_if("pushpull:bytes", bytes, soon()));
  EXPECT_EQ(get("pushpull:bytes"), "(absent)");
}

TEST_P(StoreSuite, DifferentKeysAreDifferent) {
  const std::vector<std::string> keys{"pushpull:a",
                                      "pushpull:A",
                                      "pushpull:a:b",
                                      "pushpull:a/b",
                                      "pushpull:a.b",
                                      "pushpull:a%b",
                                      "pushpull:a%3ab",
                                      "pushpull:..",
                                      "pushpull:../x",
                                      "pushpull:a b",
                                      "pushpull:a\nb",
                                      "pushpull:a*",
                                      "pushpull:\xc3\xa4",
                                      "pushpull:",
                                      "pushpull:a_b",
                                      "pushpull:a-b",
                                      "pushpull:a\\b",
                                      "pushpull:" + std::string(150, 'x'),
                                      std::string("pushpull:a\0b", 12)};
  for (size_t i = 0; i < keys.size(); ++i) set(keys[i], std::to_string(i));
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(get(keys[i]), std::to_string(i)) << keys[i];
}

TEST_P(StoreSuite, ValuesMayBe64KiBLong) {
  std::string value(kMaxValue, '\0');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 31 >> 3);
  set("pushpull:large", value);
  EXPECT_TRUE(get("pushpull:large") == value);
  const auto kept = store_->set_if_absent("pushpull:large2", value, soon());
  ASSERT_TRUE(kept) << kept.error().message();
  EXPECT_TRUE(*kept == value);
}

TEST_P(StoreSuite, LongerValuesAreRefused) {
  const std::string value(kMaxValue + 1, 'x');
  const auto set_result = store_->set("pushpull:large", value, soon());
  ASSERT_FALSE(set_result);
  EXPECT_EQ(set_result.error().code(), ErrorCode::kInvalidArgument);
  const auto kept = store_->set_if_absent("pushpull:large", value, soon());
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(get("pushpull:large"), "(absent)");
}

TEST_P(StoreSuite, SetIfAbsentKeepsTheFirst) {
  auto value = store_->set_if_absent("pushpull:run", "first", soon());
  ASSERT_TRUE(value) << value.error().message();
  EXPECT_EQ(*value, "first");
  value = store_->set_if_absent("pushpull:run", "second", soon());
  ASSERT_TRUE(value) << value.error().message();
  EXPECT_EQ(*value, "first");
  ASSERT_TRUE(store_->remove_if("pushpull:run", "first", soon()));
  value = store_->set_if_absent("pushpull:run", "third", soon());
  ASSERT_TRUE(value) << value.error().message();
  EXPECT_EQ(*value, "third");
}

TEST_P(StoreSuite, SetIfAbsentFromManyAtOnceHasOneWinner) {
  constexpr int kRounds = 20;
  std::mutex mutex;
  std::vector<std::set<std::string>> seen(kRounds);
  in_threads(kThreads, [&](int i, Store& store) {
    for (int round = 0; round < kRounds; ++round) {
      const auto value = store.set_if_absent(fmt::format("pushpull:round:{}", round),
                                             fmt::format("thread {}", i), soon());
      const std::scoped_lock lock(mutex);
      seen[static_cast<size_t>(round)].insert(value ? *value : value.error().message());
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    const auto& values = seen[static_cast<size_t>(round)];
    ASSERT_EQ(values.size(), 1u) << "round " << round;
    EXPECT_EQ(get(fmt::format("pushpull:round:{}", round)), *values.begin());
  }
}

TEST_P(StoreSuite, WaitReturnsWhatIsThere) {
  set("pushpull:run", "there");
  const auto value = store_->wait("pushpull:run", "", soon());
  ASSERT_TRUE(value) << value.error().message();
  EXPECT_EQ(*value, "there");
}

TEST_P(StoreSuite, WaitReturnsWhatComesLater) {
  auto writer = open();
  std::jthread later([&] {
    std::this_thread::sleep_for(200ms);
    EXPECT_TRUE(writer->set("pushpull:run", "late", soon()));
  });
  const auto value = store_->wait("pushpull:run", "", soon());
  ASSERT_TRUE(value) << value.error().message();
  EXPECT_EQ(*value, "late");
}

TEST_P(StoreSuite, WaitPassesOverTheKnownValue) {
  set("pushpull:run", "stale");
  auto writer = open();
  std::jthread later([&] {
    std::this_thread::sleep_for(200ms);
    EXPECT_TRUE(writer->set("pushpull:run", "stale", soon()));
    EXPECT_TRUE(writer->set("pushpull:run", "new", soon()));
  });
  const auto value = store_->wait("pushpull:run", "stale", soon());
  ASSERT_TRUE(value) << value.error().message();
  EXPECT_EQ(*value, "new");
}

TEST_P(StoreSuite, WaitSurvivesTheRemovalOfTheKnownValue) {
  set("pushpull:run", "stale");
  auto writer = open();
  std::jthread later([&] {
    std::this_thread::sleep_for(100ms);
    EXPECT_TRUE(writer->remove_if("pushpull:run", "stale", soon()));
    std::this_thread::sleep_for(100ms);
    EXPECT_TRUE(writer->set_if_absent("pushpull:run", "new", soon()));
  });
  const auto value = store_->wait("pushpull:run", "stale", soon());
  ASSERT_TRUE(value) << value.error().message();
  EXPECT_EQ(*value, "new");
}

TEST_P(StoreSuite, ManyWaitForOne) {
  std::mutex mutex;
  std::vector<std::string> values;
  auto writer = open();
  std::jthread later([&] {
    std::this_thread::sleep_for(200ms);
    EXPECT_TRUE(writer->set("pushpull:run", "for all", soon()));
  });
  in_threads(kThreads, [&](int, Store& store) {
    const auto value = store.wait("pushpull:run", "", soon());
    const std::scoped_lock lock(mutex);
    values.push_back(value ? *value : value.error().message());
  });
  EXPECT_EQ(values, std::vector<std::string>(kThreads, "for all"));
}

TEST_P(StoreSuite, WaitEndsAtTheDeadlineAndSaysForWhat) {
  set("pushpull:known", "same");
  for (const auto& [key, known] : {std::pair("pushpull:absent", ""), {"pushpull:known", "same"}}) {
    std::string message;
    // Again, a few times, where a busy machine left it no time to look at all.
    for (int tries = 10; tries > 0 && message.find(key) == std::string::npos; --tries) {
      const auto start = Clock::now();
      const auto value = store_->wait(key, known, start + 300ms);
      const auto took = Clock::now() - start;
      ASSERT_FALSE(value);
      EXPECT_EQ(value.error().code(), ErrorCode::kTimeout);
      EXPECT_GE(took, 290ms);
      EXPECT_LT(took, 10s);  // a bound against hanging
      message = value.error().message();
    }
    EXPECT_NE(message.find(key), std::string::npos) << message;
    EXPECT_NE(message.find(store_->description()), std::string::npos) << message;
  }
}

TEST_P(StoreSuite, WorksAfterATimeout) {
  ASSERT_FALSE(store_->wait("pushpull:run", "", deadline_in(50ms)));
  set("pushpull:run", "works");
  EXPECT_EQ(get("pushpull:run"), "works");
}

TEST_P(StoreSuite, AddCounts) {
  auto sum = store_->add("pushpull:count", 5, soon());
  ASSERT_TRUE(sum) << sum.error().message();
  EXPECT_EQ(*sum, 5);
  sum = store_->add("pushpull:count", -7, soon());
  ASSERT_TRUE(sum) << sum.error().message();
  EXPECT_EQ(*sum, -2);
  EXPECT_EQ(get("pushpull:count"), "-2");
  set("pushpull:count", "9007199254740993");  // more than a double can count
  sum = store_->add("pushpull:count", 1, soon());
  ASSERT_TRUE(sum) << sum.error().message();
  EXPECT_EQ(*sum, 9007199254740994);
}

TEST_P(StoreSuite, AddFromManyAtOnceCountsEach) {
  constexpr int kAdds = 25;
  std::mutex mutex;
  std::set<int64_t> sums;
  in_threads(kThreads, [&](int, Store& store) {
    for (int i = 0; i < kAdds; ++i) {
      const auto sum = store.add("pushpull:count", 1, soon());
      const std::scoped_lock lock(mutex);
      EXPECT_TRUE(sum) << sum.error().message();
      if (sum) sums.insert(*sum);
    }
  });
  EXPECT_EQ(sums.size(), static_cast<size_t>(kThreads * kAdds));
  EXPECT_EQ(*sums.begin(), 1);
  EXPECT_EQ(*sums.rbegin(), kThreads * kAdds);
  EXPECT_EQ(get("pushpull:count"), std::to_string(kThreads * kAdds));
}

TEST_P(StoreSuite, AddToSomethingElseIsRefused) {
  for (const std::string value : {"text", "12 apples", "9223372036854775807"}) {
    set("pushpull:count", value);
    const auto sum = store_->add("pushpull:count", 1, soon());
    ASSERT_FALSE(sum) << value;
    EXPECT_EQ(sum.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(sum.error().message().find("pushpull:count"), std::string::npos)
        << sum.error().message();
    EXPECT_EQ(get("pushpull:count"), value);
  }
}

TEST_P(StoreSuite, RemoveIfRemovesOnlyWhatItKnows) {
  ASSERT_TRUE(store_->remove_if("pushpull:run", "anything", soon()));
  set("pushpull:run", "newer");
  ASSERT_TRUE(store_->remove_if("pushpull:run", "older", soon()));
  EXPECT_EQ(get("pushpull:run"), "newer");
  ASSERT_TRUE(store_->remove_if("pushpull:run", "newer", soon()));
  EXPECT_EQ(get("pushpull:run"), "(absent)");
}

TEST_P(StoreSuite, RemoveIfNeverRemovesAnothersValue) {
  // Each takes a lock by set_if_absent and gives it back by remove_if: two inside at once would
  // mean that one removed the other's.
  std::atomic<int> inside{0};
  std::atomic<int> taken{0};
  in_threads(4, [&](int i, Store& store) {
    const std::string mine = fmt::format("thread {}", i);
    for (int round = 0; round < 50; ++round) {
      const auto holder = store.set_if_absent("pushpull:lock", mine, soon());
      EXPECT_TRUE(holder) << holder.error().message();
      if (holder && *holder == mine) {
        EXPECT_EQ(inside.fetch_add(1), 0);
        ++taken;
        std::this_thread::sleep_for(1ms);
        inside.fetch_sub(1);
      }
      EXPECT_TRUE(store.remove_if("pushpull:lock", mine, soon()));
    }
  });
  EXPECT_GT(taken, 0);
  EXPECT_EQ(get("pushpull:lock"), "(absent)");
}

TEST_P(StoreSuite, SaysWhetherItCanBeTrusted) {
  EXPECT_EQ(store_->trusted(), place_.trusted);
  EXPECT_EQ(open()->trusted(), place_.trusted);
}

TEST_P(StoreSuite, NeverShowsASecret) {
  std::string texts = store_->description();
  const auto absent = store_->wait("pushpull:absent", "", deadline_in(20ms));
  ASSERT_FALSE(absent);
  texts += absent.error().message();
  set("pushpull:count", "the value is nobody's business");
  const auto sum = store_->add("pushpull:count", 1, soon());
  ASSERT_FALSE(sum);
  texts += sum.error().message();
  EXPECT_EQ(texts.find("nobody's business"), std::string::npos) << texts;
  for (const std::string& secret : {place_.options.password, place_.options.secret}) {
    if (secret.empty()) continue;
    EXPECT_EQ(texts.find(secret), std::string::npos) << texts;
  }
}

INSTANTIATE_TEST_SUITE_P(Every, StoreSuite, ::testing::ValuesIn(all_stores()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace pushpull::testing

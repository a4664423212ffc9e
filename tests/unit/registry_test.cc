#include "core/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/module_error.h"
#include "tests/support/process.h"

namespace pushpull {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryDirectory;

template <class T>
std::string message_of(const Result<T>& result, ErrorCode code) {
  EXPECT_FALSE(result.has_value());
  if (result) return {};
  EXPECT_EQ(to_string(result.error().code()), to_string(code));
  return result.error().message();
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// A copy of a module's file in which one text is replaced by another of the same length.
void copy_replacing(const std::string& from, const std::string& to, const std::string& text,
                    const std::string& replacement) {
  ASSERT_EQ(text.size(), replacement.size());
  std::string bytes = testing::read_file(from);
  const size_t at = bytes.find(text);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, text.size(), replacement);
  std::ofstream(to, std::ios::binary) << bytes;
}

class NamedFactory : public StoreFactory {
 public:
  explicit NamedFactory(std::string name) : name_(std::move(name)) {}
  std::string_view name() const override { return name_; }
  Result<std::unique_ptr<Store>> open(const StoreOptions&, Deadline) override {
    return fail(ErrorCode::kUnsupported, "named");
  }

 private:
  std::string name_;
};

TEST(Registry, OpensModulesByName) {
  Registry registry("/no/such/directory::" REGISTRY_MODULES);
  const auto store = registry.store("sample");
  ASSERT_TRUE(store) << store.error().message();
  EXPECT_EQ((*store)->name(), "sample");
  const auto backend = registry.backend("sample");
  ASSERT_TRUE(backend) << backend.error().message();
  EXPECT_EQ((*backend)->name(), "sample");
  EXPECT_EQ((*backend)->identity()->value().size, 3);
}

TEST(Registry, OpensAModuleOnce) {
  Registry registry(REGISTRY_MODULES);
  const auto first = registry.store("sample");
  const auto second = registry.store("sample");
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*first, *second);
}

TEST(Registry, TwoRegistriesShareNoObjects) {
  Registry one(REGISTRY_MODULES);
  Registry two(REGISTRY_MODULES);
  const auto first = one.store("sample");
  const auto second = two.store("sample");
  ASSERT_TRUE(first && second);
  EXPECT_NE(*first, *second);
}

TEST(Registry, FindsTheModulesBesideTheLibrary) {
  Registry registry;
  const auto store = registry.store("redis");
  ASSERT_TRUE(store) << store.error().message();
  EXPECT_EQ((*store)->name(), "redis");
}

TEST(Registry, ListsWhatIsThere) {
  Registry registry(REGISTRY_MODULES);
  registry.add(std::make_unique<NamedFactory>("by_hand"));
  const auto stores = registry.store_names();
  EXPECT_TRUE(std::is_sorted(stores.begin(), stores.end()));
  for (const char* name : {"by_hand", "redis", "sample", "other_abi", "needy"}) {
    EXPECT_EQ(std::count(stores.begin(), stores.end(), name), 1) << name;
  }
  const auto backends = registry.backend_names();
  EXPECT_EQ(std::count(backends.begin(), backends.end(), "sample"), 1);
  EXPECT_EQ(std::count(backends.begin(), backends.end(), "by_hand"), 0);
  EXPECT_EQ(std::count(backends.begin(), backends.end(), "needy"), 0);
}

TEST(Registry, WhatWasAddedByHandComesFirst) {
  Registry registry(REGISTRY_MODULES);
  auto factory = std::make_unique<NamedFactory>("sample");
  const StoreFactory* raw = factory.get();
  registry.add(std::move(factory));
  const auto store = registry.store("sample");
  ASSERT_TRUE(store) << store.error().message();
  EXPECT_EQ(*store, raw);
}

TEST(Registry, AnUnknownNameListsTheKnown) {
  Registry registry(REGISTRY_MODULES);
  const std::string message = message_of(registry.store("nosuch"), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(has(message, "there is no store named 'nosuch'")) << message;
  EXPECT_TRUE(has(message, "libpushpull_store_nosuch.so")) << message;
  EXPECT_TRUE(has(message, REGISTRY_MODULES)) << message;
  EXPECT_TRUE(has(message, "redis")) << message;
  EXPECT_TRUE(has(message, "sample")) << message;
  EXPECT_TRUE(has(message_of(registry.backend("nosuch"), ErrorCode::kInvalidArgument),
                  "there is no backend named 'nosuch'"));
}

TEST(Registry, ANameCannotLeaveTheDirectory) {
  Registry registry(REGISTRY_MODULES "/..");
  for (const char* name : {"x/../../modules/libpushpull_store_sample", "", "../sample", "Sample"}) {
    EXPECT_FALSE(registry.store(name).has_value()) << name;
  }
}

TEST(Registry, AMissingLibraryIsNamedWithItsPackage) {
  Registry registry(REGISTRY_MODULES);
  const std::string message = message_of(registry.store("needy"), ErrorCode::kUnavailable);
  EXPECT_TRUE(has(message, "store 'needy' cannot be used")) << message;
  EXPECT_TRUE(has(message, "libpushpull_store_needy.so")) << message;
  EXPECT_TRUE(has(message, "needs the library libpushpull_absent.so.4, which is not on this host"))
      << message;
  EXPECT_TRUE(has(message, "apt install libpushpull-absent4")) << message;
}

TEST(Registry, TheRedisModuleWithoutHiredisNamesIt) {
  // The real module, made to ask for a hiredis that no host has.
  const TemporaryDirectory directory;
  copy_replacing(REDIS_MODULE, directory.path() + "/libpushpull_store_redis2.so",
                 "libhiredis.so.0.14", "libhiredis.so.0.99");
  Registry registry(directory.path());
  const std::string message = message_of(registry.store("redis2"), ErrorCode::kUnavailable);
  EXPECT_TRUE(has(message, "needs the library libhiredis.so.0.99")) << message;
  EXPECT_TRUE(has(message, "apt install libhiredis0.99")) << message;
}

TEST(Registry, AModuleOfAnotherInterfaceIsRefused) {
  Registry registry(REGISTRY_MODULES);
  const std::string message = message_of(registry.store("other_abi"), ErrorCode::kUnavailable);
  EXPECT_TRUE(has(message, "was built for another pushpull (its interface is pushpull-module-0"))
      << message;
  EXPECT_TRUE(has(message, kModuleAbi)) << message;
}

TEST(Registry, WhatIsNoModuleIsRefused) {
  Registry registry(REGISTRY_MODULES);
  std::string message = message_of(registry.store("no_entry"), ErrorCode::kUnavailable);
  EXPECT_TRUE(has(message, "is not a pushpull module")) << message;
  message = message_of(registry.store("lazy"), ErrorCode::kUnavailable);
  EXPECT_TRUE(has(message, "did not start")) << message;
  message = message_of(registry.store("undefined"), ErrorCode::kUnavailable);
  EXPECT_TRUE(has(message, "pushpull_function_of_another_version")) << message;

  const TemporaryDirectory directory;
  std::ofstream(directory.path() + "/libpushpull_store_text.so") << "not a library";
  Registry other(directory.path());
  message = message_of(other.store("text"), ErrorCode::kUnavailable);
  EXPECT_TRUE(has(message, "cannot be loaded")) << message;
}

TEST(Registry, ManyThreadsMayAskAtOnce) {
  Registry registry(REGISTRY_MODULES);
  std::vector<StoreFactory*> found(8);
  {
    std::vector<std::jthread> threads;
    for (auto& place : found) {
      threads.emplace_back([&] {
        const auto store = registry.store("sample");
        EXPECT_GT(registry.store_names().size(), 1u);
        if (store) place = *store;
      });
    }
  }
  EXPECT_NE(found.front(), nullptr);
  EXPECT_EQ(std::count(found.begin(), found.end(), found.front()), 8);
}

TEST(Registry, WorksFromWhereverTheLibraryIs) {
  const TemporaryDirectory place;
  fs::copy_file(PUSHPULL_LIBRARY, place.path() + "/libpushpull.so");
  fs::copy_file(REGISTRY_MODULES "/libpushpull_store_sample.so",
                place.path() + "/libpushpull_store_moved.so");
  const std::string output = place.path() + "/output";
  auto process =
      testing::Process::start({REGISTRY_NAMES}, output, {{"LD_LIBRARY_PATH", place.path()}});
  ASSERT_TRUE(process) << process.error().message();
  EXPECT_EQ(process->wait(), 0);
  EXPECT_EQ(testing::read_file(output), "moved\n");
}

TEST(ModuleError, KnowsDebiansPackages) {
  // Checked against the packages' file lists.
  for (const auto& [library, package] : {std::pair("libhiredis.so.0.14", "libhiredis0.14"),
                                         {"libgloo.so.0", "libgloo0"},
                                         {"libmpi.so.40", "libopenmpi3"},
                                         {"libopen-pal.so.40", "libopenmpi3"},
                                         {"libfmt.so.9", "libfmt9"},
                                         {"libyaml-cpp.so.0.7", "libyaml-cpp0.7"},
                                         {"libspdlog.so.1.10", "libspdlog1.10"},
                                         {"libhwy.so.1", "libhwy1"},
                                         {"libcrypto.so.3", "libssl3"},
                                         {"libssl.so.3", "libssl3"},
                                         {"libstdc++.so.6", "libstdc++6"},
                                         {"libevent_core-2.1.so.7", "libevent-core-2.1-7"},
                                         {"libfoo.so", ""},
                                         {"foo", ""},
                                         {"", ""}}) {
    EXPECT_EQ(debian_package(library), package) << library;
  }
}

TEST(ModuleError, ReadsTheMissingLibraryFromTheLoadersWords) {
  EXPECT_EQ(missing_library("libmpi.so.40: cannot open shared object file: No such file or "
                            "directory"),
            "libmpi.so.40");
  EXPECT_EQ(missing_library("/x/y.so: undefined symbol: z"), "");
}

}  // namespace
}  // namespace pushpull

// What the file store does beyond the suite that every store passes (tests/stores).
#include "backends/rendezvous/file/file_store.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "backends/rendezvous/file/directory_lock.h"
#include "backends/rendezvous/limits.h"
#include "tests/support/process.h"
#include "tests/unit/net_helpers.h"

namespace pushpull::file_store {
namespace {

using namespace pushpull::testing;
namespace fs = std::filesystem;

Deadline soon() { return deadline_in(seconds(20)); }

Result<std::unique_ptr<Store>> open(const std::string& directory, const std::string& job = "job",
                                    Duration time_to_live = std::chrono::hours(1)) {
  StoreOptions options;
  options.url = "file://" + directory;
  options.job = job;
  options.time_to_live = time_to_live;
  return FileStoreFactory().open(options, soon());
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename());
  return names;
}

TEST(FileStore, MakesTheDirectoryForItsOwnerButNotItsParent) {
  const TemporaryDirectory home;
  const std::string directory = home.path() + "/job 42";
  auto store = open(home.path() + "/job%2042/");
  ASSERT_TRUE(store) << store.error().message();
  EXPECT_EQ((*store)->description(), "file://" + directory);
  EXPECT_TRUE((*store)->trusted());
  struct stat info = {};
  ASSERT_EQ(stat(directory.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  const auto lost = open(home.path() + "/missing/job42");
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code(), ErrorCode::kUnavailable);
  EXPECT_NE(lost.error().message().find("missing/job42"), std::string::npos);
}

TEST(FileStore, IsTrustedOnlyWhereNobodyElseGetsIn) {
  const TemporaryDirectory directory;
  auto store = open(directory.path());
  ASSERT_TRUE(store);
  EXPECT_TRUE((*store)->trusted());
  for (const mode_t mode : {0710, 0701, 0750, 0777}) {
    ASSERT_EQ(chmod(directory.path().c_str(), mode), 0);
    EXPECT_FALSE((*store)->trusted()) << mode;
  }
  ASSERT_EQ(chmod(directory.path().c_str(), 0700), 0);
  EXPECT_TRUE((*store)->trusted());
  ASSERT_TRUE((*store)->set("key", "value", soon()));
  for (const std::string& name : names_in(directory.path())) {
    struct stat info = {};
    ASSERT_EQ(stat((directory.path() + "/" + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 077, 0u) << name;
  }
}

TEST(FileStore, RefusesOtherUrls) {
  for (const std::string url : {"file://", "file://nfs/job42", "file:/tmp", "/tmp", "file:///tmp/%",
                                "file:///tmp/%zz", "file:///tmp/a%00b"}) {
    StoreOptions options;
    options.url = url;
    const auto store = FileStoreFactory().open(options, soon());
    ASSERT_FALSE(store) << url;
    EXPECT_EQ(store.error().code(), ErrorCode::kInvalidArgument) << url;
  }
  const TemporaryDirectory directory;
  std::ofstream(directory.path() + "/file") << "x";
  const auto store = open(directory.path() + "/file");
  ASSERT_FALSE(store);
  EXPECT_NE(store.error().message().find("not a directory"), std::string::npos);
}

TEST(FileStore, JobsDoNotMixAndLeaveNothing) {
  const TemporaryDirectory directory;
  {
    auto first = open(directory.path(), "first");
    auto second = open(directory.path(), "First");
    auto third = open(directory.path(), std::string(200, 'j'));
    ASSERT_TRUE(first && second && third);
    ASSERT_TRUE((*first)->set("key", "1", soon()));
    EXPECT_FALSE((*second)->get("key", soon()).value());
    ASSERT_TRUE((*second)->set("key", "2", soon()));
    ASSERT_TRUE((*third)->set(std::string(kMaxKeyBytes, 'k'), "3", soon()));
    EXPECT_EQ((*first)->get("key", soon()).value(), "1");
    EXPECT_EQ((*third)->get(std::string(kMaxKeyBytes, 'k'), soon()).value(), "3");
    EXPECT_FALSE((*third)->set(std::string(kMaxKeyBytes + 1, 'k'), "3", soon()));
    EXPECT_FALSE((*third)->get("", soon()));
    ASSERT_TRUE((*first)->remove_if("key", "1", soon()));
    ASSERT_TRUE((*second)->remove_if("key", "2", soon()));
    ASSERT_TRUE((*third)->remove_if(std::string(kMaxKeyBytes, 'k'), "3", soon()));
  }
  EXPECT_TRUE(names_in(directory.path()).empty());
}

TEST(FileStore, WhatIsTooOldIsIgnoredAndRemoved) {
  const TemporaryDirectory directory;
  auto store = open(directory.path(), "job", milliseconds(300));
  ASSERT_TRUE(store);
  ASSERT_TRUE((*store)->set("key", "old", soon()));
  EXPECT_EQ((*store)->get("key", soon()).value(), "old");
  EXPECT_TRUE(eventually([&] { return !(*store)->get("key", soon()).value(); }));
  EXPECT_EQ((*store)->set_if_absent("key", "new", soon()).value(), "new");
  EXPECT_TRUE(eventually([&] { return !(*store)->get("key", soon()).value(); }));
  EXPECT_EQ((*store)->add("key", 2, soon()).value(), 2);
  EXPECT_TRUE(eventually([&] { return !(*store)->get("key", soon()).value(); }));
  store->reset();
  // Whoever opens the job's store later takes away what has become too old.
  EXPECT_TRUE(eventually([&] {
    auto next = open(directory.path(), "job", milliseconds(300));
    if (next) next->reset();
    return names_in(directory.path()).empty();
  }));
}

TEST(FileStore, OldFilesOfOtherJobsGoAfterADay) {
  const TemporaryDirectory directory;
  for (const auto& [name, hours] : {std::pair("pushpull.other.key.a", 30),
                                    {"pushpull.other.key.b", 3},
                                    {"pushpull.other.tmp.x", 30},
                                    {"notes.txt", 300}}) {
    const fs::path path = directory.path() + "/" + name;
    std::ofstream(path) << "x";
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  }
  open(directory.path());
  auto names = names_in(directory.path());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"notes.txt", "pushpull.other.key.b"}));
}

TEST(FileStore, AProcessKilledWithTheLockDoesNotKeepIt) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/lock";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = DirectoryLock::take(path, never());
    (void)!write(ready[1], "x", 1);
    pause();
    _exit(lock ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const auto busy = DirectoryLock::take(path, deadline_in(milliseconds(100)));
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().code(), ErrorCode::kTimeout);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(DirectoryLock::take(path, soon()));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(FileStore, TheLockHoldsWhileItsFileIsRemovedAgainAndAgain) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/lock";
  std::atomic<int> inside = 0;
  std::atomic<int> collisions = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        const auto lock = DirectoryLock::take(path, soon());
        if (inside.fetch_add(1) != 0 || !lock) ++collisions;
        inside.fetch_sub(1);
        ::unlink(path.c_str());  // whoever comes next locks another file
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(collisions, 0);
}

TEST(FileStore, ProcessesShareIt) {
  const TemporaryDirectory directory;
  constexpr int kProcesses = 4;
  constexpr int kAdds = 50;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      auto store = open(directory.path());
      bool good = store.has_value();
      for (int i = 0; good && i < kAdds; ++i) good = (*store)->add("n", 1, soon()).has_value();
      if (good) store->reset();
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ((*open(directory.path()))->get("n", soon()).value(),
            std::to_string(kProcesses * kAdds));
}

TEST(FileStore, SaysWhatTheFileSystemSays) {
  if (geteuid() == 0) {
    // Root writes everywhere but here.
    const auto store = open("/proc");
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code(), ErrorCode::kUnavailable);
    EXPECT_NE(store.error().message().find("/proc"), std::string::npos);
    return;
  }
  const TemporaryDirectory directory;
  chmod(directory.path().c_str(), 0500);
  const auto store = open(directory.path());
  chmod(directory.path().c_str(), 0700);
  ASSERT_FALSE(store);
  EXPECT_NE(store.error().message().find("permission denied"), std::string::npos);
}

}  // namespace
}  // namespace pushpull::file_store

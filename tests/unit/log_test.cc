#include "core/log.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

// What `body` writes to stderr, through a pipe.
template <class Body>
std::string stderr_of(const Body& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const int saved = dup(STDERR_FILENO);
  std::string text;
  std::thread reader([&] {
    char buffer[4096];
    ssize_t got = 0;
    while ((got = read(ends[0], buffer, sizeof(buffer))) > 0) {
      text.append(buffer, static_cast<size_t>(got));
    }
  });
  dup2(ends[1], STDERR_FILENO);
  body();
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(ends[1]);
  reader.join();
  close(ends[0]);
  return text;
}

TEST(Log, LevelsByName) {
  EXPECT_EQ(parse_log_level("error"), LogLevel::kError);
  EXPECT_EQ(parse_log_level("Warning"), LogLevel::kWarning);
  EXPECT_EQ(parse_log_level("INFO"), LogLevel::kInfo);
  EXPECT_EQ(parse_log_level("debug"), LogLevel::kDebug);
  EXPECT_EQ(parse_log_level("loud"), LogLevel::kWarning);
  EXPECT_EQ(parse_log_level(""), LogLevel::kWarning);
}

TEST(Log, WritesWithPrefixAndLevel) {
  const auto logger = make_stderr_logger(LogLevel::kInfo, "pushpull rank 3");
  EXPECT_TRUE(logger->enabled(LogLevel::kInfo));
  EXPECT_FALSE(logger->enabled(LogLevel::kDebug));
  EXPECT_EQ(stderr_of([&] {
              logger->warning("rank 2 is late");
              logger->debug("not shown");
              logger->error("");
              logger->info("one\ntwo\n");
            }),
            "pushpull rank 3: warning: rank 2 is late\n"
            "pushpull rank 3: error: \n"
            "pushpull rank 3: info: one\n"
            "pushpull rank 3: info: two\n");
}

TEST(Log, DefusesControlCharacters) {
  const auto logger = make_stderr_logger(LogLevel::kInfo, "p");
  EXPECT_EQ(stderr_of([&] { logger->info("\x1b[31mhost\r\a\tä\x7f"); }),
            "p: info: ?[31mhost??\tä?\n");
}

TEST(Log, LinesOfManyThreadsStayWhole) {
  const auto logger = make_stderr_logger(LogLevel::kInfo, "p");
  const std::string text = stderr_of([&] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&logger, t] {
        for (int i = 0; i < 200; ++i) logger->info(std::string(100, static_cast<char>('a' + t)));
      });
    }
    for (auto& thread : threads) thread.join();
  });
  size_t lines = 0;
  for (size_t at = 0; at < text.size(); ++lines) {
    const size_t end = text.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    const std::string line = text.substr(at, end - at);
    ASSERT_EQ(line, "p: info: " + std::string(100, line.back()));
    at = end + 1;
  }
  EXPECT_EQ(lines, 1600u);
}

TEST(Log, AFullPipeThatNobodyReadsDoesNotHang) {
  const pid_t child = fork();
  if (child == 0) {
    int ends[2];
    if (pipe(ends) != 0) _exit(1);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    dup2(ends[1], STDERR_FILENO);
    const auto logger = make_stderr_logger(LogLevel::kInfo, "p");
    for (int i = 0; i < 20; ++i) logger->info(std::string(8000, 'x'));
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace pushpull

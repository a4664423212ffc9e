// simulator_test [--seed=N] [--count=N]: N simulations from this seed on (default 1, 1500). One
// that fails prints its seed; --seed=N --count=1 repeats it exactly.
#include <cstdlib>
#include <iostream>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/simulator/world.h"

namespace pushpull::simulator {
namespace {

struct Flags {
  uint64_t seed = 1;
  uint64_t count = 1500;
};
Flags flags;

std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += "\n  " + line;
  return text;
}

TEST(Simulator, EverySeedKeepsTheRules) {
  uint64_t done = 0;
  uint64_t failed = 0;
  uint64_t ended = 0;
  uint64_t batches = 0;
  for (uint64_t seed = flags.seed; seed < flags.seed + flags.count; ++seed) {
    const Scenario scenario = make_scenario(seed);
    World world(scenario);
    world.run();
    ASSERT_TRUE(world.complaints().empty()) << scenario.describe() << join_lines(world.complaints())
                                            << "\nrepeat with --seed=" << seed << " --count=1";
    done += world.referee().calls_done();
    failed += world.referee().calls_failed();
    ended += world.referee().aborted().has_value();
    batches += world.referee().batches();
  }
  std::cout << flags.count << " simulations: " << done << " calls done in " << batches
            << " batches, " << failed << " failed, " << ended << " groups ended by a verdict\n";
  // Fewer would mean that the stories are not told any more.
  if (flags.count >= 1000) {
    EXPECT_GT(done, flags.count);
    EXPECT_GT(failed, flags.count / 10);
    EXPECT_GT(ended, flags.count / 10);
  }
}

TEST(Simulator, TheSameSeedIsTheSameStory) {
  for (uint64_t seed = flags.seed; seed < flags.seed + 20; ++seed) {
    World first(make_scenario(seed));
    World second(make_scenario(seed));
    first.run();
    second.run();
    EXPECT_EQ(first.now(), second.now());
    EXPECT_EQ(first.referee().batches(), second.referee().batches());
  }
}

}  // namespace
}  // namespace pushpull::simulator

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const auto number = [&](std::string_view name, uint64_t* value) {
      if (arg.substr(0, name.size()) != name) return false;
      *value = std::strtoull(argv[i] + name.size(), nullptr, 10);
      return true;
    };
    if (!number("--seed=", &pushpull::simulator::flags.seed) &&
        !number("--count=", &pushpull::simulator::flags.count)) {
      std::cerr << "unknown argument " << arg << "; known are --seed=N and --count=N\n";
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}

#include "core/config.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/process.h"

namespace pushpull {
namespace {

using namespace std::chrono_literals;
using Variables = std::map<std::string, std::string>;

Config::Environment environment(Variables variables = {}) {
  return [variables](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

// A file that is removed again.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) : name_(folder_.path() + "/job.yaml") {
    std::ofstream(name_, std::ios::binary) << content;
  }
  const std::string& name() const { return name_; }

 private:
  const testing::TemporaryDirectory folder_;
  const std::string name_;
};

Result<Config> load_yaml(const std::string& content) {
  const TemporaryFile file(content);
  return Config::load({}, environment(), file.name());
}

// The error of a file, without the file's name in front: "2:5: unknown key …".
std::string yaml_error(const std::string& content) {
  const TemporaryFile file(content);
  const auto config = Config::load({}, environment(), file.name());
  if (config) return "no error";
  const std::string& message = config.error().message();
  EXPECT_EQ(message.substr(0, file.name().size() + 1), file.name() + ":");
  EXPECT_EQ(config.error().code(), ErrorCode::kInvalidArgument);
  return message.substr(file.name().size() + 1);
}

TEST(Config, DefaultsAreThoseOfSettings) {
  const auto config = Config::load({}, environment());
  ASSERT_TRUE(config) << config.error().message();
  const auto settings = config->settings();
  ASSERT_TRUE(settings);
  const Settings defaults;
  EXPECT_EQ(settings->backend, defaults.backend);
  EXPECT_EQ(settings->job, defaults.job);
  EXPECT_EQ(settings->rank, defaults.rank);
  EXPECT_EQ(settings->size, defaults.size);
  EXPECT_EQ(settings->local_rank, defaults.local_rank);
  EXPECT_EQ(settings->rendezvous, defaults.rendezvous);
  EXPECT_EQ(settings->rendezvous_timeout, defaults.rendezvous_timeout);
  EXPECT_EQ(settings->log, defaults.log);
  EXPECT_EQ(settings->heartbeat_timeout, defaults.heartbeat_timeout);
  EXPECT_EQ(settings->stall_warning, defaults.stall_warning);
  EXPECT_EQ(settings->stall_timeout, defaults.stall_timeout);
  EXPECT_EQ(settings->leave_timeout, defaults.leave_timeout);
  EXPECT_EQ(settings->fusion_bytes, defaults.fusion_bytes);
  EXPECT_EQ(settings->chunk_bytes, defaults.chunk_bytes);
  EXPECT_EQ(settings->shm_chunk_bytes, defaults.shm_chunk_bytes);
  EXPECT_EQ(settings->local, defaults.local);
  EXPECT_EQ(settings->exchange, defaults.exchange);
}

TEST(Config, EveryDefaultIsValidAndEveryKeyHasHelp) {
  for (const ConfigKey& key : config_schema()) {
    EXPECT_FALSE(key.help.empty()) << key.path;
    if (key.type == ConfigType::kStringMap || key.default_text.empty()) continue;
    const auto config =
        Config::load({{std::string(key.path), std::string(key.default_text)}}, environment());
    EXPECT_TRUE(config) << key.path << ": " << config.error().message();
  }
}

TEST(Config, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  const TemporaryFile file("job: from-file\nbackend: mpi\nworkers: 3\n");
  const auto config = Config::load(
      {{"backend", "gloo-redis"}},
      environment({{"MXNET_KVSTORE_BACKEND", "gloo"}, {"PUSHPULL_SIZE", "5"}}), file.name());
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->text("backend"), "gloo-redis");
  EXPECT_EQ(config->value("backend").origin, "flag --backend");
  EXPECT_EQ(config->integer("workers"), 5);
  EXPECT_EQ(config->value("workers").origin, "environment PUSHPULL_SIZE");
  EXPECT_EQ(config->text("job"), "from-file");
  EXPECT_EQ(config->value("job").origin, file.name() + ":1");
  EXPECT_EQ(config->value("log").origin, "default");
}

TEST(Config, FileIsFoundThroughTheEnvironment) {
  const TemporaryFile file("launch:\n  restarts: 2\n");
  const auto config = Config::load({}, environment({{"PUSHPULL_CONFIG", file.name()}}));
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->integer("launch.restarts"), 2);
}

TEST(Config, EmptyVariablesCountAsNotSet) {
  const auto config = Config::load(
      {}, environment({{"PUSHPULL_RANK", ""}, {"PUSHPULL_CONFIG", ""}, {"PUSHPULL_PORTS", ""}}));
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->value("rank").origin, "default");
}

TEST(Config, VariablesThatKubernetesInjectsDoNotMatter) {
  const auto config =
      Config::load({}, environment({{"PUSHPULL_PORT", "tcp://10.0.0.1:29500"},
                                    {"PUSHPULL_SERVICE_HOST", "10.0.0.1"},
                                    {"PUSHPULL_PORT_29500_TCP", "tcp://10.0.0.1:29500"},
                                    {"REDIS_PORT", "tcp://10.0.0.2:6379"},
                                    {"PUSHPULL_REDIS_PORT", "tcp://10.0.0.2:6379"},
                                    {"PUSHPULL_RENDEZVOUS_PORT", "tcp://10.0.0.2:6379"}}));
  ASSERT_TRUE(config) << config.error().message();
  for (const ConfigKey& key : config_schema()) EXPECT_TRUE(config->is_default(key.path));
}

TEST(Config, BackendNamesAreNormalised) {
  const auto config = Config::load({{"backend", "Gloo_Redis"}}, environment());
  ASSERT_TRUE(config);
  EXPECT_EQ(config->settings()->backend, "gloo-redis");
}

TEST(Config, ErrorsNameFlagOrVariable) {
  const auto flag = Config::load({{"rendezvous.timeout", "soon"}}, environment());
  ASSERT_FALSE(flag);
  EXPECT_EQ(
      flag.error().message(),
      "flag --rendezvous-timeout: 'soon' is not a duration; write it like 60s, 200ms, 2m or 1h");
  const auto variable = Config::load({}, environment({{"PUSHPULL_SIZE", "65537"}}));
  ASSERT_FALSE(variable);
  EXPECT_EQ(variable.error().message(),
            "environment variable PUSHPULL_SIZE: 65537 is not between 1 and 65536");
  const auto unknown = Config::load({{"rendevous.url", "tcp://a:1"}}, environment());
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message(),
            "unknown setting 'rendevous.url'; did you mean 'rendezvous.url'?");
}

struct WrongYaml {
  const char* content;
  const char* error;
};
class ConfigWrongYaml : public ::testing::TestWithParam<WrongYaml> {};

TEST_P(ConfigWrongYaml, IsNamedWithLineAndColumn) {
  EXPECT_EQ(yaml_error(GetParam().content), GetParam().error);
}

INSTANTIATE_TEST_SUITE_P(
    All, ConfigWrongYaml,
    ::testing::Values(
        WrongYaml{"job: a\nbackand: gloo\n", "2:1: unknown key 'backand'; did you mean 'backend'?"},
        WrongYaml{"rendezvous:\n  uri: tcp://a:1\n",
                  "2:3: unknown key 'rendezvous.uri'; did you mean 'rendezvous.url'?"},
        WrongYaml{"restarts: 2\n", "1:1: unknown key 'restarts'; did you mean 'launch.restarts'?"},
        WrongYaml{"tuning:\n  speed: 9\n",
                  "2:3: unknown key 'tuning.speed'; known here are fusion_bytes, chunk_bytes, "
                  "shm_chunk_bytes"},
        WrongYaml{"job: a\njob: b\n", "2:1: 'job' appears twice"},
        WrongYaml{"launch:\n  restarts: 2\n  restarts: 2\n",
                  "3:3: 'launch.restarts' appears twice"},
        WrongYaml{"launch:\n  env:\n    A: '1'\n    A: '2'\n", "4:5: 'launch.env.A' appears twice"},
        WrongYaml{"tuning:\n\tchunk_bytes: 2KiB\n", "2:1: a tab indents; YAML wants spaces"},
        WrongYaml{
            "redis:\n  start: on\n",
            "2:10: 'on' for 'redis.start' is a truth value to some readers of YAML and a text "
            "to others; write true or false"},
        WrongYaml{"redis:\n  start: 'true'\n",
                  "2:10: 'redis.start' is a text here; write true or false without quotes"},
        WrongYaml{"redis:\n  start: 1\n", "2:10: redis.start: '1' is neither true nor false"},
        WrongYaml{"job: no\n",
                  "1:6: 'no' for 'job' is a truth value to some readers of YAML and a text to "
                  "others; write \"no\""},
        WrongYaml{
            "job: 08\n",
            "1:6: '08' for 'job' is octal to some readers of YAML and decimal to others; write "
            "\"08\""},
        WrongYaml{
            "workers: 08\n",
            "1:10: '08' for 'workers' is octal to some readers of YAML and decimal to others; "
            "write it plainly"},
        WrongYaml{"job: 1:30\n",
                  "1:6: '1:30' for 'job' is a number in base 60 to some readers of YAML; write "
                  "\"1:30\""},
        WrongYaml{
            "launch:\n  env:\n    FLAG: yes\n",
            "3:11: 'yes' for 'launch.env.FLAG' is a truth value to some readers of YAML and a "
            "text to others; write \"yes\""},
        WrongYaml{"workers: two\n", "1:10: workers: 'two' is not a whole number"},
        WrongYaml{"workers: -1\n", "1:10: workers: '-1' is not a whole number"},
        WrongYaml{"workers: 2.0\n", "1:10: workers: '2.0' is not a whole number"},
        WrongYaml{"workers: 0\n", "1:10: workers: 0 is not between 1 and 65536"},
        WrongYaml{"workers: 99999999999999999999\n",
                  "1:10: workers: '99999999999999999999' is too large"},
        WrongYaml{"workers: [2]\n", "1:10: 'workers' takes a single value"},
        WrongYaml{"workers:\n", "1:1: 'workers' has no value"},
        WrongYaml{"log: verbose\n",
                  "1:6: log: 'verbose' is not one of error, warning, info, debug"},
        WrongYaml{"log: warn\n",
                  "1:6: log: 'warn' is not one of error, warning, info, debug; did you mean "
                  "'warning'?"},
        WrongYaml{"ports: 30100-30000\n",
                  "1:8: ports: '30100-30000' is not a port or a range of ports; write it like "
                  "30000-30100"},
        WrongYaml{
            "tuning:\n  fusion_bytes: 4 apples\n",
            "2:17: tuning.fusion_bytes: '4 apples' is not a size; write it like 4MiB, 64KiB or "
            "1GB"},
        WrongYaml{"tuning:\n  chunk_bytes: 1\n",
                  "2:16: tuning.chunk_bytes: 1 is not between 1KiB and 1GiB"},
        WrongYaml{"rendezvous: tcp://a:1\n",
                  "1:13: 'rendezvous' is a section; it takes url, timeout"},
        WrongYaml{"rendezvous:\n  url: localhost:29500\n",
                  "2:8: rendezvous.url: 'localhost:29500' is not a URL; write it like "
                  "tcp://host:port, file:///folder or redis://host:port/db"},
        WrongYaml{
            "rendezvous:\n  url: redis://me:hush@h/0\n",
            "2:8: rendezvous.url: a password belongs neither on a command line nor in a shared "
            "file; use redis.password_file, or PUSHPULL_REDIS_PASSWORD in the environment"},
        WrongYaml{
            "secret: hush\n",
            "1:1: 'secret' does not belong in a file that others may read; use secret_file or "
            "PUSHPULL_SECRET in the environment"},
        WrongYaml{"rank: 0\n",
                  "1:1: 'rank' differs from process to process; it is set by PUSHPULL_RANK in the "
                  "environment"},
        WrongYaml{"launch:\n  env: [A]\n", "2:8: 'launch.env' takes 'NAME: value' lines"},
        WrongYaml{"launch:\n  env:\n    A: [1]\n",
                  "3:8: 'launch.env.A' takes a single value; write '' for an empty one"},
        WrongYaml{"launch:\n  env:\n    'A=B': x\n", "3:5: 'A=B' cannot be a name in launch.env"},
        WrongYaml{"- job\n", "1:1: expected 'key: value' lines"},
        WrongYaml{"job: a\n---\njob: b\n",
                  "2:1: a second document begins; one file describes one job"},
        WrongYaml{"# b\n, job: a\n", "2:1: ',' does not belong here"},
        WrongYaml{"job: a\n]\n", "2:1: illegal flow end"},
        WrongYaml{"{job: a}, b\n", "1:9: ',' does not belong here"},
        WrongYaml{"? [a]\n: b\n", "1:3: a key must be a plain name"},
        WrongYaml{"job: 'open\n", "2:1: a quote that was opened above is not closed"},
        WrongYaml{"job: \"a\\0b\"\n", "1:6: 'job' holds a zero byte"}));

TEST(Config, FilesThatCannotBeRead) {
  const auto missing = Config::load({}, environment(), "/nonexistent/job.yaml");
  ASSERT_FALSE(missing);
  EXPECT_EQ(
      missing.error().message(),
      "the configuration file '/nonexistent/job.yaml' cannot be read: No such file or directory");
  const auto folder = Config::load({}, environment(), "/tmp");
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().message(), "the configuration file '/tmp' is a folder");
  const auto huge = load_yaml("job: " + std::string(2 << 20, 'x'));
  ASSERT_FALSE(huge);
  EXPECT_NE(huge.error().message().find("larger than 1 MiB"), std::string::npos);
}

TEST(Config, EmptyFilesAndSectionsAreFine) {
  EXPECT_TRUE(load_yaml(""));
  EXPECT_TRUE(load_yaml("# nothing\n"));
  EXPECT_TRUE(load_yaml("tuning:\n  # chunk_bytes: 2KiB\n"));
}

TEST(Config, QuotedAndTrickyTextsPass) {
  const auto config = load_yaml(
      "job: \"no\"\nlaunch:\n  env:\n    A: 'say \"hi\"'\n    B: \"two\\nlines\"\n    C: ''\n"
      "    D.E: '08'\n    F: 3\n");
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->text("job"), "no");
  const std::map<std::string, std::string> expected = {
      {"A", "say \"hi\""}, {"B", "two\nlines"}, {"C", ""}, {"D.E", "08"}, {"F", "3"}};
  EXPECT_EQ(config->map("launch.env"), expected);
}

TEST(Config, SecretsComeFromFilesAndAreNeverShown) {
  const TemporaryFile secret("hush-hush\n");
  const auto config =
      Config::load({}, environment({{"PUSHPULL_SECRET_FILE", secret.name()},
                                    {"PUSHPULL_REDIS_PASSWORD", "pa%ss"},
                                    {"PUSHPULL_RENDEZVOUS", "redis://us%40er:other@host:6379/0"}}));
  ASSERT_TRUE(config) << config.error().message();
  const auto settings = config->settings();
  ASSERT_TRUE(settings) << settings.error().message();
  EXPECT_EQ(settings->secret, "hush-hush");
  EXPECT_EQ(settings->redis_user, "us@er");
  EXPECT_EQ(settings->redis_password, "pa%ss");
  EXPECT_EQ(settings->rendezvous, "redis://host:6379/0");
  EXPECT_EQ(config->shown("redis.password"), "***");
  EXPECT_EQ(config->shown("rendezvous.url"), "redis://us%40er:***@host:6379/0");
}

TEST(Config, SecretFilesThatAreNoUse) {
  const TemporaryFile empty("\n");
  for (const auto& [file, why] :
       Variables{{empty.name(), "is empty"}, {"/nonexistent/secret", "cannot be read"}}) {
    const auto config = Config::load({}, environment({{"PUSHPULL_SECRET_FILE", file}}));
    ASSERT_TRUE(config);
    const auto settings = config->settings();
    ASSERT_FALSE(settings);
    EXPECT_NE(settings.error().message().find(why), std::string::npos)
        << settings.error().message();
  }
}

TEST(Config, PasswordInAUrlIsRefusedOnTheCommandLine) {
  const auto config =
      Config::load({{"rendezvous.url", "redis://me:hush@host:6379/0"}}, environment());
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message().find("hush"), std::string::npos) << config.error().message();
}

TEST(ConfigText, Durations) {
  EXPECT_EQ(parse_duration("60s").value(), 60s);
  EXPECT_EQ(parse_duration("1.5s").value(), 1500ms);
  EXPECT_EQ(parse_duration("200ms").value(), 200ms);
  EXPECT_EQ(parse_duration("2m").value(), 2min);
  EXPECT_EQ(parse_duration("1h").value(), 1h);
  EXPECT_EQ(parse_duration("7").value(), 7s);
  EXPECT_EQ(parse_duration("0").value(), 0s);
  for (const char* wrong : {"", "s", "-1s", "1 s", "1e3", "inf", "nan", "1.2.3s", "0x10", "60S",
                            "5 minutes", "99999999999999999999d", ".5s"}) {
    EXPECT_FALSE(parse_duration(wrong)) << wrong;
  }
}

TEST(ConfigText, Bytes) {
  EXPECT_EQ(parse_bytes("0").value(), 0u);
  EXPECT_EQ(parse_bytes("17").value(), 17u);
  EXPECT_EQ(parse_bytes("64k").value(), 64u << 10);
  EXPECT_EQ(parse_bytes("4MiB").value(), 4u << 20);
  EXPECT_EQ(parse_bytes("1GB").value(), 1'000'000'000u);
  EXPECT_EQ(parse_bytes("1.5KB").value(), 1500u);
  EXPECT_EQ(parse_bytes("3g").value(), size_t{3} << 30);
  for (const char* wrong : {"", "MiB", "-1", "1 MiB", "1x", "1MiBs", "99999999999t"}) {
    EXPECT_FALSE(parse_bytes(wrong)) << wrong;
  }
}

TEST(ConfigText, Integers) {
  EXPECT_EQ(parse_integer("0").value(), 0);
  EXPECT_EQ(parse_integer("9223372036854775807").value(), INT64_MAX);
  for (const char* wrong :
       {"", "-1", "+1", " 1", "1 ", "01", "1.0", "0x1", "9223372036854775808"}) {
    EXPECT_FALSE(parse_integer(wrong)) << wrong;
  }
}

TEST(ConfigText, NearestName) {
  const std::vector<std::string> known = {"gloo", "gloo-redis", "mpi"};
  EXPECT_EQ(nearest_name("glo", known), "gloo");
  EXPECT_EQ(nearest_name("GLOO", known), "gloo");
  EXPECT_EQ(nearest_name("gloo-reddis", known), "gloo-redis");
  EXPECT_EQ(nearest_name("infiniband", known), "");
  EXPECT_EQ(nearest_name("x", {}), "");
}

}  // namespace
}  // namespace pushpull

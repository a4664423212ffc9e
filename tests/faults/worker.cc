// A rank of a job that will be injured: faults_worker [NAME=VALUE]…
//
// Sums and broadcasts checked values until a call fails or `steps` are made, and says what happens
// as one JSON object per line in FAULTS_EVENTS/<pid>.jsonl. Times are CLOCK_MONOTONIC, in seconds.
//   start         before the store is created
//   created       the store is there
//   create_failed with the error
//   step          every step that all calls of were right
//   wrong         a call succeeded with a wrong value
//   error         with the culprit and how many of the step's calls failed; all have ended
//   late_write    memory changed after the calls that used it had ended
//   hang          a call has not ended within two minutes
//   closed        how long close() took
// Rank late_rank does not join before there is a file FAULTS_EVENTS/go.
// SIGUSR1 ends the process at once with code 0; SIGTERM makes it leave in good order after its
// step.
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/config.h"
#include "core/create_store.h"
#include "core/environment.h"
#include "core/kvstore.h"

namespace pushpull {
namespace {

using nlohmann::json;

constexpr auto kHang = std::chrono::minutes(2);  // beyond what a rank may compute
constexpr int kRestart = 75;

volatile sig_atomic_t leave_asked = 0;

double now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

class Events {
 public:
  Events() {
    const std::string path = fmt::format("{}/{}.jsonl", folder_, ::getpid());
    fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  }
  void say(const char* event, json more = json::object()) const {
    more["event"] = event;
    more["rank"] = rank;
    more["pid"] = ::getpid();
    more["at"] = now();
    const std::string line = more.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    if (::write(fd_, line.data(), line.size()) < 0) std::abort();
  }
  // Until the runner says so, by a file beside the events; not for ever.
  void wait_for_go() const {
    for (int i = 0; i < 12'000 && ::access((folder_ + "/go").c_str(), F_OK) != 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  int rank = -1;

 private:
  const std::string folder_ = environment_variable("FAULTS_EVENTS").value_or(".");
  int fd_;
};

json describe(const Error& error) {
  return {{"code", to_string(error.code())},
          {"culprit", error.rank()},
          {"message", error.message()},
          {"restartable", error.restartable()}};
}

// NAME=VALUE arguments, all whole numbers.
class Options {
 public:
  Options(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const size_t equals = word.find('=');
      if (equals != std::string::npos)
        values_[word.substr(0, equals)] = std::strtoll(word.c_str() + equals + 1, nullptr, 10);
    }
  }
  int64_t get(const std::string& name, int64_t otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }

 private:
  std::map<std::string, int64_t> values_;
};

void sleep_ms(int64_t milliseconds) {
  if (milliseconds > 0) std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// Children that outlive nothing but inherit everything, as a DataLoader's workers do.
void fork_children(int64_t count) {
  const pid_t parent = ::getpid();
  for (int64_t i = 0; i < count; ++i) {
    if (::fork() != 0) continue;
    signal(SIGUSR1, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    // Where the parent is killed they stay, for a while.
    for (int second = 0; second < 100; ++second) {
      if (::getppid() != parent && second > 20) break;
      sleep(1);
    }
    _exit(0);
  }
}

// A key whose values tell rank, step and place apart; small whole numbers, so that sums are exact.
struct Key {
  std::string name;
  DType dtype;
  size_t count;
  int salt;
  std::vector<int32_t> ints;
  std::vector<float> floats;

  Tensor tensor() {
    void* data = dtype == DType::kInt32 ? static_cast<void*>(ints.data()) : floats.data();
    return {data, dtype, {static_cast<int64_t>(count)}};
  }
  int32_t value(size_t i, int64_t step) const {
    return static_cast<int32_t>((i + static_cast<size_t>(salt) + static_cast<size_t>(step) * 13) %
                                17) +
           1;
  }
  template <class F>
  void each(F&& f) {
    for (size_t i = 0; i < count; ++i) {
      if (dtype == DType::kInt32)
        f(i, ints[i]);
      else
        f(i, floats[i]);
    }
  }
  void fill(int64_t step, int factor) {
    each([&](size_t i, auto& x) {
      x = static_cast<std::remove_reference_t<decltype(x)>>(value(i, step) * factor);
    });
  }
  // The first place that does not hold factor times its value; count where all do.
  size_t first_wrong(int64_t step, int factor) {
    size_t wrong = count;
    each([&](size_t i, auto& x) {
      if (wrong == count && static_cast<double>(x) != static_cast<double>(value(i, step)) * factor)
        wrong = i;
    });
    return wrong;
  }
};

std::vector<Key> make_keys(const Options& options) {
  std::mt19937 random(static_cast<unsigned>(options.get("seed", 1)));
  const auto most = static_cast<size_t>(options.get("bytes", 1 << 20)) / 4;
  std::vector<Key> keys;
  for (int64_t k = 0; k < options.get("keys", 12); ++k) {
    Key key;
    key.name = fmt::format("layer{}", k);
    key.dtype = random() % 4 == 0 ? DType::kInt32 : DType::kFloat32;
    key.count = k == 0 ? most : k == 1 ? 0 : k == 2 ? 1 : random() % (most / 4 + 1);
    key.salt = static_cast<int>(random() % 1000);
    (key.dtype == DType::kInt32 ? key.ints.resize(key.count) : key.floats.resize(key.count));
    keys.push_back(std::move(key));
  }
  return keys;
}

class Training {
 public:
  Training(KVStore& kv, const Events& events, const Options& options)
      : kv_(kv),
        events_(events),
        options_(options),
        keys_(make_keys(options)),
        value_{"value", DType::kFloat32, 1000, 7, {}, std::vector<float>(1000)},
        order_(static_cast<unsigned>(options.get("seed", 1) * 1000 + kv.rank())) {}

  // The exit code.
  int run() {
    const int64_t steps = options_.get("steps", 1'000'000'000);
    for (int64_t step = 0; step < steps && !leave_asked; ++step) {
      pause(step);
      if (!make(step)) return closed(kRestart);
      if (step < 3 || step % 50 == 0) events_.say("step", {{"step", step}});
    }
    return closed(0);
  }

 private:
  bool chosen(const char* who) const { return options_.get(who, -1) == kv_.rank(); }

  void pause(int64_t step) {
    std::this_thread::sleep_for(std::chrono::microseconds(options_.get("pause_us", 0)));
    if (step != options_.get("at_step", 3) || !chosen("compute_rank")) return;
    // As a rank that computes does: no call, no sleep.
    const double end = now() + static_cast<double>(options_.get("compute_ms", 0)) / 1e3;
    while (now() < end) {
    }
  }

  // The missing rank never calls for one key again, though it goes on with the others.
  bool left_out(const Key& key, int64_t step) const {
    return key.name == "layer3" && step >= options_.get("at_step", 3) && chosen("missing_rank");
  }

  // Whether every call of the step succeeded.
  bool make(int64_t step) {
    std::vector<Work> works;
    std::shuffle(keys_.begin(), keys_.end(), order_);
    for (Key& key : keys_) {
      if (left_out(key, step)) continue;
      key.fill(step, kv_.rank() + 1);
      const Tensor t = key.tensor();
      works.push_back(
          kv_.pushpull(key.name, {&t, 1}, {&t, 1}, {.priority = static_cast<int>(order_() % 5)}));
    }
    const int root = static_cast<int>(step % kv_.num_workers());
    value_.fill(step, kv_.rank() + 1);
    const Tensor value = value_.tensor();
    works.push_back(kv_.broadcast(value_.name, value, {&value, 1}, root));
    if (step % 8 == 7) works.push_back(kv_.barrier());
    if (!wait(works, step)) return false;
    const int n = kv_.num_workers();
    check(value_, step, root + 1);
    for (Key& key : keys_)
      if (!left_out(key, step)) check(key, step, n * (n + 1) / 2);
    return true;
  }

  void check(Key& key, int64_t step, int factor) {
    const size_t wrong = key.first_wrong(step, factor);
    if (wrong < key.count)
      events_.say("wrong",
                  {{"key", key.name}, {"step", step}, {"place", wrong}, {"of", key.count}});
  }

  bool wait(std::vector<Work>& works, int64_t step) {
    std::optional<Error> first;
    double noticed = 0;
    std::map<std::string, int> messages;
    for (Work& work : works) {
      const auto result = work.wait(deadline_in(kHang));
      if (!work.done()) {
        events_.say("hang", {{"step", step}, {"dump", kv_.dump()}});
        _exit(1);
      }
      if (result) continue;
      if (!first) {
        first = result.error();
        noticed = now();
      }
      ++messages[result.error().message()];
    }
    if (!first) return true;
    json said = describe(*first);
    said["step"] = step;
    said["first_at"] = noticed;
    said["messages"] = messages;
    const auto failure = kv_.failure();
    said["group"] = failure ? failure->message() : "";
    said["again"] = call_again();
    events_.say("error", std::move(said));
    look_for_late_writes();
    return false;
  }

  // What later calls say.
  std::vector<std::string> call_again() {
    std::vector<std::string> said;
    if (!kv_.failure()) return said;  // the group lives on
    const Tensor t = value_.tensor();
    const auto note = [&](Work work) {
      const auto result = work.wait(deadline_in(kHang));
      said.push_back(result ? "success" : result.error().message());
    };
    note(kv_.pushpull("again", {&t, 1}, {&t, 1}));
    note(kv_.broadcast("again", t, {&t, 1}, 0));
    note(kv_.barrier());
    return said;
  }

  void look_for_late_writes() {
    constexpr int kOurs = 12345;
    for (Key& key : keys_) key.each([&](size_t, auto& x) { x = kOurs; });
    sleep_ms(20);
    for (Key& key : keys_) {
      bool changed = false;
      key.each([&](size_t, auto& x) { changed |= x != kOurs; });
      if (changed) events_.say("late_write", {{"key", key.name}});
    }
  }

  int closed(int code) {
    const double start = now();
    const auto result = kv_.close();
    events_.say("closed",
                {{"took", now() - start}, {"said", result ? "" : result.error().message()}});
    return code;
  }

  KVStore& kv_;
  const Events& events_;
  const Options& options_;
  std::vector<Key> keys_;
  Key value_;
  std::mt19937 order_;
};

int run(const Options& options) {
  Events events;
  fork_children(options.get("early_children", 0));
  auto config = Config::load({}, environment_variable);
  if (!config) return events.say("create_failed", describe(config.error())), 2;
  auto settings = config->settings();
  if (!settings) return events.say("create_failed", describe(settings.error())), 2;
  if (settings->rank >= 0)
    events.rank = settings->rank;
  else if (auto starter = detect_starter(environment_variable))
    events.rank = starter->rank.value_or(-1);
  events.say("start");
  sleep_ms(options.get("delay_ms", 0));
  if (options.get("late_rank", -1) == events.rank) events.wait_for_go();
  Registry registry(settings->module_path);
  const double start = now();
  auto store = create_store(*settings, registry, environment_variable);
  if (!store) {
    events.say("create_failed", describe(store.error()));
    return store.error().restartable() ? kRestart : 1;
  }
  events.rank = (*store)->rank();
  const double took = now() - start;
  if (options.get("children", 0) > 0) {
    // Rank 0 tidies up the rendezvous meanwhile, which is nobody's connection any more.
    sleep_ms(200);
    fork_children(options.get("children", 0));
  }
  events.say("created", {{"took", took}});
  return Training(**store, events, options).run();
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  signal(SIGUSR1, [](int) { _exit(0); });
  signal(SIGTERM, [](int) { pushpull::leave_asked = 1; });
  return pushpull::run(pushpull::Options(argc, argv));
}

// A rank: runs its program, announces calls, executes batches, obeys the coordinator.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulator/referee.h"
#include "tests/simulator/scenario.h"

namespace pushpull::simulator {

class World;

class Client {
 public:
  Client(World& world, int rank);

  void on_message(const ToRank& message);
  void exchanged(uint64_t batch);  // the data plane is done with it

  int rank() const { return rank_; }
  bool alive() const { return !dead_; }
  // It has left, died, or knows that the group is over.
  bool over() const { return dead_ || closed_ || aborted_.has_value(); }
  bool said_goodbye() const { return leaving_; }
  bool farewelled() const { return farewelled_; }
  bool finished_program() const { return leaving_ && !left_early_; }
  bool injured_the_group() const { return injured_ && !leaving_when_injured_; }
  bool in_batch() const { return running_.has_value(); }
  const std::optional<Aborted>& aborted() const { return aborted_; }
  std::string waiting_for() const;
  // The data plane noticed that somebody is gone.
  void notice(int suspect);

  struct CallEnd {
    bool done = false;
    ErrorCode code = ErrorCode::kMismatch;
    std::string message;
    friend bool operator==(const CallEnd&, const CallEnd&) = default;
  };
  using Ends = std::map<std::pair<KindAndKey, uint64_t>, CallEnd>;
  const Ends& ends() const { return ends_; }
  // The batches it was told, as text.
  const std::vector<std::string>& batches() const { return batches_; }
  // How the program's last step ended; nullopt where this rank did not make it.
  std::optional<bool> last_step_done() const;

 private:
  struct LiveOp {
    Op op;
    std::optional<Twist> twist;
    uint64_t number = 0;  // 0: not reserved yet
    bool made = false;
    bool ended = false;
    bool failed = false;
    uint64_t begin = 0;  // pieces so far
  };
  struct Step {
    std::vector<std::unique_ptr<LiveOp>> ops;
    bool all_made() const;
    bool all_ended() const;
  };

  void on(const Welcome&);
  void on(const Ready&);
  void on(const Name& name);
  void on(const Batch& batch);
  void on(const Failed& failed);
  void on(const Warning&) {}
  void on(const Aborted& aborted);
  void on(const Farewell&);
  void on(const CoordinatorHeartbeat&) {}
  void on(const Explanation&) {}
  void on(const Hosts&) {}
  void on(const StandIn& stand_in);

  void beat();
  void injure(Injury injury);
  void send_garbage();
  void begin_step();
  bool comes_late() const;
  bool skips_step() const;
  bool must_wait_for_join() const;
  void make(LiveOp& op);
  void announce(const LiveOp& op);
  void flush();
  void go_on();
  bool everything_ended() const;
  void say_goodbye();
  void start_next_batch();
  bool passes_over(const KindAndKey& series, const Failed& failed) const;
  void end_call(const KindAndKey& series, uint64_t number, CallEnd end);
  uint32_t define(const Op& op);
  bool quiet() const { return over() || leaving_; }

  World& world_;
  const int rank_;
  bool dead_ = false;
  bool stopped_exchanging_ = false;
  bool injured_ = false;
  bool leaving_when_injured_ = false;
  bool leaving_ = false;
  bool left_early_ = false;
  bool farewelled_ = false;
  bool closed_ = false;
  std::optional<Aborted> aborted_;

  std::deque<Step> steps_;  // begun
  std::vector<std::unique_ptr<LiveOp>> stand_ins_;
  size_t ops_begun_ = 0;   // of the program, in its order
  bool sleeping_ = false;  // late for the next step
  bool slept_ = false;
  std::map<KindAndKey, uint64_t> made_;  // calls reserved or counted as made
  std::map<KindAndKey, Clock::time_point> last_make_;
  std::map<std::pair<KindAndKey, uint64_t>, LiveOp*> live_;
  Ends ends_;
  std::vector<std::pair<KindAndKey, Signature>> defined_;
  Announce outbox_;
  bool flush_scheduled_ = false;

  std::map<uint32_t, KindAndKey> names_;
  std::vector<std::string> batches_;
  std::deque<Batch> queue_;
  std::optional<Batch> running_;
};

}  // namespace pushpull::simulator

// The simulated world: virtual time, a network with delays, a data plane that takes time, one real
// Coordinator, and a client per rank.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "tests/simulator/random.h"
#include "tests/simulator/referee.h"
#include "tests/simulator/scenario.h"

namespace pushpull::simulator {

class Client;

class World : public Coordinator::Output {
 public:
  explicit World(const Scenario& scenario);
  ~World() override;

  // Until every rank has left, died or been told that the group is over.
  void run();
  const std::vector<std::string>& complaints() const { return complaints_; }
  const Referee& referee() const { return *referee_; }

  // ---- the coordinator's answers ----
  void send(int rank, const ToRank& message) override;
  void send_all(const ToRank& message) override;

  // ---- for clients ----
  const Scenario& scenario() const { return scenario_; }
  Random& random() { return random_; }
  Clock::time_point now() const { return now_; }
  void after(Duration delay, std::function<void()> what);
  Duration random_delay(int max_us) { return Microseconds(random_.below(max_us) + 1); }
  void complain(std::string what);

  void send_to_coordinator(int rank, const FromRank& message);
  // The rank's end of its connection closes; `abruptly`: what is under way may be lost.
  void close_connection(int rank, bool abruptly);
  // The rank's data thread enters a batch. World calls Client::exchanged when the exchange is done.
  void enter_batch(int rank, uint64_t number);
  // Batches that this rank is in cannot end any more; others may notice.
  void leave_data_plane(int rank, bool noticed);

 private:
  struct Event {
    Clock::time_point when;
    uint64_t order;
    std::function<void()> what;
    friend bool operator<(const Event& a, const Event& b) {  // the earliest on top
      return a.when != b.when ? a.when > b.when : a.order > b.order;
    }
  };
  // One rank's connection. The coordinator reads inbox in order, whenever it is not stopped.
  struct Link {
    Clock::time_point up{};
    Clock::time_point down{};
    std::deque<std::function<void()>> inbox;
    bool closed = false;  // from the rank's side
    bool lossy = false;   // what arrives after the close is lost
    bool ended = false;   // the coordinator knows
  };

  void deliver(int rank, const std::shared_ptr<const ToRank>& message);
  Clock::time_point arrival(Clock::time_point* last);
  void arrive(int rank, std::function<void()> what);
  void at_coordinator(std::function<void()> what);
  void join_all();
  void schedule_tick();
  bool over() const;
  void check_end();

  Scenario scenario_;
  Random random_;
  Clock::time_point now_;
  Clock::time_point pause_begin_ = Clock::time_point::max();
  Clock::time_point pause_end_ = Clock::time_point::min();
  std::priority_queue<Event> events_;
  uint64_t order_ = 0;
  std::vector<std::string> complaints_;
  std::unique_ptr<Referee> referee_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<Link> links_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<int> in_batch_;  // how many ranks have entered batch n
  Clock::time_point tick_at_ = Clock::time_point::max();
};

}  // namespace pushpull::simulator

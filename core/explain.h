// A hung job explains itself: SIGUSR2 makes a process print what its stores wait for.
//
// Each store also keeps a page of anonymous memory that says who it is and holds its last
// explanation. `pushpull dump JOB` finds the pages of a job's processes through /proc; they vanish
// with the process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/control/io_thread.h"
#include "core/error.h"

namespace pushpull {

// What a page holds: one line of JSON, a line with `count`, then the text.
struct ExplanationPage {
  std::string job;
  int rank = -1;
  int size = 0;
  uint64_t count = 0;  // of explanations so far
  std::string text;    // the last one

  std::string head() const;
  [[nodiscard]] static Result<ExplanationPage> parse(std::string_view bytes);
};
// As /proc/<pid>/fd/<n> shows the page: "/memfd:pushpull-store (deleted)".
inline constexpr char kPageName[] = "pushpull-store";

class Explainer {
 public:
  struct Source {
    std::function<std::string()> own;  // what this rank knows
    // Asks the coordinator, whose words come by answered(); false where nobody would answer.
    std::function<bool()> ask;
  };

  // Takes SIGUSR2 for the whole process, unless the program handles or ignores it already: null
  // then. `source` is called on the loop's thread, never in the handler.
  static std::unique_ptr<Explainer> start(IoThread& io, const ExplanationPage& who, Source source);
  ~Explainer();

  // Takes the coordinator's answer, on any thread, also after this object's end.
  std::function<void(const std::string&)> answered() const;
  void after_fork_in_child();

 private:
  class Impl;
  Explainer(IoThread& io, std::shared_ptr<Impl> impl);
  IoThread& io_;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace pushpull

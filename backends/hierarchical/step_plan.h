// How a call is cut into steps, and what each stage of a step is asked for. A pure function of the
// parts and the layout, so that every rank arrives at the same steps.
//
// Slices come in rows of one slice per host: row r is the slices r*H … r*H+H-1. A row is what one
// carrier exchanges with its counterparts, carrier r modulo the number of carriers; slice r*H+h of
// it is summed host h+1, h+2, …, h (mod H), as in any exchange of H ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/collective.h"

namespace pushpull {

struct Step {
  std::vector<Part> local;                // everything, element by element of the tensors
  std::vector<Part> across;               // what this rank's carrier exchanges, in place
  std::vector<std::vector<Part>> spread;  // what carrier c has in the end, in place
  std::vector<size_t> ends;               // parts of the call that are done with this step
};

struct StepOptions {
  int hosts = 1;
  int carriers = 1;
  int carrier = -1;        // which one this rank is; -1: none
  int default_slices = 1;  // of parts that do not say how long theirs are
  size_t step_bytes = 0;
};

class StepPlan {
 public:
  explicit StepPlan(const StepOptions& options) : options_(options) {}

  void for_sum(std::span<const Part> parts);
  // One row of one slice, each carrier a strip of it.
  void for_broadcast(std::span<const Part> parts);

  size_t size() const { return used_; }
  const Step& operator[](size_t i) const { return steps_[i]; }
  // Carriers that have a share in this call: one where it is small.
  int carriers() const { return carriers_; }

 private:
  struct Cut {
    size_t slices;  // that the piece has elements in, at most
    size_t width;   // bytes of all slices per element of the range
    size_t limit;   // end of the range
  };
  void begin(size_t bytes);
  Step& open();
  template <class Add>
  void cut(std::span<const Part> parts, const std::vector<Cut>& cuts, Add add);
  void add_sum(Step& step, const Part& part, size_t slices);
  void add_broadcast(Step& step, const Part& part);

  const StepOptions options_;
  int carriers_ = 1;
  std::vector<Step> steps_;  // keep their memory from call to call
  size_t used_ = 0;
};

}  // namespace pushpull

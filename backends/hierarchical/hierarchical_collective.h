// A Collective made of two others: ranks of one host first, then the hosts among each other.
//
// A call goes in steps, and a step through three stages:
//
//   gather  the ranks of each host sum what they have; each has the host's sum
//   across  carrier c of each host exchanges its rows (see step_plan.h) with the carriers c of the
//           others, so that everything of a host crosses its link once
//   spread  the carriers share their results with the ranks of their host
//
// Gather and spread run on the caller's thread; where a call has several steps, across runs on a
// thread of its own, as one exchange of all steps: it starts each part when the host's sum of it is
// there (Part::ready), so the network is busy from the first step to the last.
//
// Order of summation: local ranks 1, 2, …, 0 of each host, then hosts h+1, h+2, …, h (mod H),
// where h is the slice's number modulo H. 16-bit floats round once per host and once in the end (or
// as `exchange: ring` has it between hosts).
#pragma once

#include <memory>

#include "core/backend.h"
#include "core/collective.h"
#include "core/group.h"
#include "core/settings.h"

namespace pushpull {

// `group` is the whole group, its layout that of the stages: `local` is null where this rank is
// alone on its host, `across` where it is no carrier.
std::unique_ptr<Collective> make_hierarchical(Stages stages, const Group& group,
                                              const Settings& settings);

}  // namespace pushpull

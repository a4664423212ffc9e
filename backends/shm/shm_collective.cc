#include "backends/shm/shm_collective.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "backends/shm/shm_plan.h"
#include "backends/shm/shm_signals.h"
#include "core/cores.h"
#include "core/reduce.h"

namespace pushpull {
namespace {

// Chunks between two stages: of two ranks, which have one stage less, and of more.
constexpr size_t kBehindOfTwo = 1;
constexpr size_t kBehind = 2;
static_assert(2 * kBehind < ShmSegment::kSlots);

// A chunk up to this size is summed by everybody: another wait would take longer.
constexpr size_t kSharedFrom = 16u << 10;

struct Range {
  size_t begin;
  size_t end;
};

// The part of a piece that lies in a range of its chunk's bytes; ranges start on cache lines, so
// they cut between elements.
Piece cut(const Piece& piece, Range range, size_t width) {
  const size_t end = std::min(piece.at + piece.count * width, range.end);
  const size_t at = std::max(piece.at, range.begin);
  if (at >= end) return {piece.part, piece.slice, piece.first, 0, at};
  return {piece.part, piece.slice, piece.first + (at - piece.at) / width, (end - at) / width, at};
}

class ShmCollective final : public Collective {
 public:
  ShmCollective(std::shared_ptr<const ShmSegment> segment, const Group& group, Duration patience)
      : segment_(std::move(segment)),
        rank_(group.rank),
        size_(group.size()),
        signals_(*segment_, rank_, names(group), hosts(group), patience,
                 ranks_outnumber_cores(group)),
        plan_(segment_->chunk_bytes()),
        process_(::getpid()) {}

  // A forked child has a copy of this object, and may not speak for its parent.
  ~ShmCollective() override {
    if (::getpid() == process_) signals_.leave();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Result<void> allreduce(std::span<const Part> parts, const Reduce& reduce,
                         const PartDone& done) override {
    begin(parts, done);
    reduce_ = reduce;
    plan_.for_sum(parts, size_);
    finish_empty_parts();
    return run([this](size_t c) { return put_inputs(c); },
               [this](size_t c) { return sum_share(c); },
               [this](size_t c) { return whole(c) ? sum_all(c) : take_shares(c); });
  }

  Result<void> broadcast(std::span<const Part> parts, int root, const PartDone& done) override {
    begin(parts, done);
    plan_.for_broadcast(parts);
    finish_empty_parts();
    return run([this, root](size_t c) { return root != rank_ || put_source(c); },
               [](size_t) { return true; },
               [this, root](size_t c) { return take_source(c, root); });
  }

  Result<void> allgather(const void* in, void* out, std::span<const size_t> sizes) override;
  Result<void> barrier() override;

  void abort(const Error& reason) override { signals_.abort(reason); }

 private:
  static std::vector<std::string> names(const Group& group) {
    std::vector<std::string> all;
    for (int r = 0; r < group.size(); ++r) all.push_back(group.describe(r));
    return all;
  }
  static std::vector<std::string> hosts(const Group& group) {
    std::vector<std::string> all;
    for (const Member& member : group.members) all.push_back(member.host);
    return all;
  }

  void begin(std::span<const Part> parts, const PartDone& done) {
    parts_ = parts;
    done_ = &done;
  }
  void finish_empty_parts() {
    for (size_t i = 0; i < parts_.size(); ++i)
      if (plan_.empty(i)) (*done_)(i);
  }

  // The stages return false where a wait failed.
  template <class Put, class Middle, class Finish>
  Result<void> run_chunks(size_t chunks, const Put& put, const Middle& middle,
                          const Finish& finish) {
    for (size_t c = 0; c < chunks + 2 * behind_; ++c) {
      // The last stages of a call that everybody has put its inputs to may end well: a rank that
      // aborts right after it has its result does not take it from the others.
      if (c < chunks && signals_.aborted()) return fail(signals_.why());
      const bool ok = (c >= chunks || put(c)) &&
                      (c < behind_ || c - behind_ >= chunks || middle(c - behind_)) &&
                      (c < 2 * behind_ || finish(c - 2 * behind_));
      if (!ok) return fail(signals_.why());
    }
    first_ += chunks;
    return {};
  }
  template <class Put, class Middle, class Finish>
  Result<void> run(const Put& put, const Middle& middle, const Finish& finish) {
    if (signals_.aborted()) return fail(signals_.why());
    return run_chunks(plan_.size(), put, middle, finish);
  }

  // Chunks are numbered over all calls.
  uint64_t number(size_t c) const { return first_ + c; }
  char* slot(int rank, size_t c) const { return segment_->slot(rank, number(c)); }

  // Nobody reads any more what this rank's slot for chunk c held before.
  bool slot_is_free(size_t c) {
    const uint64_t n = number(c);
    return n < ShmSegment::kSlots ||
           signals_.await_all(&RankSignals::done, n - ShmSegment::kSlots + 1);
  }
  void post(Signals::Counter counter, size_t c) { signals_.post(counter, number(c) + 1); }
  bool await(Signals::Counter counter, int rank, size_t c) {
    return signals_.await(counter, rank, number(c) + 1);
  }
  bool await_all(Signals::Counter counter, size_t c) {
    return signals_.await_all(counter, number(c) + 1);
  }

  // Whether every rank sums all of the chunk.
  bool whole(size_t c) const { return size_ == 2 || plan_[c].bytes <= kSharedFrom; }
  Range share(size_t c, int rank) const {
    const size_t lines = (plan_[c].bytes + kCacheLine - 1) / kCacheLine;
    const auto r = static_cast<size_t>(rank);
    const auto n = static_cast<size_t>(size_);
    return {lines * r / n * kCacheLine, lines * (r + 1) / n * kCacheLine};
  }

  template <class F>
  void for_pieces(size_t c, Range range, const F& f) {
    for (const Piece& piece : plan_.pieces(plan_[c])) {
      const Piece inside = cut(piece, range, size_of(parts_[piece.part].dtype));
      if (inside.count != 0) f(inside, parts_[piece.part]);
    }
  }
  static const char* input(const Piece& piece, const Part& part) {
    return static_cast<const char*>(part.in) + piece.first * size_of(part.dtype);
  }
  static char* output(const Piece& piece, const Part& part) {
    return static_cast<char*>(part.out) + piece.first * size_of(part.dtype);
  }

  void end_chunk(size_t c) {
    post(&RankSignals::done, c);
    for (const Piece& piece : plan_.pieces(plan_[c]))
      if (plan_.piece_ended(piece)) (*done_)(piece.part);
  }

  bool put_inputs(size_t c);
  bool sum_share(size_t c);
  bool sum_all(size_t c);
  bool take_shares(size_t c);
  void sum(size_t c, const Piece& piece, const Part& part);
  bool put_source(size_t c);
  bool take_source(size_t c, int root);

  const std::shared_ptr<const ShmSegment> segment_;
  const int rank_;
  const int size_;
  const size_t behind_ = size_ == 2 ? kBehindOfTwo : kBehind;
  Signals signals_;
  ChunkPlan plan_;
  const pid_t process_;
  uint64_t first_ = 0;  // number of the call's first chunk

  // Of the call in progress.
  std::span<const Part> parts_;
  const PartDone* done_ = nullptr;
  Reduce reduce_;
  std::vector<const void*> inputs_;
};

bool ShmCollective::put_inputs(size_t c) {
  if (!slot_is_free(c)) return false;
  char* const to = slot(rank_, c);
  const auto put = [&](const Piece& piece, const Part& part) {
    scale(part.dtype, to + piece.at, input(piece, part), reduce_.prescale, piece.count);
  };
  // Its own share a rank reads from its own memory, unless that has to be scaled first.
  const bool everything = whole(c) || reduce_.prescale != 1.0;
  const Range own = everything ? Range{plan_[c].bytes, plan_[c].bytes} : share(c, rank_);
  for_pieces(c, {0, own.begin}, put);
  for_pieces(c, {own.end, plan_[c].bytes}, put);
  post(&RankSignals::put, c);
  return true;
}

void ShmCollective::sum(size_t c, const Piece& piece, const Part& part) {
  inputs_.clear();
  for (int step = 1; step <= size_; ++step) {
    const int r = (piece.slice + step) % size_;
    const bool from_memory = r == rank_ && reduce_.prescale == 1.0;
    inputs_.push_back(from_memory ? input(piece, part) : slot(r, c) + piece.at);
  }
  char* const out = output(piece, part);
  add_all(part.dtype, out, inputs_, piece.count);
  if (reduce_.postscale != 1.0) scale(part.dtype, out, out, reduce_.postscale, piece.count);
}

bool ShmCollective::sum_share(size_t c) {
  if (whole(c)) return true;
  if (!await_all(&RankSignals::put, c)) return false;
  for_pieces(c, share(c, rank_), [&](const Piece& piece, const Part& part) {
    sum(c, piece, part);
    std::memcpy(slot(rank_, c) + piece.at, output(piece, part), piece.count * size_of(part.dtype));
  });
  post(&RankSignals::reduced, c);
  return true;
}

bool ShmCollective::sum_all(size_t c) {
  if (!await_all(&RankSignals::put, c)) return false;
  for_pieces(c, {0, plan_[c].bytes},
             [&](const Piece& piece, const Part& part) { sum(c, piece, part); });
  end_chunk(c);
  return true;
}

bool ShmCollective::take_shares(size_t c) {
  // Each rank starts behind itself, so that not all of them read one slot.
  for (int step = 1; step < size_; ++step) {
    const int r = (rank_ + step) % size_;
    if (!await(&RankSignals::reduced, r, c)) return false;
    for_pieces(c, share(c, r), [&](const Piece& piece, const Part& part) {
      std::memcpy(output(piece, part), slot(r, c) + piece.at, piece.count * size_of(part.dtype));
    });
  }
  end_chunk(c);
  return true;
}

bool ShmCollective::put_source(size_t c) {
  if (!slot_is_free(c)) return false;
  for (const Piece& piece : plan_.pieces(plan_[c])) {
    const Part& part = parts_[piece.part];
    std::memcpy(slot(rank_, c) + piece.at, input(piece, part), piece.count * size_of(part.dtype));
  }
  post(&RankSignals::put, c);
  return true;
}

bool ShmCollective::take_source(size_t c, int root) {
  if (root != rank_ && !await(&RankSignals::put, root, c)) return false;
  for (const Piece& piece : plan_.pieces(plan_[c])) {
    const Part& part = parts_[piece.part];
    if (root == rank_ && part.in == part.out) continue;
    std::memcpy(output(piece, part), slot(root, c) + piece.at, piece.count * size_of(part.dtype));
  }
  end_chunk(c);
  return true;
}

// Chunk c is the c-th piece of every rank's block.
Result<void> ShmCollective::allgather(const void* in, void* out, std::span<const size_t> sizes) {
  const size_t step = segment_->chunk_bytes();
  const size_t longest = *std::max_element(sizes.begin(), sizes.end());
  const auto bytes = [&](int rank, size_t c) {
    const size_t size = sizes[static_cast<size_t>(rank)];
    return size > c * step ? std::min(step, size - c * step) : 0;
  };
  const auto put = [&](size_t c) {
    if (!slot_is_free(c)) return false;
    const size_t count = bytes(rank_, c);
    if (count != 0) std::memcpy(slot(rank_, c), static_cast<const char*>(in) + c * step, count);
    post(&RankSignals::put, c);
    return true;
  };
  const auto take = [&](size_t c) {
    char* to = static_cast<char*>(out) + c * step;
    for (int r = 0; r < size_; to += sizes[static_cast<size_t>(r)], ++r) {
      const size_t count = bytes(r, c);
      if (count == 0) continue;
      if (r != rank_ && !await(&RankSignals::put, r, c)) return false;
      const char* from = r == rank_ ? static_cast<const char*>(in) + c * step : slot(r, c);
      if (from != to) std::memcpy(to, from, count);
    }
    post(&RankSignals::done, c);
    return true;
  };
  return run_chunks((longest + step - 1) / step, put, [](size_t) { return true; }, take);
}

Result<void> ShmCollective::barrier() {
  return run_chunks(
      1,
      [this](size_t c) {
        post(&RankSignals::put, c);
        return true;
      },
      [](size_t) { return true; },
      [this](size_t c) {
        if (!await_all(&RankSignals::put, c)) return false;
        post(&RankSignals::done, c);
        return true;
      });
}

}  // namespace

std::unique_ptr<Collective> make_shm_collective(std::shared_ptr<const ShmSegment> segment,
                                                const Group& group, const Settings& settings) {
  return std::make_unique<ShmCollective>(std::move(segment), group, settings.stall_timeout);
}

}  // namespace pushpull

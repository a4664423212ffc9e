// The key-value store: what a training script talks to, whatever carries the bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend.h"
#include "core/control/messages.h"
#include "core/deadline.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/log.h"
#include "core/registry.h"
#include "core/settings.h"
#include "core/work.h"

namespace pushpull {

// A dense, contiguous array in host memory. data may be null where the shape has 0 elements.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  size_t count() const;  // product of shape; 1 for a scalar (empty shape)
};

struct PushPullOptions {
  int priority = 0;        // larger first
  uint64_t call = 0;       // from reserve(); 0: the next one, reserved now
  double prescale = 1.0;   // see Reduce
  double postscale = 1.0;
};

struct BroadcastOptions {
  int priority = 0;
  uint64_t call = 0;
};

// All calls return at once; any thread; every rank must make the same calls for a key in the same
// order, while different keys may come in any order. Once the group has failed (a rank died, abort,
// close) every call returns finished work with that error.
class KVStore {
 public:
  // Blocks until all ranks have joined, or the rendezvous timeout.
  [[nodiscard]] static Result<std::unique_ptr<KVStore>> create(const Settings& settings,
                                                               Registry& registry,
                                                               std::shared_ptr<Logger> logger = nullptr);
  // A forked child's copy is dead: its calls fail, its descriptors are closed without a word to the group.
  virtual ~KVStore() = default;  // abort()s what is still going on, unless closed before

  // A call is identified by (kind, key, how many-th call of that). Where program order and the order in
  // which data becomes ready differ, reserve the number in program order first and pass it with the
  // call; a reserved call must be made or withdrawn. Numbers start at 1. A call with wrong arguments
  // counts as made, and fails on every rank. Keys have at most 1 MiB.
  virtual uint64_t reserve(CallKind kind, std::string_view key) = 0;

  // outs[j] = sum of ins over all ranks and over each rank's list. Every tensor has the same dtype and
  // shape. outs may alias ins.
  [[nodiscard]] virtual Work pushpull(std::string_view key, std::span<const Tensor> ins,
                                      std::span<const Tensor> outs,
                                      const PushPullOptions& options = {}) = 0;
  // outs[j] = value of rank `root`. `value` is read on the root only, but its dtype and shape count
  // on every rank. outs may alias value.
  [[nodiscard]] virtual Work broadcast(std::string_view key, const Tensor& value,
                                       std::span<const Tensor> outs, int root,
                                       const BroadcastOptions& options = {}) = 0;
  // Done when all earlier calls of all ranks are done.
  [[nodiscard]] virtual Work barrier() = 0;
  // For a rank that has run out of data before others: done when all ranks have called it. Until then
  // the others' pushpulls and barriers go on, this rank takes part in them with zeros, and they
  // count as made here too; their broadcasts, and calls of this rank, fail. `last` (may be null) is
  // written before: the rank that joined last, which has the newest values.
  [[nodiscard]] virtual Work join(int* last) = 0;

  // The calls of MXNet's KVStore that a collective store does not have: always Unsupported, with the
  // sentence "<call> is not supported in kvstore with type <type>" and what to use instead.
  [[nodiscard]] virtual Result<void> unsupported(std::string_view call) const = 0;

  virtual std::string_view type() const = 0;  // "dist_sync_mpi", …
  virtual int rank() const = 0;
  virtual int num_workers() const = 0;
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  virtual const std::vector<Member>& members() const = 0;

  // Makes every pending and later call of the whole group fail: this rank gave up for `reason`.
  virtual void abort(const Error& reason) = 0;
  // A reserved call will never be made (its input failed): it fails on every rank, with `reason` and
  // this rank's name; the group lives on.
  virtual void withdraw(CallKind kind, std::string_view key, uint64_t call,
                        std::string_view reason) = 0;
  // Leaves in good order: waits until the batches this rank is part of are done everywhere, at most the
  // leave timeout. Calls that others still have with this rank fail there, naming it. Twice is fine.
  virtual Result<void> close() = 0;

  // The group's failure, sticky; nullopt while it is well.
  virtual std::optional<Error> failure() const = 0;
  // Human-readable: pending keys, who is missing, last batch, connections.
  virtual std::string dump() const = 0;
};

// "dist_sync_gloo_redis" and so on.
std::string type_name(std::string_view backend);

}  // namespace pushpull

#include "backends/mpi/mpi_collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "backends/mpi/mpi_backoff.h"
#include "backends/mpi/mpi_error.h"
#include "backends/mpi/mpi_types.h"
#include "core/reduce.h"

namespace pushpull {

namespace {

constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr size_t kAlign = 64;

// Elements [first, first + count) of a part's tensor, and where they are in a buffer.
struct Piece {
  size_t part = 0;
  size_t first = 0;
  size_t count = 0;
  size_t at = 0;
};

// One call of MPI_Iallreduce.
struct Buffer {
  struct alignas(kAlign) Memory {
    Memory() {}  // leaves the bytes as they are
    std::byte bytes[kBufferBytes];
  };
  std::unique_ptr<Memory> memory = std::make_unique<Memory>();
  DType dtype = DType::kFloat32;
  size_t count = 0;
  std::vector<Piece> pieces;
  MPI_Request request = MPI_REQUEST_NULL;

  std::byte* at(size_t element) { return memory->bytes + element * size_of(dtype); }
  size_t room() const { return kBufferBytes / size_of(dtype) - count; }
};

class MpiCollective final : public Collective {
 public:
  MpiCollective(MpiProcess& process, std::unique_ptr<Collective> exchange, MPI_Comm communicator,
                MpiTypes types, Duration patience)
      : process_(process),
        exchange_(std::move(exchange)),
        communicator_(communicator),
        types_(std::move(types)),
        patience_(patience) {}
  ~MpiCollective() override;

  int rank() const override { return exchange_->rank(); }
  int size() const override { return exchange_->size(); }

  Result<void> allreduce(std::span<const Part> parts, const Reduce& reduce,
                         const PartDone& done) override;
  Result<void> broadcast(std::span<const Part> parts, int root, const PartDone& done) override {
    return exchange_->broadcast(parts, root, done);
  }
  Result<void> allgather(const void* in, void* out, std::span<const size_t> sizes) override {
    return exchange_->allgather(in, out, sizes);
  }
  Result<void> barrier() override { return exchange_->barrier(); }
  void abort(const Error& reason) override;

 private:
  // A call while it runs.
  struct Call {
    std::span<const Part> parts;
    const Reduce& reduce;
    const PartDone& done;
    std::vector<size_t> open;  // elements of each part that are not yet in its output
  };

  Result<void> add_part(Call& call, size_t index);
  Result<void> add_piece(Call& call, Piece piece);
  Result<void> start(Call& call);
  Result<void> finish(Call& call, Buffer& buffer);
  Result<void> wait(Buffer& buffer);
  Error broken(Error error);  // an error of MPI's
  Error stop(Error error);    // the first one stays
  std::optional<Error> stopped() const;

  MpiProcess& process_;
  std::unique_ptr<Collective> exchange_;
  MPI_Comm communicator_;
  MpiTypes types_;
  const Duration patience_;

  // One is filled or emptied while the other is under way.
  Buffer buffers_[2];
  size_t filling_ = 0;

  std::atomic<bool> stopped_{false};
  mutable std::mutex reason_mutex_;
  std::optional<Error> reason_;
};

MpiCollective::~MpiCollective() {
  bool busy = false;
  for (Buffer& buffer : buffers_) {
    if (buffer.request == MPI_REQUEST_NULL) continue;
    busy = true;
    process_.group_failed();
    process_.leave_to_mpi(std::move(buffer.memory));
  }
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (busy || stopped_ || finalized != 0) return;
  const MpiLock mpi = process_.lock();
  MPI_Comm_free(&communicator_);
}

Result<void> MpiCollective::allreduce(std::span<const Part> parts, const Reduce& reduce,
                                      const PartDone& done) {
  if (auto reason = stopped()) return fail(*reason);
  Call call{parts, reduce, done, std::vector<size_t>(parts.size())};
  for (size_t i = 0; i < parts.size(); ++i)
    if (auto added = add_part(call, i); !added) return added;
  if (auto started = start(call); !started) return started;
  return finish(call, buffers_[1 - filling_]);
}

// The part's range of each slice.
Result<void> MpiCollective::add_part(Call& call, size_t index) {
  const Part& part = call.parts[index];
  const size_t length = slice_length(part, size());
  std::vector<Piece> pieces;
  for (size_t slice = 0; slice < static_cast<size_t>(size()); ++slice) {
    const size_t first = std::min(slice * length + part.begin, part.total);
    const size_t last = std::min({slice * length + part.end, (slice + 1) * length, part.total});
    if (first >= last) continue;
    // Slices that are whole lie side by side.
    if (!pieces.empty() && pieces.back().first + pieces.back().count == first)
      pieces.back().count += last - first;
    else
      pieces.push_back({index, first, last - first, 0});
    call.open[index] += last - first;
  }
  if (pieces.empty()) call.done(index);
  for (const Piece& piece : pieces)
    if (auto added = add_piece(call, piece); !added) return added;
  return {};
}

Result<void> MpiCollective::add_piece(Call& call, Piece piece) {
  const Part& part = call.parts[piece.part];
  const size_t width = size_of(part.dtype);
  while (piece.count != 0) {
    if (Buffer& filled = buffers_[filling_];
        filled.count != 0 && (filled.dtype != part.dtype || filled.room() == 0))
      if (auto started = start(call); !started) return started;
    Buffer& buffer = buffers_[filling_];
    buffer.dtype = part.dtype;
    Piece fits = piece;
    fits.at = buffer.count;
    fits.count = std::min(piece.count, buffer.room());
    scale(part.dtype, buffer.at(fits.at),
          static_cast<const std::byte*>(part.in) + fits.first * width, call.reduce.prescale,
          fits.count);
    buffer.count += fits.count;
    buffer.pieces.push_back(fits);
    piece.first += fits.count;
    piece.count -= fits.count;
  }
  return {};
}

// Starts the sum of the buffer that was filled, and empties the other for what comes next.
Result<void> MpiCollective::start(Call& call) {
  Buffer& buffer = buffers_[filling_];
  if (buffer.count != 0) {
    const MpiLock mpi = process_.lock();
    auto started =
        check_mpi(MPI_Iallreduce(MPI_IN_PLACE, buffer.memory->bytes, static_cast<int>(buffer.count),
                                 types_.datatype(buffer.dtype), types_.sum(buffer.dtype),
                                 communicator_, &buffer.request),
                  fmt::format("rank {}: summing {} elements over MPI", rank(), buffer.count));
    if (!started) return fail(broken(started.error()));
  }
  filling_ = 1 - filling_;
  return finish(call, buffers_[filling_]);
}

Result<void> MpiCollective::finish(Call& call, Buffer& buffer) {
  if (buffer.count == 0) return {};
  if (auto waited = wait(buffer); !waited) return waited;
  for (const Piece& piece : buffer.pieces) {
    const Part& part = call.parts[piece.part];
    std::byte* const out = static_cast<std::byte*>(part.out) + piece.first * size_of(part.dtype);
    scale(part.dtype, out, buffer.at(piece.at), call.reduce.postscale, piece.count);
    call.open[piece.part] -= piece.count;
    if (call.open[piece.part] == 0) call.done(piece.part);
  }
  buffer.pieces.clear();
  buffer.count = 0;
  return {};
}

Result<void> MpiCollective::wait(Buffer& buffer) {
  const MpiProcess::Call inside(process_);
  const Deadline deadline = patience_ == Duration::zero() ? never() : deadline_in(patience_);
  MpiBackoff backoff(false);
  for (;;) {
    if (auto reason = stopped()) return fail(*reason);
    int done = 0;
    {
      const MpiLock mpi = process_.lock();
      auto tested = check_mpi(MPI_Test(&buffer.request, &done, MPI_STATUS_IGNORE),
                              fmt::format("rank {}: summing over MPI", rank()));
      if (!tested) return fail(broken(tested.error()));
    }
    if (done != 0) return {};
    if (backoff.pause() && Clock::now() >= deadline)
      return fail(broken(
          Error(ErrorCode::kTimeout,
                fmt::format("rank {}: a sum over MPI was not done in {} s", rank(),
                            std::chrono::duration_cast<std::chrono::seconds>(patience_).count()))));
  }
}

void MpiCollective::abort(const Error& reason) { exchange_->abort(stop(reason)); }

Error MpiCollective::broken(Error error) {
  process_.group_failed();
  return stop(std::move(error));
}

Error MpiCollective::stop(Error error) {
  const std::lock_guard lock(reason_mutex_);
  if (!reason_) reason_ = std::move(error);
  stopped_.store(true, std::memory_order_release);
  return *reason_;
}

std::optional<Error> MpiCollective::stopped() const {
  if (!stopped_.load(std::memory_order_acquire)) return std::nullopt;
  const std::lock_guard lock(reason_mutex_);
  return reason_;
}

}  // namespace

Result<std::unique_ptr<Collective>> make_mpi_collective(MpiProcess& process,
                                                        std::unique_ptr<Collective> exchange,
                                                        const Group& group,
                                                        const Settings& settings,
                                                        Deadline deadline) {
  if (group.size() != process.size())
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("exchange 'mpi' needs all {} ranks that MPI knows, but the group has {}: use "
                    "exchange 'auto'",
                    process.size(), group.size()));
  auto communicator = process.duplicate(deadline);
  if (!communicator) return fail(communicator.error());
  auto types = MpiTypes::make();
  if (!types) return fail(types.error());
  return std::make_unique<MpiCollective>(process, std::move(exchange), *communicator,
                                         std::move(*types), settings.stall_timeout);
}

}  // namespace pushpull

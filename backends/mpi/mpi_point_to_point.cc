#include "backends/mpi/mpi_point_to_point.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/mpi/mpi_backoff.h"
#include "backends/mpi/mpi_error.h"
#include "core/cores.h"

namespace pushpull {

namespace {

constexpr size_t kNearBlock = size_t{256} << 10;
// Below Open MPI's limit for messages over TCP that are sent at once (64 KiB with its own header).
// A larger one asks first, and the question waits behind megabytes in the socket's buffer, both
// ways: 67 % of a link of 1 Gbit/s, against 95 %.
constexpr size_t kFarBlock = size_t{60} << 10;

// Enough to keep a link busy with few peers, little memory with many.
size_t bytes_under_way(int ranks) {
  if (ranks <= 9) return size_t{1} << 20;
  return ranks <= 33 ? size_t{512} << 10 : size_t{256} << 10;
}

}  // namespace

MpiPointToPoint::MpiPointToPoint(MpiProcess& process, MPI_Comm communicator, int tag,
                                 std::vector<int> world_ranks, Group group, Duration patience)
    : process_(process),
      communicator_(communicator),
      tag_(tag),
      world_ranks_(std::move(world_ranks)),
      group_(std::move(group)),
      backoff_(ranks_outnumber_cores(group_)),
      patience_(patience),
      channels_(2 * static_cast<size_t>(group_.size())) {
  const size_t most = bytes_under_way(group_.size());
  near_ = {kNearBlock, static_cast<int>(most / kNearBlock), {}};
  far_ = {kFarBlock, static_cast<int>(most / kFarBlock), {}};
  const std::vector<int> hosts = candidate_hosts(group_.members);
  const int here = hosts[static_cast<size_t>(group_.rank)];
  for (size_t i = 0; i < channels_.size(); ++i) {
    channels_[i].peer = static_cast<int>(i / 2);
    channels_[i].sending = i % 2 == 0;
    channels_[i].cut = hosts[i / 2] == here ? &near_ : &far_;
  }
  process_.group_opened();
}

MpiPointToPoint::~MpiPointToPoint() {
  if (!requests_.empty()) {
    process_.group_failed();
    for (Segment& segment : segments_) process_.leave_to_mpi(std::move(segment.block));
  }
  process_.group_closed();
}

Result<PointToPoint::Ticket> MpiPointToPoint::send(int to, const void* from, size_t bytes) {
  // Only read: the channel sends.
  auto* const memory = const_cast<std::byte*>(static_cast<const std::byte*>(from));
  return enqueue(channels_[2 * static_cast<size_t>(to)], memory, bytes);
}

Result<PointToPoint::Ticket> MpiPointToPoint::recv(int from, void* to, size_t bytes) {
  return enqueue(channels_[2 * static_cast<size_t>(from) + 1], static_cast<std::byte*>(to), bytes);
}

Result<PointToPoint::Ticket> MpiPointToPoint::enqueue(Channel& channel, std::byte* memory,
                                                      size_t bytes) {
  if (auto reason = stopped()) return fail(*reason);
  const MpiProcess::Call inside(process_);
  const Ticket ticket = first_ticket_ + messages_.size();
  Message& added = messages_.emplace_back();
  added.channel = &channel;
  added.memory = memory;
  added.bytes = bytes;
  added.segments_left =
      std::max<size_t>(1, (bytes + channel.cut->block_bytes - 1) / channel.cut->block_bytes);
  channel.waiting.push_back(ticket);
  if (auto started = start_segments(channel); !started) return fail(broken(started.error()));
  return ticket;
}

Result<void> MpiPointToPoint::start_segments(Channel& channel) {
  while (channel.under_way < channel.cut->window && !channel.waiting.empty()) {
    const Ticket ticket = channel.waiting.front();
    if (auto started = start_segment(channel, ticket); !started) return started;
    if (message(ticket).started == message(ticket).bytes) channel.waiting.pop_front();
  }
  return {};
}

Result<void> MpiPointToPoint::start_segment(Channel& channel, Ticket ticket) {
  Message& whole = message(ticket);
  Segment segment;
  segment.ticket = ticket;
  segment.channel = &channel;
  segment.memory = whole.memory + whole.started;
  segment.bytes = std::min(whole.bytes - whole.started, channel.cut->block_bytes);
  std::vector<Block>& free = channel.cut->free;
  if (free.empty()) {
    segment.block = std::make_unique_for_overwrite<std::byte[]>(channel.cut->block_bytes);
  } else {
    segment.block = std::move(free.back());  // the last used is the one in the cache
    free.pop_back();
  }
  std::byte* const block = segment.block.get();
  if (channel.sending && segment.bytes != 0) std::memcpy(block, segment.memory, segment.bytes);

  const int peer = world_ranks_[static_cast<size_t>(channel.peer)];
  const auto count = static_cast<int>(segment.bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  int code = MPI_SUCCESS;
  {
    const MpiLock mpi = process_.lock();
    code = channel.sending ? MPI_Isend(block, count, MPI_BYTE, peer, tag_, communicator_, &request)
                           : MPI_Irecv(block, count, MPI_BYTE, peer, tag_, communicator_, &request);
  }
  if (code != MPI_SUCCESS) {
    process_.leave_to_mpi(std::move(segment.block));  // who knows what MPI still does with it
    return fail(peer_error(code, channel));
  }
  whole.started += segment.bytes;
  ++channel.under_way;
  requests_.push_back(request);
  segments_.push_back(std::move(segment));
  return {};
}

Result<int> MpiPointToPoint::progress() {
  if (requests_.empty()) return 0;
  finished_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  int code = MPI_SUCCESS;
  {
    const MpiLock mpi = process_.lock();
    code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                        finished_.data(), statuses_.data());
  }
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
    return fail(mpi_error(code, fmt::format("rank {}: exchanging over MPI", own_name())));
  if (count == MPI_UNDEFINED || count == 0) return 0;
  for (int i = 0; i < count; ++i) {
    auto finished = finish_segment(static_cast<size_t>(finished_[static_cast<size_t>(i)]),
                                   statuses_[static_cast<size_t>(i)], code == MPI_ERR_IN_STATUS);
    if (!finished) return fail(finished.error());
  }
  drop_finished();
  return count;
}

Result<void> MpiPointToPoint::finish_segment(size_t index, const MPI_Status& status, bool failed) {
  Segment& segment = segments_[index];
  Channel& channel = *segment.channel;
  if (failed && status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING)
    return fail(peer_error(status.MPI_ERROR, channel));
  if (!channel.sending) {
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (static_cast<size_t>(count) != segment.bytes)
      return fail(
          ErrorCode::kMismatch,
          fmt::format("{} sent {} bytes over MPI where rank {} expected {}: the ranks do not "
                      "run the same version or configuration",
                      group_.describe(channel.peer), count, own_name(), segment.bytes));
    if (segment.bytes != 0) std::memcpy(segment.memory, segment.block.get(), segment.bytes);
  }
  --message(segment.ticket).segments_left;
  ++finished_segments_;
  channel.cut->free.push_back(std::move(segment.block));
  --channel.under_way;
  return {};
}

void MpiPointToPoint::drop_finished() {
  size_t kept = 0;
  for (size_t i = 0; i < segments_.size(); ++i) {
    if (segments_[i].block == nullptr) continue;
    if (kept != i) {
      segments_[kept] = std::move(segments_[i]);
      requests_[kept] = requests_[i];
    }
    ++kept;
  }
  segments_.resize(kept);
  requests_.resize(kept);
  while (!messages_.empty() && messages_.front().done()) {
    messages_.pop_front();
    ++first_ticket_;
  }
}

bool MpiPointToPoint::done(Ticket ticket) const {
  return ticket < first_ticket_ || messages_[ticket - first_ticket_].done();
}

Result<bool> MpiPointToPoint::test(Ticket ticket) {
  if (auto reason = stopped()) return fail(*reason);
  if (done(ticket)) return true;
  const MpiProcess::Call inside(process_);
  auto advanced = progress();
  if (!advanced) return fail(broken(advanced.error()));
  if (*advanced > 0)
    for (Channel& channel : channels_)
      if (auto started = start_segments(channel); !started) return fail(broken(started.error()));
  return done(ticket);
}

Result<void> MpiPointToPoint::wait(Ticket ticket) {
  Deadline deadline = never();
  bool timed = false;
  const MpiProcess::Call inside(process_);
  for (;;) {
    const uint64_t before = finished_segments_;
    auto ready = test(ticket);
    if (!ready) return fail(ready.error());
    if (*ready || finished_segments_ != before) {
      backoff_.reset();
      timed = false;
      if (*ready) return {};
      continue;
    }
    if (!backoff_.pause()) continue;
    // It sleeps already: no harm in looking at the clock.
    if (!timed && patience_ != Duration::zero()) deadline = deadline_in(patience_);
    timed = true;
    if (Clock::now() >= deadline) return fail(broken(silent(ticket)));
  }
}

Error MpiPointToPoint::silent(Ticket ticket) {
  const Channel& channel = *message(ticket).channel;
  Error error(ErrorCode::kTimeout,
              fmt::format("{} {} nothing over MPI for {} s", group_.describe(channel.peer),
                          channel.sending ? "took" : "sent",
                          std::chrono::duration_cast<std::chrono::seconds>(patience_).count()));
  return error.at_rank(channel.peer, group_.members[static_cast<size_t>(channel.peer)].host);
}

void MpiPointToPoint::abort(const Error& reason) {
  // An orderly end aborts, too, when nothing is left to do.
  if (stop(reason).code() != ErrorCode::kAborted) process_.peer_lost();
}

Error MpiPointToPoint::broken(Error error) {
  process_.group_failed();
  return stop(std::move(error));
}

Error MpiPointToPoint::stop(Error error) {
  const std::lock_guard lock(reason_mutex_);
  if (!reason_) reason_ = std::move(error);
  stopped_.store(true, std::memory_order_release);
  return *reason_;
}

std::optional<Error> MpiPointToPoint::stopped() const {
  if (!stopped_.load(std::memory_order_acquire)) return std::nullopt;
  const std::lock_guard lock(reason_mutex_);
  return reason_;
}

Error MpiPointToPoint::peer_error(int code, const Channel& channel) const {
  Error error = mpi_error(code, fmt::format("rank {}: {} {} over MPI", own_name(),
                                            channel.sending ? "sending to" : "receiving from",
                                            group_.describe(channel.peer)));
  const Member& peer = group_.members[static_cast<size_t>(channel.peer)];
  return error.at_rank(channel.peer, peer.host);
}

Result<void> MpiPointToPoint::greet(Deadline deadline) {
  const std::byte hello{1};
  std::vector<std::byte> answers(static_cast<size_t>(size()));
  std::vector<std::pair<int, Ticket>> open;
  for (int step = 1; step < size(); ++step) {
    const int to = (rank() + step) % size();
    const int from = (rank() - step + size()) % size();
    auto sent = send(to, &hello, 1);
    if (!sent) return fail(sent.error());
    auto received = recv(from, &answers[static_cast<size_t>(from)], 1);
    if (!received) return fail(received.error());
    open.emplace_back(to, *sent);
    open.emplace_back(from, *received);
  }
  MpiBackoff backoff(true);
  for (;;) {
    for (auto& [peer, ticket] : open) {
      auto ready = test(ticket);
      if (!ready) return fail(ready.error());
      if (*ready) peer = -1;
    }
    std::erase_if(open, [](const auto& entry) { return entry.first < 0; });
    if (open.empty()) return {};
    if (Clock::now() >= deadline) break;
    backoff.pause();
  }
  std::vector<int> missing;
  for (const auto& [peer, ticket] : open)
    if (std::find(missing.begin(), missing.end(), peer) == missing.end()) missing.push_back(peer);
  std::sort(missing.begin(), missing.end());
  std::vector<int> names;
  for (const int peer : missing) names.push_back(group_.members[static_cast<size_t>(peer)].rank);
  Error error(
      ErrorCode::kTimeout,
      fmt::format("rank {} could not exchange a first message over MPI in time with {} of the "
                  "{} ranks: {}",
                  own_name(), missing.size(), size(), fmt::join(names, ", ")));
  error.at_rank(missing.front(), group_.members[static_cast<size_t>(missing.front())].host);
  return fail(broken(error));
}

}  // namespace pushpull

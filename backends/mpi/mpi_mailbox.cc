#include "backends/mpi/mpi_mailbox.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "backends/mpi/mpi_backoff.h"
#include "backends/mpi/mpi_error.h"
#include "backends/mpi/mpi_process.h"

namespace pushpull {

namespace {

constexpr int kMaxBytes = 64 << 10;

uint32_t subject_length(std::string_view bytes) {
  uint32_t length = 0;
  if (bytes.size() < sizeof(length)) return 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return std::min<uint32_t>(length, static_cast<uint32_t>(bytes.size() - sizeof(length)));
}

}  // namespace

std::string_view MpiMailbox::Letter::subject() const {
  return std::string_view(bytes).substr(sizeof(uint32_t), subject_length(bytes));
}

std::string_view MpiMailbox::Letter::text() const {
  return std::string_view(bytes).substr(sizeof(uint32_t) + subject_length(bytes));
}

MpiMailbox::MpiMailbox(MpiProcess& process, MPI_Comm communicator)
    : process_(process), communicator_(communicator) {}

Result<void> MpiMailbox::send(int to, std::string_view subject, std::string_view text) {
  const auto length = static_cast<uint32_t>(subject.size());
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes.append(subject).append(text);
  if (bytes.size() > kMaxBytes)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("a message of {} bytes about '{}' is too long to send to rank {} over MPI",
                    bytes.size(), subject, to));
  const std::lock_guard lock(mutex_);
  const MpiLock mpi = process_.lock();
  drop_sent();
  Letter& letter = sending_.emplace_back();
  letter.bytes = std::move(bytes);
  unsent_.store(true);
  return check_mpi(MPI_Isend(letter.bytes.data(), static_cast<int>(letter.bytes.size()), MPI_BYTE,
                             to, kLetterTag, communicator_, &letter.request),
                   fmt::format("sending to rank {} over MPI", to));
}

void MpiMailbox::drop_sent() {
  sending_.remove_if([](Letter& letter) {
    int done = 0;
    return MPI_Test(&letter.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  });
  unsent_.store(!sending_.empty());
}

void MpiMailbox::push() {
  const std::lock_guard lock(mutex_);
  const MpiLock mpi = process_.lock();
  drop_sent();
}

Result<void> MpiMailbox::receive() {
  const MpiLock mpi = process_.lock();
  drop_sent();
  for (;;) {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    auto checked =
        check_mpi(MPI_Improbe(MPI_ANY_SOURCE, kLetterTag, communicator_, &found, &message, &status),
                  "looking for messages over MPI");
    if (!checked) return checked;
    if (found == 0) break;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    Letter& letter = arriving_.emplace_back();
    letter.from = status.MPI_SOURCE;
    letter.bytes.resize(static_cast<size_t>(bytes));
    checked = check_mpi(MPI_Imrecv(letter.bytes.data(), bytes, MPI_BYTE, &message, &letter.request),
                        fmt::format("receiving from rank {} over MPI", letter.from));
    if (!checked) return checked;
  }
  // In order of arrival, so only from the front.
  while (!arriving_.empty()) {
    int done = 0;
    auto checked =
        check_mpi(MPI_Test(&arriving_.front().request, &done, MPI_STATUS_IGNORE),
                  fmt::format("receiving from rank {} over MPI", arriving_.front().from));
    if (!checked) return checked;
    if (done == 0) break;
    letters_.splice(letters_.end(), arriving_, arriving_.begin());
  }
  return {};
}

std::optional<std::string> MpiMailbox::find(int from, std::string_view subject) {
  for (auto letter = letters_.begin(); letter != letters_.end(); ++letter) {
    if (letter->from != from || letter->subject() != subject) continue;
    std::string text(letter->text());
    letters_.erase(letter);
    return text;
  }
  return std::nullopt;
}

Result<std::optional<std::string>> MpiMailbox::take(int from, std::string_view subject,
                                                    Deadline deadline) {
  MpiBackoff backoff(true);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (auto received = receive(); !received) return fail(received.error());
      if (auto text = find(from, subject)) return text;
    }
    if (Clock::now() >= deadline) return std::nullopt;
    backoff.pause();
  }
}

std::vector<std::string> MpiMailbox::waiting(int from) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> subjects;
  for (const Letter& letter : letters_)
    if (letter.from == from) subjects.emplace_back(letter.subject());
  return subjects;
}

}  // namespace pushpull

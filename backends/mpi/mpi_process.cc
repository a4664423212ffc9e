#include "backends/mpi/mpi_process.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "backends/mpi/mpi_backoff.h"
#include "backends/mpi/mpi_error.h"
#include "backends/mpi/mpi_help.h"

namespace pushpull {

namespace {

using namespace std::chrono_literals;

// How often an idle rank makes progress: soon after a call something may still be on its way out;
// later only a peer that opens its first connection waits for us.
constexpr auto kSoon = 500us;
constexpr auto kLater = 10ms;
constexpr auto kIdle = 100ms;  // no group is open
constexpr auto kSoonFor = 20ms;

// How long finalising waits for the others where one of them may be dead.
constexpr auto kLostPeerLimit = 1s;

constexpr int kUnusedTag = 0;
constexpr int64_t kFirstGroupTag = 16;
static_assert(kFirstGroupTag > MpiMailbox::kLetterTag && kUnusedTag != MpiMailbox::kLetterTag);

std::string_view level_name(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    case MPI_THREAD_MULTIPLE:
      return "MPI_THREAD_MULTIPLE";
    default:
      return "an unknown thread level";
  }
}

// Open MPI's plug-ins expect libmpi's symbols in the global scope, but whoever opened us (Python
// does) may have kept us and what we need to a scope of our own.
void publish_symbols() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&MPI_Init_thread), &info) == 0) return;
  dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
}

bool mpi_finalized() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized != 0;
}

// Signals are for the program's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

// The thread sanitizer does not see by what MPI itself orders its threads' writes to our memory.
#if defined(__SANITIZE_THREAD__)
constexpr bool kSanitizedThreads = true;
#else
constexpr bool kSanitizedThreads = false;
#endif

}  // namespace

MpiProcess& MpiProcess::instance() {
  static MpiProcess* const process = new MpiProcess;  // outlives every exit handler
  return *process;
}

Result<void> MpiProcess::start(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (pid_ != 0 && pid_ != getpid())
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("process {} was forked from one that uses MPI (pid {}), and MPI does not "
                    "survive a fork: create the store in the parent only",
                    getpid(), pid_));
  if (pid_ == 0) {
    pid_ = getpid();
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
  }
  const Deadline latest = std::min(deadline, deadline_in(24h));  // what wait_until can bear
  if (!changed_.wait_until(lock, latest, [this] { return started_.has_value(); }))
    return fail(
        ErrorCode::kTimeout,
        "MPI did not come up in time: MPI_Init waits until every process that mpirun started "
        "has called it, so see what the other ranks are doing");
  if (!*started_) {
    if (thread_.joinable()) thread_.join();  // it has ended
    return *started_;
  }
  if (mpi_finalized())
    return fail(ErrorCode::kUnavailable,
                "MPI has been finalised in this process and cannot be started again: create stores "
                "before that");
  return {};
}

void MpiProcess::run() {
  Result<void> outcome = initialize();
  {
    const std::lock_guard lock(mutex_);
    started_ = outcome;
  }
  changed_.notify_all();
  if (!outcome) return;
  keep_progress();
  if (initialized_here_) finalize();
}

Result<void> MpiProcess::initialize() {
  publish_symbols();
  if (mpi_finalized())
    return fail(ErrorCode::kUnavailable, "MPI has already been finalised in this process");
  int initialized = 0;
  int level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    // A process without mpirun needs no daemon beside it (nor the ssh that Open MPI would look
    // for).
    setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
    auto checked = check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level),
                             "initialising MPI");
    if (!checked) return checked;
    initialized_here_ = true;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    std::atexit([] { instance().stop(); });
  } else if (auto checked = check_mpi(MPI_Query_thread(&level), "asking MPI for its thread level");
             !checked) {
    return checked;
  }
  if (level < MPI_THREAD_SERIALIZED)
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("MPI runs with {} in this process, but the store exchanges from a thread of "
                    "its own and needs MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE: {}",
                    level_name(level),
                    initialized_here_ ? "use an MPI library that was built with threads"
                                      : "whoever initialises MPI before must ask for it"));
  print_mpi_help_here();
  serialized_ = level < MPI_THREAD_MULTIPLE || kSanitizedThreads;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  return {};
}

void MpiProcess::keep_progress() {
  uint64_t seen = 0;
  Deadline soon_until = Clock::now();
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const uint64_t calls = calls_.load(std::memory_order_relaxed);
    MpiMailbox* const mailbox = mailbox_.load();
    const bool unsent = mailbox != nullptr && mailbox->has_unsent();
    const bool open = open_groups_.load() > 0 || unsent;
    if (calls != seen) soon_until = deadline_in(kSoonFor);
    seen = calls;
    const Duration pause = !open                       ? Duration(kIdle)
                           : Clock::now() < soon_until ? Duration(kSoon)
                                                       : Duration(kLater);
    if (changed_.wait_for(lock, pause, [this] { return stopping_; })) break;
    lock.unlock();
    if (unsent && !mpi_finalized()) mailbox->push();
    if (open_groups_.load() > 0 && inside_.load(std::memory_order_relaxed) == 0) make_progress();
    lock.lock();
  }
}

void MpiProcess::make_progress() {
  MpiMailbox* const mailbox = mailbox_.load();
  if (mailbox == nullptr || mpi_finalized()) return;
  const MpiLock mpi = lock();
  int found = 0;
  // Finds nothing, as nobody sends with this tag; looking is what makes progress.
  MPI_Iprobe(rank_, kUnusedTag, mailbox->communicator(), &found, MPI_STATUS_IGNORE);
}

// Waits until every rank has come here.
bool MpiProcess::all_leave(Deadline deadline) {
  MpiMailbox* const mailbox = mailbox_.load();
  if (mailbox == nullptr) return true;
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const MpiLock mpi = lock();
    if (MPI_Ibarrier(mailbox->communicator(), &request) != MPI_SUCCESS) return false;
  }
  MpiBackoff backoff(true);
  for (;;) {
    int done = 0;
    {
      const MpiLock mpi = lock();
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    }
    if (done != 0) return true;
    if (Clock::now() >= deadline) return false;
    backoff.pause();
  }
}

void MpiProcess::finalize() {
  if (open_groups_.load() > 0 || failed_.load() || mpi_finalized()) return;
  if (all_leave(peer_lost_.load() ? deadline_in(kLostPeerLimit) : never())) MPI_Finalize();
}

void MpiProcess::stop() {
  if (getpid() != pid_) return;  // a child that was forked from us
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  // Not bounded on purpose: finalising waits for all ranks, and whoever left earlier would make
  // mpirun end the others.
  if (thread_.joinable()) thread_.join();
}

Result<MPI_Comm> MpiProcess::duplicate(Deadline deadline) {
  // MPI writes here when the last rank comes, which may be after the deadline.
  auto place = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Comm* const copy = place.get();
  leave_to_mpi(std::move(place));
  MpiMailbox* const mailbox = mailbox_.load();
  const MPI_Comm original = mailbox == nullptr ? MPI_COMM_WORLD : mailbox->communicator();
  MPI_Request request = MPI_REQUEST_NULL;
  constexpr std::string_view kWhat = "making an MPI communicator";
  {
    const MpiLock mpi = lock();
    auto checked = check_mpi(MPI_Comm_idup(original, copy, &request), kWhat);
    if (!checked) return fail(checked.error());
  }
  MpiBackoff backoff(true);
  for (int done = 0;;) {
    {
      const MpiLock mpi = lock();
      auto checked = check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), kWhat);
      if (!checked) return fail(checked.error());
    }
    if (done != 0) break;
    if (Clock::now() >= deadline)
      return fail(ErrorCode::kTimeout,
                  fmt::format("not all of the {} MPI ranks have created a store in time (rank {} "
                              "waited): every process under mpirun must create it",
                              size_, rank_));
    backoff.pause();
  }
  const MpiLock mpi = lock();
  MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN);
  return *copy;
}

Result<MpiMailbox*> MpiProcess::mailbox(Deadline deadline) {
  const std::lock_guard making(mailbox_mutex_);
  if (mailbox_error_) return fail(*mailbox_error_);
  if (MpiMailbox* const ready = mailbox_.load()) return ready;
  auto communicator = duplicate(deadline);
  if (!communicator) {
    failed_.store(true);
    // Once is enough: the ranks that come later would meet this attempt, not the next one.
    mailbox_error_ = communicator.error();
    return fail(communicator.error());
  }
  void* bound = nullptr;
  int known = 0;
  {
    const MpiLock mpi = lock();
    MPI_Comm_get_attr(*communicator, MPI_TAG_UB, &bound, &known);
  }
  const int64_t highest = known != 0 ? *static_cast<int*>(bound) : 32767;
  tags_per_rank_ = std::max<int64_t>(1, (highest - kFirstGroupTag + 1) / size_);
  mailbox_.store(new MpiMailbox(*this, *communicator));  // as long-lived as this object
  return mailbox_.load();
}

int MpiProcess::draw_tag() {
  const int64_t drawn = tags_drawn_.fetch_add(1) % tags_per_rank_;
  return static_cast<int>(kFirstGroupTag + drawn * size_ + rank_);
}

}  // namespace pushpull

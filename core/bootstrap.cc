#include "core/bootstrap.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/agreement.h"
#include "core/checked_collective.h"
#include "core/cores.h"
#include "core/data_plane.h"
#include "core/net/descriptors.h"
#include "core/net/signals.h"
#include "core/rendezvous_store.h"

namespace pushpull {
namespace {

constexpr Duration kRankZerosWord = std::chrono::seconds(2);

std::string first_line(const char* file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// Connects one rank, step by step; what it builds moves into the session at the end.
class Bootstrap {
 public:
  Bootstrap(const Settings& settings, const Identity& identity, Registry& registry,
            std::shared_ptr<Logger> logger)
      : settings_(settings),
        identity_(identity),
        registry_(registry),
        logger_(std::move(logger)),
        deadline_(deadline_in(settings.rendezvous_timeout)) {}

  Result<std::unique_ptr<Session>> run() {
    auto connected = connect();
    if (connected) return std::move(session_);
    // All ranks hear the same words: rank 0 tells the others, they hear it or see it go.
    if (session_->server) session_->server->abort(connected.error());
    return fail(connected.error());
  }

 private:
  bool leader() const { return identity_.rank == 0; }
  bool alone() const { return identity_.size == 1; }

  // The named backend must be there even for one rank, which then needs nobody to talk to.
  Result<void> find_backend() {
    auto backend = registry_.backend(module_of(settings_.backend));
    if (backend && alone()) backend = registry_.backend("self");
    if (!backend) return fail(backend.error());
    backend_ = *backend;
    return {};
  }

  Result<void> lead_alone() {
    start_server(random_id());
    return session_->server->join_locally(me_);
  }

  Result<void> connect() {
    if (auto r = find_backend(); !r) return r;
    session_->io = std::make_unique<IoThread>("pushpull-io");
    session_->inbox = std::make_unique<Inbox>();
    me_ = describe_this_process(settings_);
    me_.rank = identity_.rank;
    if (alone()) {
      if (auto r = lead_alone(); !r) return r;
    } else {
      // One to the coordinator or from each rank, and one to each rank for the data.
      const auto others = static_cast<size_t>(identity_.size - 1);
      if (auto r = allow_descriptors(2 * others); !r) logger_->warning(r.error().message());
      if (auto r = find_rendezvous(); !r) return r;
      if (auto r = choose_listener(); !r) return r;
      if (auto r = leader() ? lead() : follow(); !r) return r;
    }
    // Rank 0 knows who is missing, and says so when its own time is over.
    auto welcome = session_->inbox->wait_for_welcome(leader() ? deadline_ : deadline_ + kRankZerosWord);
    if (!welcome) return fail(welcome.error());
    return join_data_plane(*welcome);
  }

  Result<void> find_rendezvous() {
    auto own = backend_->rendezvous(settings_.job);
    if (!own) return fail(own.error());
    if (*own) {
      rendezvous_ = std::move(*own);
    } else {
      auto options = rendezvous_options(settings_);
      if (!options) return fail(options.error());
      options->host_it = leader();
      auto store = open_store(*options, registry_, deadline_);
      if (!store) return fail(store.error());
      toward_ = rendezvous_host(options->url);
      rendezvous_ = make_store_rendezvous(std::move(*store), settings_.job);
    }
    secret_ = settings_.secret;
    return {};
  }

  // Where nobody but a trusted channel or the user can give all ranks a secret, we stay on loopback.
  bool may_leave_loopback() const { return !settings_.secret.empty() || rendezvous_->trusted(); }

  Result<void> choose_listener() {
    if (leader() && secret_.empty() && rendezvous_->trusted()) secret_ = random_secret();
    address_ = "127.0.0.1";
    if (may_leave_loopback()) {
      auto chosen = choose_address(settings_.interface, toward_, deadline_);
      if (!chosen) return fail(chosen.error());
      address_ = *chosen;
    }
    auto ports = parse_ports(settings_.ports);
    if (!ports) return fail(ports.error());
    ports_ = *ports;
    return {};
  }

  void start_server(const std::string& run) {
    run_ = run;
    CoordinatorOptions options;
    options.size = identity_.size;
    options.run = run_;
    options.fusion_bytes = settings_.fusion_bytes;
    options.heartbeat_timeout = settings_.heartbeat_timeout;
    options.stall_warning = settings_.stall_warning;
    options.stall_timeout = settings_.stall_timeout;
    session_->server = std::make_unique<ControlServer>(
        options, shared_settings(settings_, identity_.size), *session_->io, logger_);
    session_->link = session_->server->local_link();
    session_->link->start(session_->inbox->receiver());
  }

  // This rank's listener, for one run of the job.
  Result<void> listen() {
    mesh_ = std::make_unique<TcpMesh>(secret_);
    Acceptor::Options options;
    options.address = address_;
    options.ports = ports_;
    options.secret = secret_;
    options.logger = logger_;
    options.judge = [this](const Hello& hello) { return judge(hello); };
    options.accepted = [this](Hello hello, Socket socket) {
      if (hello.purpose == Purpose::kControl) {
        session_->server->accepted(hello, std::move(socket));
      } else {
        mesh_->accepted(hello, std::move(socket));
      }
    };
    auto acceptor = Acceptor::listen(std::move(options));
    if (!acceptor) return fail(acceptor.error());
    acceptor_ = std::move(*acceptor);
    me_.address = acceptor_->endpoint().to_string();
    return {};
  }

  Result<void> judge(const Hello& hello) {
    if (hello.job != settings_.job)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("this is job '{}', not '{}'", settings_.job, hello.job));
    if (hello.run != run_)
      return fail(ErrorCode::kUnavailable,
                  fmt::format("job '{}' is at run {}, not {}", settings_.job, run_, hello.run));
    if (hello.rank < 0 || hello.rank >= identity_.size)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("rank {} does not exist in a group of {}; PUSHPULL_RANK counts from 0",
                              hello.rank, identity_.size));
    if (hello.purpose == Purpose::kData) return mesh_->judge(hello);
    if (hello.purpose != Purpose::kControl || !session_->server)
      return fail(ErrorCode::kInvalidArgument, "this rank is not the coordinator");
    return session_->server->check(hello);
  }

  // Rank 0: publishes itself and waits for the others.
  Result<void> lead() {
    start_server(random_id());
    if (auto listening = listen(); !listening) return listening;
    ControlServer& server = *session_->server;
    if (auto joined = server.join_locally(me_); !joined) return joined;
    Advert advert;
    advert.run = run_;
    advert.size = identity_.size;
    advert.endpoint = me_.address;
    advert.host = me_.host;
    advert.pid = me_.pid;
    if (settings_.secret.empty()) advert.secret = secret_;
    if (auto published = rendezvous_->publish(advert, deadline_); !published) return published;
    while (!server.all_joined()) {
      const auto turn = std::min(deadline_, deadline_in(std::chrono::seconds(1)));
      auto welcome = session_->inbox->wait_for_welcome(turn);
      if (welcome) break;
      if (welcome.error().code() != ErrorCode::kTimeout) return fail(welcome.error());
      if (Clock::now() >= deadline_)
        return fail(ErrorCode::kTimeout,
                    fmt::format("{} after {:.0f} s (rendezvous {}, job '{}')", server.joined_so_far(),
                                std::chrono::duration<double>(settings_.rendezvous_timeout).count(),
                                rendezvous_->description(), settings_.job));
      // A store that is gone for the moment does not matter; a newer run does.
      auto current = rendezvous_->still_current(deadline_in(std::chrono::seconds(1)));
      if (!current && current.error().code() == ErrorCode::kAborted) return current;
    }
    return {};
  }

  // Other ranks: look for rank 0 until one answers. An advert that leads nowhere is an old run's.
  Result<void> follow() {
    auto advert = rendezvous_->find("", deadline_);
    while (advert) {
      auto socket = join(*advert);
      if (socket) return start_link(std::move(*socket));
      const bool gone = socket.error().code() == ErrorCode::kUnavailable ||
                        socket.error().code() == ErrorCode::kTimeout;
      // What answers with an error may be somebody else who got a dead run's address.
      const auto look = std::chrono::milliseconds(gone ? 200 : 2000);
      auto newer = rendezvous_->find(advert->run, std::min(deadline_, deadline_in(look)));
      if (newer) {
        advert = std::move(newer);
      } else if (!gone || Clock::now() >= deadline_) {
        return fail(socket.error());
      }
    }
    return fail(advert.error());
  }

  Result<Socket> join(const Advert& advert) {
    auto endpoint = parse_endpoint(advert.endpoint);
    if (!endpoint) return fail(endpoint.error());
    if (advert.host != me_.host && is_loopback(endpoint->host))
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("rank 0 on {} listens on loopback only, since the job has no secret; set "
                              "PUSHPULL_SECRET or PUSHPULL_SECRET_FILE on every rank",
                              advert.host));
    if (settings_.secret.empty()) secret_ = advert.secret;
    if (run_ != advert.run) {
      acceptor_.reset();
      run_ = advert.run;
      if (backend_->uses_mesh())
        if (auto listening = listen(); !listening) return fail(listening.error());
    }
    Hello hello;
    hello.purpose = Purpose::kControl;
    hello.job = settings_.job;
    hello.run = advert.run;
    hello.rank = identity_.rank;
    hello.detail = encode_joining({me_, shared_settings(settings_, identity_.size)});
    const auto turn = std::min(deadline_, deadline_in(std::chrono::seconds(2)));
    return dial(*endpoint, secret_, hello, turn);
  }

  Result<void> start_link(Socket socket) {
    session_->link =
        make_socket_link(*session_->io, std::move(socket), settings_.heartbeat_timeout);
    session_->link->start(session_->inbox->receiver());
    return {};
  }

  Result<void> join_data_plane(const Welcome& welcome) {
    Group& group = session_->group;
    group.job = settings_.job;
    group.run = welcome.run;
    group.generation = welcome.generation;
    group.rank = identity_.rank;
    group.members = welcome.members;
    group.secret = secret_;
    if (mesh_) {
      mesh_->set_group(group.job, group.run, group.generation, group.rank, group.members);
      session_->inbox->on_failure([this](const Error& error) { mesh_->cancel(error); });
    }
    const DataPlane plane{
        settings_,
        registry_,
        *backend_,
        mesh_.get(),
        *session_->inbox,
        *session_->link,
        *logger_,
        deadline_,
        [this](int other, std::byte* memory, std::shared_ptr<void> owner) {
          share_control(other, memory, std::move(owner));
        }};
    auto collective = connect_data_plane(plane, group);
    session_->inbox->on_failure(nullptr);
    if (!collective) {
      const FromRank reason = GiveUp{collective.error().message()};
      session_->link->send({&reason, 1});
      return fail(collective.error());
    }
    start_scheduler(std::move(*collective));
    const FromRank connected = Connected{};
    session_->link->send({&connected, 1});
    if (auto ready = session_->inbox->wait_until_ready(deadline_); !ready) return ready;
    if (leader() && rendezvous_) {
      const BlockSignals blocked;
      session_->withdrawing = std::jthread([r = std::move(rendezvous_)] { r->withdraw(); });
    }
    return {};
  }

  // Rank 0 and `other` share memory: the control plane goes through it.
  void share_control(int other, std::byte* memory, std::shared_ptr<void> owner) {
    static_assert(2 * sizeof(MailboxMemory) <= kPairBytes);
    auto* const boxes = reinterpret_cast<MailboxMemory*>(memory);
    shared_control_ = true;
    if (leader()) {
      session_->link->share(other, {&boxes[0], &boxes[1], std::move(owner)});
    } else {
      session_->link->share(0, {&boxes[1], &boxes[0], std::move(owner)});
    }
  }

  void start_scheduler(std::unique_ptr<Collective> collective) {
    Scheduler::Options options;
    options.leave_timeout = settings_.leave_timeout;
    options.drive = shared_control_ && !ranks_outnumber_cores(session_->group);
    if (ControlServer* server = session_->server.get())
      options.batch_started = [server](uint64_t number) { server->batch_started(number); };
    session_->scheduler = std::make_shared<Scheduler>(
        session_->group, make_checked(std::move(collective)), *session_->link, logger_, options);
    session_->inbox->set_scheduler(session_->scheduler.get());
  }

  const Settings& settings_;
  const Identity identity_;
  Registry& registry_;
  const std::shared_ptr<Logger> logger_;
  const Deadline deadline_;

  Backend* backend_ = nullptr;
  Member me_;
  Endpoint toward_;
  std::string secret_;
  std::string run_;
  std::string address_;
  PortRange ports_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::unique_ptr<Session> session_ = std::make_unique<Session>();
  bool shared_control_ = false;
  std::unique_ptr<TcpMesh> mesh_;
  std::unique_ptr<Acceptor> acceptor_;  // destroyed first: its thread calls into all of the above
};

}  // namespace

Session::~Session() {
  if (link) link->close();
  scheduler.reset();
  // What the coordinator had to say reaches the others before its connections end.
  if (server) server->wait_until_left(deadline_in(std::chrono::seconds(2)));
  if (io) io->stop();
  link.reset();
  server.reset();
}

Member describe_this_process(const Settings& settings) {
  Member me;
  me.host = host_name();
  me.pid = ::getpid();
  me.boot_id = first_line("/proc/sys/kernel/random/boot_id");
  if (!settings.host_label.empty()) me.boot_id += '/' + settings.host_label;
  struct stat info {};
  if (::stat("/proc/self/ns/net", &info) == 0) me.network_namespace = info.st_ino;
  return me;
}

Result<std::unique_ptr<Session>> connect_group(const Settings& settings, const Identity& identity,
                                               Registry& registry, std::shared_ptr<Logger> logger) {
  return Bootstrap(settings, identity, registry, std::move(logger)).run();
}

}  // namespace pushpull

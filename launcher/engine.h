// What starts the workers of a plan and reaches them afterwards.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "core/error.h"
#include "launcher/output.h"
#include "launcher/plan.h"

namespace asio {
class io_context;
}

namespace pushpull::launcher {

// What an engine tells; on the main thread, from the event loop or from within a call.
class EngineEvents {
 public:
  virtual ~EngineEvents() = default;
  virtual void worker_started(int rank, const std::string& host, pid_t pid) = 0;
  virtual void worker_not_started(int rank, const Error& error, int exit_code) = 0;
  virtual void worker_output(int rank, Stream stream, std::string_view bytes) = 0;
  // After its output up to now was delivered. Once per started worker.
  virtual void worker_ended(int rank, int wait_status) = 0;
  // It will never be heard of again, say because its host is gone. Instead of worker_ended().
  virtual void worker_lost(int rank, const std::string& why) = 0;
  // For people, before workers start.
  virtual void note(const std::string& text) = 0;
  // What the starter itself says, line by line or not.
  virtual void starter_output(std::string_view bytes) = 0;
  // The starter ended, or did not bring the workers up in time. Workers that did not report an end
  // by then will not.
  virtual void starter_failed(const Error& error) = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Starts everything; a worker's failure to start is an event, not an error.
  [[nodiscard]] virtual Result<void> start() = 0;
  // To the worker's process group; nothing where it has ended or not yet started.
  virtual void send_signal(int rank, int signal) = 0;
  // Reads no worker's output while paused.
  virtual void pause(bool paused) = 0;
  // Nobody reads this stream any more: workers that write to it shall get EPIPE.
  virtual void close_stream(Stream stream) = 0;
  // One of this process's children ended; ignored where it is none of the engine's.
  virtual void child_ended(pid_t pid, int wait_status) = 0;
  // After the last worker has ended. finished() turns true, at once or some events later.
  virtual void shut_down() = 0;
  virtual bool finished() const = 0;
  // Reads what is left in the pipes.
  virtual void drain() = 0;
};

// Children of this process.
std::unique_ptr<Engine> make_local_engine(asio::io_context& io, const Plan& plan,
                                          EngineEvents& events);
// Through plan.starter and one shim (shim.h) per worker.
std::unique_ptr<Engine> make_starter_engine(asio::io_context& io, const Plan& plan,
                                            EngineEvents& events);

}  // namespace pushpull::launcher

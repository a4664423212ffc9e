#include "launcher/manifest/kubectl.h"

#include <fcntl.h>
#include <unistd.h>

#include <sys/mman.h>

#include <cerrno>

#include <fmt/format.h>
#include <asio/io_context.hpp>

#include "launcher/process.h"

namespace pushpull::launcher {
namespace {

// A descriptor to read a text from, which is in memory only: it may hold secrets, and be larger
// than a pipe.
Result<Socket> readable(const std::string& text) {
  Socket file(memfd_create("pushpull-manifest", MFD_CLOEXEC));
  size_t written = 0;
  while (file.valid() && written < text.size()) {
    const ssize_t n = write(file.fd(), text.data() + written, text.size() - written);
    if (n < 0 && errno != EINTR) break;
    if (n > 0) written += static_cast<size_t>(n);
  }
  if (!file.valid() || written < text.size() || lseek(file.fd(), 0, SEEK_SET) != 0) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("cannot hand the objects to kubectl: {}", errno_text(errno)));
  }
  return file;
}

}  // namespace

Kubectl::Kubectl(asio::io_context& io, std::vector<std::string> environment,
                 const std::string& context, const std::string& name_space)
    : io_(io), environment_(std::move(environment)), words_({"kubectl"}) {
  if (!context.empty()) words_.push_back("--context=" + context);
  if (!name_space.empty()) words_.push_back("--namespace=" + name_space);
}

Result<void> Kubectl::start(const std::vector<std::string>& words, const std::string& input,
                            Done done, Receive receive) {
  auto out = make_pipe();
  auto err = make_pipe();
  auto in = readable(input);
  if (!out) return fail(out.error());
  if (!err) return fail(err.error());
  if (!in) return fail(in.error());
  SpawnOptions options;
  options.argv = words_;
  options.argv.insert(options.argv.end(), words.begin(), words.end());
  options.environment = environment_;
  options.input = in->fd();
  options.output = out->write.fd();
  options.error = err->write.fd();
  const auto pid = spawn(options);
  if (!pid) return fail(pid.error());
  Child& child = children_[*pid];
  child.done = std::move(done);
  child.streams = receive != nullptr;
  if (!receive) receive = [&child](std::string_view bytes) { child.out += bytes; };
  child.readers.emplace_back(io_, std::move(out->read), std::move(receive));
  child.readers.emplace_back(io_, std::move(err->read),
                             [&child](std::string_view bytes) { child.err += bytes; });
  return {};
}

void Kubectl::child_ended(pid_t pid, int wait_status) {
  const auto found = children_.find(pid);
  if (found == children_.end()) return;
  Child& child = found->second;
  for (PipeReader& reader : child.readers) reader.drain();
  child.readers.clear();
  while (!child.err.empty() && child.err.back() == '\n') child.err.pop_back();
  const KubectlEnd end{wait_status, std::move(child.out), std::move(child.err)};
  const Done done = std::move(child.done);
  children_.erase(found);
  done(end);
}

void Kubectl::pause(bool paused) {
  for (auto& [pid, child] : children_) {
    if (child.streams) child.readers.front().pause(paused);
  }
}

}  // namespace pushpull::launcher

#include "core/control/mailbox_sender.h"

#include <utility>

namespace pushpull {
namespace {

constexpr auto kRetry = std::chrono::milliseconds(1);

}  // namespace

MailboxSender::MailboxSender(IoThread& io, const MailboxPair& pair,
                             std::shared_ptr<Connection> connection, std::string bell,
                             std::function<void()> stuck)
    : io_(io),
      writer_(*pair.out, pair.owner),
      connection_(std::move(connection)),
      bell_(std::move(bell)),
      stuck_(std::move(stuck)) {}

void MailboxSender::send(std::string_view frames) {
  const auto after = writer_.write(frames);
  if (after.wake) connection_->send(bell_);
  if (after.stuck) return stuck_();
  if (!after.retry || retrying_.exchange(true)) return;
  io_.after(kRetry, [weak = weak_from_this()] {
    const auto live = weak.lock();
    if (!live) return;
    live->retrying_ = false;
    live->send({});
  });
}

}  // namespace pushpull

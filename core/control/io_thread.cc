#include "core/control/io_thread.h"

#include <pthread.h>

#include <thread>
#include <utility>

#include <asio.hpp>

#include "core/net/signals.h"

namespace pushpull {

struct IoThread::State {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  std::thread thread;
};

IoThread::IoThread(const char* name) : state_(std::make_unique<State>()) {
  const BlockSignals blocked;
  state_->thread = std::thread([state = state_.get()] { state->context.run(); });
  pthread_setname_np(state_->thread.native_handle(), name);
}

IoThread::~IoThread() {
  if (state_) stop();
}

asio::io_context& IoThread::context() { return state_->context; }

void IoThread::post(std::function<void()> f) { asio::post(state_->context, std::move(f)); }

namespace {

struct Repeating : std::enable_shared_from_this<Repeating> {
  Repeating(asio::io_context& context, Duration every, std::function<void()> call)
      : timer(context), period(every), f(std::move(call)) {}
  void arm() {
    timer.expires_after(period);
    timer.async_wait([self = shared_from_this()](const asio::error_code& error) {
      if (error) return;
      self->f();
      self->arm();
    });
  }
  asio::steady_timer timer;
  Duration period;
  std::function<void()> f;
};

}  // namespace

void IoThread::every(Duration period, std::function<void()> f) {
  auto repeating = std::make_shared<Repeating>(state_->context, period, std::move(f));
  asio::post(state_->context, [repeating] { repeating->arm(); });
}

void IoThread::after(Duration delay, std::function<void()> f) {
  auto timer = std::make_shared<asio::steady_timer>(state_->context, delay);
  asio::post(state_->context, [timer, f = std::move(f)] {
    timer->async_wait([timer, f](const asio::error_code& error) {
      if (!error) f();
    });
  });
}

void IoThread::stop() {
  state_->context.stop();
  if (state_->thread.joinable()) state_->thread.join();
}

void IoThread::abandon() {
  state_->thread.detach();
  // The loop's descriptors were closed by whoever called us; its memory is not worth a lock.
  state_.release();
}

}  // namespace pushpull

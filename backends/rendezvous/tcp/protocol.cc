#include "backends/rendezvous/tcp/protocol.h"

#include "core/net/bytes.h"

namespace pushpull::tcp_store {
namespace {

enum Outcome : uint8_t { kValue = 1, kAbsent = 2, kError = 3 };

constexpr size_t kMaxSentenceBytes = 4096;

std::string framed(std::string_view fields) {
  std::string frame;
  ByteWriter(&frame).string<uint32_t>(fields);
  return frame;
}

}  // namespace

std::string encode(const Request& request) {
  std::string fields;
  ByteWriter out(&fields);
  out.integer(static_cast<uint8_t>(request.operation));
  out.integer(request.number);
  out.string<uint16_t>(request.key);
  out.string<uint32_t>(request.value);
  out.integer(request.delta);
  return framed(fields);
}

std::string encode(const Reply& reply) {
  std::string fields;
  ByteWriter out(&fields);
  if (reply.error) {
    out.integer<uint8_t>(kError);
    out.integer(static_cast<uint8_t>(reply.error->code()));
    out.string<uint16_t>(std::string_view(reply.error->message()).substr(0, kMaxSentenceBytes));
  } else {
    out.integer<uint8_t>(reply.value ? kValue : kAbsent);
    out.integer(reply.sum);
    out.string<uint32_t>(reply.value ? std::string_view(*reply.value) : std::string_view());
  }
  return framed(fields);
}

std::optional<size_t> frame_length(std::string_view head) {
  const size_t length = ByteReader(head).integer<uint32_t>();
  if (length == 0 || length > kMaxFrameBytes) return std::nullopt;
  return length;
}

std::optional<Request> decode_request(std::string_view frame) {
  ByteReader in(frame);
  Request request;
  request.operation = static_cast<Operation>(in.integer<uint8_t>());
  request.number = in.integer<uint64_t>();
  request.key = in.string<uint16_t>(kMaxKeyBytes);
  request.value = in.string<uint32_t>(kMaxValueBytes);
  request.delta = in.integer<int64_t>();
  const bool known =
      request.operation >= Operation::kSet && request.operation <= Operation::kRemoveIf;
  if (!in.finished() || !known || request.key.empty()) return std::nullopt;
  return request;
}

std::optional<Reply> decode_reply(std::string_view frame) {
  ByteReader in(frame);
  Reply reply;
  const auto outcome = in.integer<uint8_t>();
  if (outcome == kError) {
    const auto code = in.integer<uint8_t>();
    std::string sentence = in.string<uint16_t>(kMaxSentenceBytes);
    if (code < static_cast<uint8_t>(ErrorCode::kInvalidArgument) ||
        code > static_cast<uint8_t>(ErrorCode::kAborted)) {
      return std::nullopt;
    }
    reply.error.emplace(static_cast<ErrorCode>(code), std::move(sentence));
  } else {
    reply.sum = in.integer<int64_t>();
    std::string value = in.string<uint32_t>(kMaxValueBytes);
    if (outcome == kValue) reply.value = std::move(value);
    if (outcome != kValue && (outcome != kAbsent || !value.empty())) return std::nullopt;
  }
  if (!in.finished()) return std::nullopt;
  return reply;
}

}  // namespace pushpull::tcp_store

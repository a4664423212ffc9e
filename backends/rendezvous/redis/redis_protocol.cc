#include "backends/rendezvous/redis/redis_protocol.h"

#include <hiredis/hiredis.h>

namespace pushpull::redis {

namespace {

struct FreeCommand {
  void operator()(char* text) const { redisFreeCommand(text); }
};
struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};

std::optional<Reply> convert(const redisReply& from) {
  Reply reply;
  switch (from.type) {
    case REDIS_REPLY_NIL:
      reply.kind = Reply::Kind::kNil;
      return reply;
    case REDIS_REPLY_INTEGER:
      reply.kind = Reply::Kind::kInteger;
      reply.integer = from.integer;
      return reply;
    case REDIS_REPLY_STATUS:
      reply.kind = Reply::Kind::kStatus;
      break;
    case REDIS_REPLY_STRING:
      reply.kind = Reply::Kind::kString;
      break;
    case REDIS_REPLY_ERROR:
      reply.kind = Reply::Kind::kError;
      break;
    default:
      return std::nullopt;
  }
  reply.text.assign(from.str, from.len);
  return reply;
}

}  // namespace

std::string encode(const Command& command) {
  std::vector<const char*> words;
  std::vector<size_t> lengths;
  for (const std::string_view word : command.words) {
    words.push_back(word.data());
    lengths.push_back(word.size());
  }
  char* text = nullptr;
  const int length =
      redisFormatCommandArgv(&text, static_cast<int>(words.size()), words.data(), lengths.data());
  const std::unique_ptr<char, FreeCommand> owner(text);
  return length < 0 ? std::string() : std::string(text, static_cast<size_t>(length));
}

void ReplyReader::Free::operator()(redisReader* reader) const { redisReaderFree(reader); }

ReplyReader::ReplyReader() : reader_(redisReaderCreate()) {}

bool ReplyReader::feed(std::string_view bytes) {
  constexpr size_t kHead = 32;
  if (head_.size() < kHead) head_.append(bytes.substr(0, kHead - head_.size()));
  pending_ += bytes.size();
  // hiredis allocates an array as soon as it has read its length: such a reply is stopped before.
  if (!reader_ || pending_ > kMaxReply) return false;
  if (!head_.empty() && std::string_view("+-:$").find(head_.front()) == std::string_view::npos) {
    return false;
  }
  return redisReaderFeed(reader_.get(), bytes.data(), bytes.size()) == REDIS_OK;
}

std::optional<Reply> ReplyReader::next(bool& sane) {
  sane = false;
  void* raw = nullptr;
  if (!reader_ || redisReaderGetReply(reader_.get(), &raw) != REDIS_OK) return std::nullopt;
  sane = true;
  if (raw == nullptr) return std::nullopt;
  const std::unique_ptr<redisReply, FreeReply> owner(static_cast<redisReply*>(raw));
  auto reply = convert(*owner);
  // One command at a time is asked: whatever follows its reply was not asked for.
  sane = reply.has_value() && reader_->pos >= reader_->len;
  if (!sane) return std::nullopt;
  head_.clear();
  pending_ = 0;
  return reply;
}

}  // namespace pushpull::redis

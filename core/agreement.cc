#include "core/agreement.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/control/describe.h"
#include "core/rendezvous_store.h"

namespace pushpull {
namespace {

std::string_view take_line(std::string_view* text) {
  const std::string_view line = text->substr(0, text->find('\n'));
  text->remove_prefix(std::min(text->size(), line.size() + 1));
  return line;
}

std::string_view name_of(std::string_view line) { return line.substr(0, line.find('=')); }

std::string_view value_of(std::string_view line) {
  const size_t at = line.find('=');
  return at == std::string_view::npos ? std::string_view() : line.substr(at + 1);
}

}  // namespace

std::string shared_settings(const Settings& settings, int size) {
  // gloo and gloo-redis are the same backend: how ranks found each other is over by now.
  return fmt::format(
      "PUSHPULL_SIZE={}\nMXNET_KVSTORE_BACKEND={}\nPUSHPULL_LOCAL={}\nPUSHPULL_EXCHANGE={}\n"
      "PUSHPULL_CHUNK_BYTES={}\nPUSHPULL_SHM_CHUNK_BYTES={}\n",
      size, module_of(settings.backend), settings.local, settings.exchange, settings.chunk_bytes,
      settings.shm_chunk_bytes);
}

std::optional<Error> disagreement(const Member& leader, std::string_view leaders,
                                  const Member& joining, std::string_view theirs) {
  while (leaders != theirs) {
    const std::string_view ours = take_line(&leaders);
    const std::string_view other = take_line(&theirs);
    if (ours == other) continue;
    if (name_of(ours) != name_of(other)) break;
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} is {} on {}, but {} on {}; set it to the same value on every rank",
                             name_of(ours), value_of(ours), describe_member(leader), value_of(other),
                             describe_member(joining)))
        .at_rank(joining.rank, joining.host);
  }
  if (leaders == theirs) return std::nullopt;
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{} and {} run versions of pushpull that do not know the same settings; "
                           "install the same version everywhere",
                           describe_member(leader), describe_member(joining)))
      .at_rank(joining.rank, joining.host);
}

}  // namespace pushpull

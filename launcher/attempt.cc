#include "launcher/attempt.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "core/environment.h"
#include "core/net/endpoint.h"
#include "core/net/hello.h"
#include "core/registry.h"
#include "core/text.h"
#include "launcher/environment_block.h"
#include "launcher/job.h"
#include "launcher/process.h"
#include "launcher/start.h"
#include "launcher/warden.h"

namespace pushpull::launcher {
namespace {

// By these names other programs know this host.
OwnNames own_names() {
  OwnNames names = {host_name()};
  if (const auto interfaces = list_interfaces()) {
    for (const Interface& interface : *interfaces) names.push_back(interface.address);
  }
  return names;
}

Result<std::string> hostfile(const Config& config) {
  const std::string name = config.text("launch.hostfile");
  if (name.empty()) return "";
  std::ifstream in(name, std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(in), {}};
  if (in && !std::filesystem::is_directory(name)) return content;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("the hostfile {} ({}) cannot be read", in_quotes(name),
                          config.value("launch.hostfile").origin));
}

// Towards the first other host that is named, where one is.
Result<std::string> own_address(const Config& config, const std::string& hostfile,
                                const OwnNames& own) {
  Endpoint toward;
  // What is wrong with the hosts, the plan says.
  const auto hosts = configured_hosts(config, hostfile, own).value_or(std::vector<HostSlots>());
  if (const auto other = first_other_host(hosts, own); other != hosts.end())
    toward.host = other->name;
  return choose_address(config.text("interface"), toward, deadline_in(std::chrono::seconds(10)));
}

Result<Surroundings> look_around(const Config& config, const ReservedPort& rendezvous,
                                 const ReservedPort& redis) {
  Surroundings around;
  around.own_names = own_names();
  auto content = hostfile(config);
  if (!content) return fail(content.error());
  around.hostfile = std::move(*content);
  auto address = own_address(config, around.hostfile, around.own_names);
  if (address) around.address = std::move(*address);
  if (!address) around.address_error = address.error().message();
  around.backends = Registry(config.text("backend_path")).backend_names();
  around.environment = whole_environment();
  std::error_code ignored;
  around.folder = command_folder();
  around.working_folder = std::filesystem::current_path(ignored).string();
  around.cores = usable_cores();
  around.is_root = geteuid() == 0;
  around.is_terminal = isatty(STDIN_FILENO) == 1;
  around.run = random_id().substr(0, 8);
  around.secret = random_secret();
  around.redis_password = random_secret();
  around.token = random_secret();
  around.rendezvous_port = rendezvous.number();
  around.redis_port = redis.number();
  return around;
}

}  // namespace

Result<Attempt> Attempt::prepare(const Config& config, const std::string& config_file,
                                 const std::vector<std::string>& command, bool tagged,
                                 bool again) {
  auto rendezvous = ReservedPort::make();
  if (!rendezvous) return fail(rendezvous.error());
  auto redis = ReservedPort::make();
  if (!redis) return fail(redis.error());
  const auto around = look_around(config, *rendezvous, *redis);
  if (!around) return fail(around.error());
  auto plan = make_plan(config, config_file, command, *around);
  if (!plan) return fail(plan.error());
  Attempt attempt(std::move(*rendezvous), std::move(*redis));
  attempt.plan_ = std::move(*plan);
  attempt.plan_.tagged = tagged;
  attempt.plan_.append_logs = again;
  return attempt;
}

}  // namespace pushpull::launcher

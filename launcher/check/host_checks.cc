#include "launcher/check/host_checks.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "core/net/endpoint.h"
#include "core/net/hello.h"
#include "core/net/resolve.h"
#include "core/net/socket.h"
#include "core/rendezvous_store.h"
#include "launcher/process.h"

namespace pushpull::launcher {
namespace {

using namespace std::chrono_literals;

constexpr size_t kGiB = size_t{1} << 30;

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

Finding check_backend(const std::string& name, bool needed, Registry& registry) {
  const std::string check = "backend " + name;
  const auto backend = registry.backend(name);
  if (backend) return pass(check, "its module and libraries are there");
  const std::string why = backend.error().message();
  if (needed) return failed(check, why, "install what is missing, or take another backend");
  return warn(check, why, "matters only for jobs with this backend");
}

std::vector<Finding> check_modules(const Settings& settings, Registry& registry) {
  std::vector<Finding> all;
  const std::string configured = module_of(settings.backend);
  std::vector<std::string> names = {"gloo", "mpi"};
  if (std::find(names.begin(), names.end(), configured) == names.end()) names.push_back(configured);
  for (const std::string& name : names) {
    all.push_back(check_backend(name, name == configured, registry));
  }
  for (const char* name : {"tcp", "file", "redis"}) {
    const auto store = registry.store(name);
    const bool needed = settings.rendezvous.starts_with(name);
    const std::string check = fmt::format("rendezvous by {}", name);
    if (store) {
      all.push_back(pass(check, "its module and libraries are there"));
    } else if (needed) {
      all.push_back(failed(check, store.error().message(), "install what is missing"));
    } else {
      all.push_back(warn(check, store.error().message(), "matters only for jobs that use it"));
    }
  }
  return all;
}

Finding check_host_name() {
  const std::string name = host_name();
  NameLookup lookup(Endpoint{name, 1});
  const auto addresses = lookup.find(deadline_in(3s));
  std::string where = "which does not resolve";
  if (addresses && !addresses->empty()) {
    where = fmt::format("which resolves to {}", addresses->front().host());
  }
  // Addresses are exchanged as numbers, so a name that others cannot use does no harm.
  return pass("host name", fmt::format("{}, {}", name, where));
}

Finding check_interface(const Settings& settings) {
  const Endpoint toward = rendezvous_host(settings.rendezvous);
  const auto address = choose_address(settings.interface, toward, deadline_in(5s));
  if (!address) {
    return failed("interface", address.error().message(),
                  "set interface to a name, prefix or network that every host has one of");
  }
  std::string name = "?";
  if (const auto interfaces = list_interfaces()) {
    for (const Interface& i : *interfaces) name = i.address == *address ? i.name : name;
  }
  const std::string why = !settings.interface.empty()
                              ? fmt::format("as interface '{}' says", settings.interface)
                          : toward.host.empty() ? "the first that is up"
                                                : fmt::format("on the route to {}", toward.host);
  return pass("interface", fmt::format("{} ({}), {}", name, *address, why));
}

// "max" and what cannot be read: no limit.
size_t limit_in(const std::string& file) {
  const std::string text = first_line(file);
  return text.empty() || text == "max" ? SIZE_MAX : std::strtoull(text.c_str(), nullptr, 10);
}

Finding check_memory(int local_size) {
  size_t available = 0;
  std::ifstream in("/proc/meminfo");
  for (std::string name; in >> name;) {
    size_t kilobytes = 0;
    in >> kilobytes;
    if (name == "MemAvailable:") available = kilobytes << 10;
    in.ignore(64, '\n');
  }
  const size_t limit = std::min(limit_in("/sys/fs/cgroup/memory.max"),
                                limit_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
  const double share = static_cast<double>(std::min(available, limit)) / local_size / kGiB;
  const std::string found =
      fmt::format("{:.1f} GiB for each rank of this host{}", share,
                  limit < available ? ", by the limit of its control group" : "");
  if (share >= 1) return pass("memory", found);
  return warn("memory", found, "training seldom fits; give more, or start fewer ranks per host");
}

Finding check_shared_memory() {
  constexpr size_t kBytes = size_t{16} << 20;
  const Socket memory(memfd_create("pushpull-check", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool sized = memory.valid() && ftruncate(memory.fd(), static_cast<off_t>(kBytes)) == 0;
  void* mapped = sized ? mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd(), 0)
                       : MAP_FAILED;
  if (mapped == MAP_FAILED) {
    return failed("shared memory",
                  fmt::format("anonymous memory cannot be shared: {}", errno_text(errno)),
                  "allow memfd_create and mmap, or set local: backend");
  }
  std::memset(mapped, 1, kBytes);
  munmap(mapped, kBytes);
  return pass("shared memory", "anonymous memory can be shared; /dev/shm is not needed");
}

// Whether one process of this user may read another's memory: Open MPI's single copy does so.
Finding check_single_copy(bool mpi) {
  static const std::array<char, 64> kText = {"pushpull"};
  std::array<char, 64> copy = {};
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const iovec local{copy.data(), copy.size()};
  const iovec remote{const_cast<char*>(kText.data()), kText.size()};
  const ssize_t n = child > 0 ? process_vm_readv(child, &local, 1, &remote, 1, 0) : -1;
  const int why = errno;
  if (child > 0) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  if (n == static_cast<ssize_t>(copy.size()) && copy == kText) {
    return pass("single copy", "processes may read each other's memory (CMA)");
  }
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  const std::string found =
      fmt::format("processes may not read each other's memory: {}{}", errno_text(why),
                  scope.empty() ? "" : fmt::format(" (ptrace_scope is {})", scope));
  const std::string todo =
      "Open MPI's own shared memory is slower or noisy then; pushpull's is not concerned. Allow "
      "ptrace in the container, or set OMPI_MCA_btl_vader_single_copy_mechanism=none";
  return mpi ? warn("single copy", found, todo)
             : pass("single copy", found + "; only Open MPI cares");
}

Finding check_descriptors(int size) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto needed = static_cast<rlim_t>(size) * 4 + 256;
  const std::string found =
      fmt::format("{} open files allowed, {} at most needed by pushpull", limit.rlim_max, needed);
  if (limit.rlim_max >= needed) return pass("open files", found);
  return failed("open files", found, fmt::format("raise the hard limit: ulimit -Hn {}", needed));
}

Finding check_cores(int local_size) {
  const auto cores = static_cast<int>(usable_cores().size());
  std::string found =
      fmt::format("{} for {} rank{} of this host", cores, local_size, local_size == 1 ? "" : "s");
  std::istringstream quota(first_line("/sys/fs/cgroup/cpu.max"));
  std::string most;
  double period = 0;
  quota >> most >> period;
  double usable = cores;
  if (!most.empty() && most != "max" && period > 0) {
    usable = std::min(usable, std::strtod(most.c_str(), nullptr) / period);
    found += fmt::format(", limited to {:.1f} by the control group", usable);
  }
  if (usable >= local_size) return pass("cores", found);
  return warn("cores", found, "ranks take turns on the cores; start fewer per host");
}

Finding check_cpu() {
  std::ifstream in("/proc/cpuinfo");
  std::string flags;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("flags") || line.starts_with("Features")) {
      flags = line + " ";
      break;
    }
  }
  std::string found;
  for (const char* name : {"avx2", "f16c", "avx512f", "avx512_bf16", "asimd", "sve"}) {
    if (flags.find(fmt::format(" {} ", name)) != std::string::npos) {
      found += (found.empty() ? "" : ", ") + std::string(name);
    }
  }
  if (!found.empty()) return pass("processor", found);
  return warn("processor", "none of the vector instructions that sums are quick with",
              "sums are right but slow; on a virtual machine pass the host's CPU through");
}

Finding check_file_rendezvous(const std::string& url) {
  const std::string folder = url.substr(std::string("file://").size());
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const bool writable = !error && access(folder.c_str(), W_OK | X_OK) == 0;
  if (writable) return pass("rendezvous folder", folder + " can be written");
  return failed(
      "rendezvous folder",
      fmt::format("{} cannot be written: {}", folder, error ? error.message() : errno_text(errno)),
      "name a folder that all hosts share and this user may write");
}

}  // namespace

std::vector<Finding> check_host(const Settings& settings, Registry& registry, int local_size) {
  std::vector<Finding> all = {pass(
      "version", fmt::format("pushpull {}, protocol {}", library_version(), kProtocolVersion))};
  for (Finding& finding : check_modules(settings, registry)) all.push_back(std::move(finding));
  all.push_back(check_host_name());
  all.push_back(check_interface(settings));
  all.push_back(check_cpu());
  all.push_back(check_cores(local_size));
  all.push_back(check_memory(local_size));
  all.push_back(check_shared_memory());
  all.push_back(check_single_copy(settings.backend == "mpi"));
  all.push_back(check_descriptors(std::max(settings.size, 1)));
  if (settings.rendezvous.starts_with("file://")) {
    all.push_back(check_file_rendezvous(settings.rendezvous));
  }
  return all;
}

}  // namespace pushpull::launcher

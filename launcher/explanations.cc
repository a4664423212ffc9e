#include "launcher/explanations.h"

#include <signal.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>
#include <tuple>

#include <fmt/format.h>

namespace pushpull::launcher {
namespace {

namespace fs = std::filesystem;

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool is_page(const fs::path& descriptor) {
  std::error_code error;
  const std::string target = fs::read_symlink(descriptor, error).string();
  return !error && target.rfind(std::string("/memfd:") + kPageName, 0) == 0;
}

void find_in(pid_t pid, const fs::path& process, std::vector<StoreProcess>* found) {
  std::error_code error;
  for (fs::directory_iterator it(process / "fd", error), end; !error && it != end;
       it.increment(error)) {
    if (!is_page(it->path())) continue;
    auto page = ExplanationPage::parse(read_all(it->path()));
    if (page) found->push_back({pid, it->path().string(), std::move(*page)});
  }
}

// "running", "stopped", "gone", as the kernel says.
std::string state_of(pid_t pid) {
  const std::string stat = read_all(fmt::format("/proc/{}/stat", pid));
  const size_t at = stat.rfind(')');
  if (at == std::string::npos || at + 2 >= stat.size()) return "the process has ended";
  switch (stat[at + 2]) {
    case 'T':
      return "the process is stopped";
    case 't':
      return "the process is held by a debugger";
    case 'Z':
      return "the process has ended";
    case 'D':
      return "the process is stuck in the kernel";
    default:
      return "the process runs, but its control thread does not";
  }
}

}  // namespace

std::vector<StoreProcess> find_stores() {
  std::vector<StoreProcess> found;
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    pid_t pid = 0;
    const auto [at, bad] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (bad == std::errc() && at == name.data() + name.size()) find_in(pid, it->path(), &found);
  }
  std::sort(found.begin(), found.end(), [](const StoreProcess& a, const StoreProcess& b) {
    return std::tie(a.page.job, a.page.rank, a.pid) < std::tie(b.page.job, b.page.rank, b.pid);
  });
  return found;
}

std::vector<Answer> ask_to_explain(const std::vector<StoreProcess>& stores, Duration patience) {
  std::vector<Answer> answers;
  std::set<pid_t> asked;
  for (const StoreProcess& store : stores) {
    if (asked.insert(store.pid).second) ::kill(store.pid, SIGUSR2);
    answers.push_back({store, std::nullopt, ""});
  }
  const Deadline deadline = deadline_in(patience);
  for (bool all = false; !all;) {
    all = true;
    for (Answer& answer : answers) {
      if (answer.text) continue;
      const auto page = ExplanationPage::parse(read_all(answer.store.path));
      if (page && page->count > answer.store.page.count)
        answer.text = page->text;
      else
        all = false;
    }
    if (Clock::now() >= deadline) break;
    if (!all) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (Answer& answer : answers)
    if (!answer.text) answer.why = state_of(answer.store.pid);
  return answers;
}

}  // namespace pushpull::launcher

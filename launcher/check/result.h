// What the doctor finds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace pushpull::launcher {

enum class Health { kPass, kWarn, kFail };
std::string_view name_of(Health health);  // "pass", "warn", "fail"

struct Finding {
  std::string check;  // "shared memory"
  Health health = Health::kPass;
  std::string found;  // one sentence
  std::string todo;   // what to do; empty for a pass
  bool operator==(const Finding&) const = default;
};

Finding pass(std::string check, std::string found);
Finding warn(std::string check, std::string found, std::string todo);
Finding failed(std::string check, std::string found, std::string todo);

struct RankFindings {
  int rank = 0;
  std::string host;
  std::vector<Finding> findings;
};

// One line of JSON, as a rank reports to the launcher.
std::string encode(const RankFindings& findings);
[[nodiscard]] Result<RankFindings> decode_findings(std::string_view line);

// What several ranks found alike stands together.
struct Row {
  Finding finding;
  std::vector<int> ranks;  // empty: of the job as a whole
};
std::vector<Row> join_findings(const std::vector<RankFindings>& all);

Health worst(const std::vector<Row>& rows);
// For people; `colour`: with terminal colours.
std::string findings_table(const std::vector<Row>& rows, bool colour);
// {"health": "warn", "results": [{"check", "health", "found", "todo", "ranks"}, …]}
std::string findings_json(const std::vector<Row>& rows);

// "0-3, 7"
std::string rank_list(const std::vector<int>& ranks);

}  // namespace pushpull::launcher

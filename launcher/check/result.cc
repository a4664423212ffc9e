#include "launcher/check/result.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace pushpull::launcher {
namespace {

using Json = nlohmann::ordered_json;

std::string dumped(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json as_json(const Finding& finding) {
  return {{"check", finding.check},
          {"health", name_of(finding.health)},
          {"found", finding.found},
          {"todo", finding.todo}};
}

Health health_of(std::string_view name) {
  for (const Health health : {Health::kPass, Health::kWarn}) {
    if (name == name_of(health)) return health;
  }
  return Health::kFail;
}

std::string coloured(Health health, bool colour) {
  const std::string name(name_of(health));
  if (!colour) return name;
  const char* code = health == Health::kPass ? "32" : health == Health::kWarn ? "33" : "31";
  return fmt::format("\x1b[{}m{}\x1b[0m", code, name);
}

}  // namespace

Finding pass(std::string check, std::string found) {
  return {std::move(check), Health::kPass, std::move(found), ""};
}
Finding warn(std::string check, std::string found, std::string todo) {
  return {std::move(check), Health::kWarn, std::move(found), std::move(todo)};
}
Finding failed(std::string check, std::string found, std::string todo) {
  return {std::move(check), Health::kFail, std::move(found), std::move(todo)};
}

std::string_view name_of(Health health) {
  return health == Health::kPass ? "pass" : health == Health::kWarn ? "warn" : "fail";
}

std::string encode(const RankFindings& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings.findings) list.push_back(as_json(finding));
  return dumped({{"rank", findings.rank}, {"host", findings.host}, {"findings", list}}, -1);
}

Result<RankFindings> decode_findings(std::string_view line) {
  const auto wrong = fail(ErrorCode::kInvalidArgument, "this is no report of a rank");
  const Json parsed = Json::parse(line, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("findings") || !parsed["findings"].is_array() ||
      !parsed.contains("rank") || !parsed["rank"].is_number_integer() || !parsed.contains("host") ||
      !parsed["host"].is_string()) {
    return wrong;
  }
  RankFindings all;
  all.rank = parsed["rank"].get<int>();
  all.host = parsed["host"].get<std::string>();
  for (const Json& item : parsed["findings"]) {
    Finding finding;
    for (auto [name, place] :
         {std::pair("check", &finding.check), {"found", &finding.found}, {"todo", &finding.todo}}) {
      if (!item.is_object() || !item.contains(name) || !item[name].is_string()) return wrong;
      *place = item[name].get<std::string>();
    }
    if (!item.contains("health") || !item["health"].is_string()) return wrong;
    finding.health = health_of(item["health"].get<std::string>());
    all.findings.push_back(std::move(finding));
  }
  return all;
}

std::vector<Row> join_findings(const std::vector<RankFindings>& all) {
  std::vector<Row> rows;
  std::vector<std::string> order;  // checks, as they were first met
  for (const RankFindings& rank : all) {
    for (const Finding& finding : rank.findings) {
      const auto same = std::find_if(rows.begin(), rows.end(),
                                     [&](const Row& row) { return row.finding == finding; });
      if (same != rows.end()) {
        same->ranks.push_back(rank.rank);
      } else {
        rows.push_back({finding, {rank.rank}});
      }
      if (std::find(order.begin(), order.end(), finding.check) == order.end()) {
        order.push_back(finding.check);
      }
    }
  }
  const auto place = [&](const Row& row) {
    return std::find(order.begin(), order.end(), row.finding.check);
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const Row& a, const Row& b) { return place(a) < place(b); });
  return rows;
}

Health worst(const std::vector<Row>& rows) {
  Health worst = Health::kPass;
  for (const Row& row : rows) worst = std::max(worst, row.finding.health);
  return worst;
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (!text.empty()) text += ", ";
    text +=
        end - i > 1 ? fmt::format("{}-{}", ranks[i], ranks[end - 1]) : fmt::format("{}", ranks[i]);
    i = end;
  }
  return text;
}

std::string findings_table(const std::vector<Row>& rows, bool colour) {
  size_t checks = 5;
  size_t ranks = 5;
  for (const Row& row : rows) {
    checks = std::max(checks, row.finding.check.size());
    ranks = std::max(ranks, rank_list(row.ranks).size());
  }
  std::string text = fmt::format("      {:{}}  {:{}}  found\n", "check", checks, "ranks", ranks);
  for (const Row& row : rows) {
    text += fmt::format("{}  {:{}}  {:{}}  {}\n", coloured(row.finding.health, colour),
                        row.finding.check, checks, rank_list(row.ranks), ranks, row.finding.found);
    if (!row.finding.todo.empty()) {
      text += fmt::format("      {:{}}  {:{}}  -> {}\n", "", checks, "", ranks, row.finding.todo);
    }
  }
  size_t counts[3] = {};
  for (const Row& row : rows) ++counts[static_cast<size_t>(row.finding.health)];
  return text + fmt::format("{} pass, {} warn, {} fail\n", counts[0], counts[1], counts[2]);
}

std::string findings_json(const std::vector<Row>& rows) {
  Json results = Json::array();
  for (const Row& row : rows) {
    Json item = as_json(row.finding);
    item["ranks"] = row.ranks;
    results.push_back(std::move(item));
  }
  return dumped({{"health", name_of(worst(rows))}, {"results", results}}, 2) + "\n";
}

}  // namespace pushpull::launcher

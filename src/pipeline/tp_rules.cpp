#include "pipeline/tp_rules.hpp"

#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

#include "safeshuffle/error.hpp"

namespace safeshuffle::pipeline {
namespace {

bool is_builtin(std::string_view tp_plan) {
  return tp_plan == "auto" || tp_plan == "replicate";
}

}  // namespace

std::string read_rules(std::string_view tp_plan) {
  if (is_builtin(tp_plan)) return {};
  const std::string path(tp_plan);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) {
    const int code = errno;
    raise({.kind = ErrorKind::io,
           .code = code,
           .file = path,
           .tensor = {},
           .offset = {},
           .cause = "cannot read the placement rules: " + std::generic_category().message(code)});
  }
  return text;
}

TpPlan make_tp_plan(std::string_view tp_plan, std::string_view rules_json,
                    std::string_view config_json) {
  if (tp_plan == "auto") return TpPlan::automatic(config_json);
  if (tp_plan == "replicate") return TpPlan::replicate_all();
  return TpPlan::from_json(rules_json, config_json, tp_plan);
}

}  // namespace safeshuffle::pipeline

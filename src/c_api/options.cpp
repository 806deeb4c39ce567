#include "c_api/options.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "safeshuffle/error.hpp"

namespace safeshuffle::c_api {
namespace {

/// Why a value is not one of an option.
struct BadValue {
  std::string expected;
};

template <class Number>
Number number(std::string_view text, const char* expected = "a number") {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) throw BadValue{expected};
  return value;
}

bool truth(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  throw BadValue{"true or false"};
}

std::chrono::milliseconds seconds(std::string_view text) {
  constexpr double most = 1e6;
  const auto value = number<double>(text, "seconds");
  if (!(value >= 0 && value <= most)) throw BadValue{"seconds, at most 1000000"};
  return std::chrono::milliseconds(std::llround(value * 1000));
}

PipelineStage stage(std::string_view text) {
  const std::size_t slash = std::min(text.find('/'), text.size());
  PipelineStage stage;
  stage.index = number<std::uint32_t>(text.substr(0, slash), "I/N, such as 0/4");
  stage.count = number<std::uint32_t>(text.substr(std::min(slash + 1, text.size())), "I/N");
  if (stage.index >= stage.count) throw BadValue{"I/N with I below N"};
  return stage;
}

template <class Value>
Value choice(std::string_view text,
             const std::vector<std::pair<std::string_view, Value>>& choices) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  throw BadValue{"one of " + names};
}

template <class Value>
Value named(std::string_view text, std::initializer_list<Value> values) {
  std::vector<std::pair<std::string_view, Value>> choices;
  for (const Value value : values) choices.emplace_back(name(value), value);
  return choice(text, choices);
}

using Set = void (*)(Options&, std::string_view);

const std::map<std::string, Set, std::less<>>& setters() {
  static const std::map<std::string, Set, std::less<>> map{
      {"assign",
       [](Options& options, std::string_view text) {
         options.plan.assignment =
             named(text, {Assignment::automatic, Assignment::round_robin, Assignment::balanced,
                          Assignment::striped, Assignment::sliced, Assignment::mixed});
       }},
      {"cache",
       [](Options& options, std::string_view text) { options.remote.cache = std::string(text); }},
      {"cache-size",
       [](Options& options, std::string_view text) {
         options.remote.cache_bytes = number<std::uint64_t>(text);
       }},
      {"chunk", [](Options& options,
                   std::string_view text) { options.chunk = number<std::uint64_t>(text); }},
      {"direct",
       [](Options& options, std::string_view text) {
         options.direct = choice<DirectIo>(
             text, {{"auto", DirectIo::automatic}, {"on", DirectIo::on}, {"off", DirectIo::off}});
       }},
      {"drop-cache-behind",
       [](Options& options, std::string_view text) { options.drop_cache_behind = truth(text); }},
      {"dtype",
       [](Options& options, std::string_view text) {
         options.plan.dtype = choice<DTypePolicy>(text, {{"keep", DTypePolicy::keep},
                                                         {"f16", DTypePolicy::f16},
                                                         {"bf16", DTypePolicy::bf16},
                                                         {"f32", DTypePolicy::f32}});
       }},
      {"experts",
       [](Options& options, std::string_view text) {
         options.experts = choice<ExpertPlacement>(
             text, {{"cut", ExpertPlacement::cut}, {"parallel", ExpertPlacement::parallel}});
       }},
      {"header",
       [](Options& options, std::string_view text) { options.remote.headers.emplace_back(text); }},
      {"io",
       [](Options& options, std::string_view text) {
         options.io = choice<IoEngine>(text, {{"auto", IoEngine::automatic},
                                              {"posix", IoEngine::posix},
                                              {"uring", IoEngine::uring},
                                              {"gds", IoEngine::gds}});
       }},
      {"keep-dtype",
       [](Options& options, std::string_view text) { options.plan.keep_dtype.emplace_back(text); }},
      {"memory-budget",
       [](Options& options, std::string_view text) {
         options.plan.memory_budget = number<std::uint64_t>(text);
       }},
      {"only",
       [](Options& options, std::string_view text) { options.selection.only.emplace_back(text); }},
      {"order",
       [](Options& options, std::string_view text) {
         options.plan.order = named(text, {Order::file, Order::layer});
       }},
      {"pipeline-stage",
       [](Options& options, std::string_view text) { options.selection.stage = stage(text); }},
      {"replicas",
       [](Options& options, std::string_view text) {
         options.plan.replicas = number<std::uint32_t>(text);
       }},
      {"skip",
       [](Options& options, std::string_view text) { options.selection.skip.emplace_back(text); }},
      {"source",
       [](Options& options, std::string_view text) { options.remote.sources.emplace_back(text); }},
      {"strict", [](Options& options, std::string_view text) { options.strict = truth(text); }},
      {"threads",
       [](Options& options, std::string_view text) { options.threads = number<unsigned>(text); }},
      {"timeout", [](Options& options, std::string_view text) { options.timeout = seconds(text); }},
      {"tp-plan", [](Options& options, std::string_view text) { options.tp_plan = text; }},
      {"window", [](Options& options,
                    std::string_view text) { options.plan.window = number<std::uint64_t>(text); }},
  };
  return map;
}

}  // namespace

void set_option(Options& options, const std::string& name, std::string_view value) {
  const auto setter = setters().find(name);
  if (setter == setters().end()) throw ConfigError("there is no option '" + name + "'");
  try {
    setter->second(options, value);
  } catch (const BadValue& bad) {
    throw ConfigError("the option " + name + " takes " + bad.expected + ", not '" +
                      std::string(value) + "'");
  }
}

}  // namespace safeshuffle::c_api

#include "placement/strict_json.hpp"

#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "placement/config_error.hpp"

namespace safeshuffle::placement {
namespace {

using nlohmann::json;

constexpr int max_depth = 32;

/// Sees every event of the parser; the keys of all open objects are remembered.
class Guard {
 public:
  explicit Guard(const std::string& origin) : origin_(origin) {}

  bool operator()(int depth, json::parse_event_t event, json& value) {
    if (depth > max_depth) {
      fail_config(origin_, "", "nested deeper than " + std::to_string(max_depth) + " levels");
    }
    if (event == json::parse_event_t::object_start) open_.emplace_back();
    if (event == json::parse_event_t::object_end) open_.pop_back();
    if (event == json::parse_event_t::key) check_new(value.get_ref<const std::string&>());
    return true;
  }

 private:
  void check_new(const std::string& key) {
    if (!open_.back().insert(key).second) fail_config(origin_, key, "appears twice");
  }

  const std::string& origin_;
  std::vector<std::set<std::string>> open_;
};

}  // namespace

json parse_strict(std::string_view text, const std::string& origin) {
  // The parser takes a NUL byte for the end of the text.
  if (text.find('\0') != std::string_view::npos)
    fail_config(origin, "", "not valid JSON: a NUL byte");
  try {
    Guard guard(origin);
    return json::parse(text, std::ref(guard));
  } catch (const json::exception& error) {
    fail_config(origin, "", std::string("not valid JSON: ") + error.what());
  }
}

}  // namespace safeshuffle::placement

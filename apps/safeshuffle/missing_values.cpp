#include "missing_values.hpp"

#include <string>

namespace safeshuffle::app {
namespace {

// The parser mistakes the next option for the value of an option without one.
std::string complain_if_missing(const std::string& value) {
  if (value.empty()) return "the value must not be empty";
  return value.starts_with("--") ? "the value is missing before " + value : "";
}

}  // namespace

void refuse_missing_values(CLI::App& parser) {
  for (CLI::App* sub : parser.get_subcommands({})) {
    for (CLI::Option* option : sub->get_options()) {
      if (option->get_items_expected_max() > 0) option->check(complain_if_missing);
    }
  }
}

}  // namespace safeshuffle::app

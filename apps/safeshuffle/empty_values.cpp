#include "empty_values.hpp"

#include <string>

namespace safeshuffle::app {
namespace {

std::string complain_if_empty(const std::string& value) {
  return value.empty() ? "the value must not be empty" : "";
}

}  // namespace

void refuse_empty_values(CLI::App& parser) {
  for (CLI::App* sub : parser.get_subcommands({})) {
    for (CLI::Option* option : sub->get_options()) {
      if (option->get_items_expected_max() > 0) option->check(complain_if_empty);
    }
  }
}

}  // namespace safeshuffle::app

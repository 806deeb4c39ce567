#include "help.hpp"

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "safeshuffle/error.hpp"

#include "core/launcher.hpp"
#include "output.hpp"

namespace safeshuffle::app {
namespace {

constexpr std::size_t left_column = 27;

/// "--window SIZE   What it does [default]".
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(left_column); }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_positional()) return option->get_expected_max() > 1 ? "..." : "";
    return option->get_type_name().empty() ? "" : " " + option->get_type_name();
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string& value = option->get_default_str();
    if (!value.empty()) return fmt::format("{} [{}]", option->get_description(), value);
    const bool required = option->get_required() && !option->get_positional();
    return option->get_description() + (required ? " (required)" : "");
  }
};

// For an unknown word, CLI11 says only that a subcommand is missing; this names the word.
std::string cause(const CLI::App& parser, const CLI::Error& error) {
  const std::vector<std::string> unknown = parser.remaining();
  if (!parser.get_subcommands().empty() || unknown.empty()) return error.what();
  return fmt::format("unknown subcommand or option '{}'", unknown.front());
}

std::string usage_message(const CLI::App* parser, const CLI::Error& error) {
  std::string command = parser->get_name();
  for (const CLI::App* sub : parser->get_subcommands()) command += " " + sub->get_name();
  return fmt::format("{}; see '{} --help'", cause(*parser, error), command);
}

// The parser mistakes the next option for the value of an option without one.
std::string complain_if_missing(const std::string& value) {
  if (value.empty()) return "the value must not be empty";
  return value.starts_with("--") ? "the value is missing before " + value : "";
}

}  // namespace

void set_up_help(CLI::App& parser) {
  parser.set_help_flag("-h,--help", "Show this help");
  parser.formatter(std::make_shared<HelpFormatter>());
  parser.failure_message(usage_message);
}

void refuse_missing_values(CLI::App& parser) {
  for (CLI::App* sub : parser.get_subcommands({})) {
    for (CLI::Option* option : sub->get_options()) {
      if (option->get_items_expected_max() > 0) option->check(complain_if_missing);
    }
  }
}

void explain(const CLI::App& parser, const CLI::ParseError& error) {
  std::ostringstream out;
  std::ostringstream err;
  if (parser.exit(error, out, err) != 0) throw ConfigError(err.str());
  if (core::launched_rank() == 0) print_result(out.str());
}

}  // namespace safeshuffle::app

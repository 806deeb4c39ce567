#include "option.hpp"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "size.hpp"

namespace safeshuffle::app {

CLI::Option* add_value(CLI::App& parser, const std::string& name, const std::string& metavar,
                       std::function<void(const std::string&)> set, const std::string& help) {
  return parser.add_option_function<std::string>(name, std::move(set), help)->type_name(metavar);
}

CLI::Option* add_size(CLI::App& parser, const std::string& name, std::uint64_t& value,
                      const std::string& help, std::uint64_t least) {
  const auto set = [&value, name, least](const std::string& text) {
    const auto bytes = parse_size(text);
    if (!bytes) throw CLI::ValidationError(name, "'" + text + "' is not a size");
    if (*bytes < least) {
      throw CLI::ValidationError(name, fmt::format("must be at least {} bytes", least));
    }
    value = *bytes;
  };
  return add_value(parser, name, "SIZE", set, help);
}

void refuse_choice(const std::string& name, const std::string& text, const std::string& choices) {
  throw CLI::ValidationError(name, "'" + text + "' is not one of " + choices);
}

}  // namespace safeshuffle::app

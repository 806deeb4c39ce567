#include "option.hpp"

#include <charconv>
#include <optional>
#include <system_error>
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

CLI::Option* add_count(CLI::App& parser, const std::string& name, const std::string& metavar,
                       std::uint32_t& value, std::uint32_t most, const std::string& help) {
  const auto set = [&value, name, most](const std::string& text) {
    const char* const end = text.data() + text.size();
    std::uint32_t count = 0;
    const auto [stop, code] = std::from_chars(text.data(), end, count);
    if (code != std::errc() || stop != end || count == 0 || count > most) {
      throw CLI::ValidationError(name,
                                 fmt::format("'{}' is not a number from 1 to {}", text, most));
    }
    value = count;
  };
  return add_value(parser, name, metavar, set, fmt::format("{}; 1 to {}", help, most));
}

void refuse_choice(const std::string& name, const std::string& text, const std::string& choices) {
  throw CLI::ValidationError(name, "'" + text + "' is not one of " + choices);
}

}  // namespace safeshuffle::app

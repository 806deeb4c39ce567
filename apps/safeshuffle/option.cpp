#include "option.hpp"

#include <fmt/format.h>

namespace safeshuffle::app {

CLI::Option* add_size(CLI::App& parser, const std::string& name, std::uint64_t& value,
                      const std::string& help) {
  constexpr bool kb_is_1000 = true;
  // Far above any memory or file; some versions of the parser read -1 as 2^64 - 1.
  constexpr std::uint64_t largest = std::uint64_t{1} << 53;
  return parser.add_option(name, value, help)
      ->transform(CLI::AsSizeValue(kb_is_1000).description(""))
      ->check(CLI::Range(largest).description(""))
      ->type_name("SIZE");
}

CLI::Option* add_count(CLI::App& parser, const std::string& name, const std::string& metavar,
                       std::uint32_t& value, std::uint32_t most, const std::string& help) {
  return parser.add_option(name, value, fmt::format("{}; 1 to {}", help, most))
      ->check(CLI::Range(1U, most).description(""))
      ->type_name(metavar);
}

CLI::Option* add_name(CLI::App& parser, const std::string& name, const std::string& metavar,
                      const std::vector<std::string>& names,
                      const std::function<void(const std::string&)>& set, const std::string& help) {
  const std::string full_help = fmt::format("{}: {}", help, fmt::join(names, ", "));
  return parser.add_option_function<std::string>(name, set, full_help)
      ->transform(CLI::IsMember(names, CLI::ignore_case).description(""))
      ->type_name(metavar);
}

}  // namespace safeshuffle::app

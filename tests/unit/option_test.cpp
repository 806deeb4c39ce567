// Options that take one of several named values, a number, or a size.
#include "option.hpp"

#include <string>

#include "support/catch.hpp"

using namespace safeshuffle::app;

namespace {

enum class Fruit { apple, pear };

const Choices<Fruit> fruits{{"auto", Fruit::pear}, {"apple", Fruit::apple}, {"pear", Fruit::pear}};

struct Parsed {
  Fruit fruit = Fruit::apple;
  CLI::App parser;

  Parsed() { add_choice(parser, "--fruit", "FRUIT", fruit, fruits, "What to eat"); }
  void parse(const std::string& line) { parser.parse(line); }
};

}  // namespace

TEST_CASE("A choice is taken by name, in any case", "[choice]") {
  Parsed parsed;
  parsed.parse("--fruit PEAR");
  CHECK(parsed.fruit == Fruit::pear);
}

TEST_CASE("A choice not made leaves the default", "[choice]") {
  Parsed parsed;
  parsed.parse("");
  CHECK(parsed.fruit == Fruit::apple);
  CHECK(parsed.parser.get_option("--fruit")->get_default_str() == "apple");
}

TEST_CASE("What is no choice is refused with those there are", "[choice]") {
  Parsed parsed;
  CHECK_THROWS_WITH(parsed.parse("--fruit plum"), Catch::Matchers::Contains("--fruit: ") &&
                                                      Catch::Matchers::Contains("plum") &&
                                                      Catch::Matchers::Contains("auto,apple,pear"));
}

TEST_CASE("A count is a number within its limits, which the help says", "[option]") {
  std::uint32_t count = 7;
  CLI::App parser;
  const CLI::Option* const option = add_count(parser, "--count", "N", count, 12, "How many");
  CHECK(option->get_description() == "How many; 1 to 12");
  parser.parse("--count 12");
  CHECK(count == 12);
  for (const std::string text : {"0", "13", "-1", "1x", "x", "1.0", "4294967297"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parser.parse("--count=" + text), CLI::ValidationError);
  }
  CHECK(count == 12);
}

TEST_CASE("Sizes are read with and without a unit", "[option]") {
  const auto [text, bytes] = GENERATE(table<std::string, std::uint64_t>({
      {"0", 0},
      {"4096", 4096},
      {"7B", 7},
      {"1k", 1000},
      {"2kB", 2000},
      {"2KB", 2000},
      {"4KiB", 4096},
      {"64mib", 64 << 20},
      {"2GB", 2'000'000'000},
      {"1TiB", std::uint64_t{1} << 40},
  }));
  CAPTURE(text);
  std::uint64_t size = 1;
  CLI::App parser;
  add_size(parser, "--size", size, "How much");
  parser.parse("--size " + text);
  CHECK(size == bytes);
}

TEST_CASE("What is no size is refused", "[option]") {
  const std::string text = GENERATE("abc", "-1", "1.5GiB", "1KiBs", "1iB", "0x", "99EiB");
  CAPTURE(text);
  std::uint64_t size = 1;
  CLI::App parser;
  add_size(parser, "--size", size, "How much");
  CHECK_THROWS_AS(parser.parse("--size=" + text), CLI::ParseError);
}

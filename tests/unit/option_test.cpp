// Options that take one of several named values, or a number.
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
  try {
    parsed.parse("--fruit plum");
    FAIL("accepted");
  } catch (const CLI::ValidationError& error) {
    CHECK(std::string(error.what()) == "--fruit: 'plum' is not one of auto, apple, pear");
  }
}

TEST_CASE("A count is a number within its limits, which the help says", "[option]") {
  std::uint32_t count = 7;
  CLI::App parser;
  const CLI::Option* const option = add_count(parser, "--count", "N", count, 12, "How many");
  CHECK(option->get_description() == "How many; 1 to 12");
  parser.parse("--count 12");
  CHECK(count == 12);
  for (const std::string text : {"0", "13", "-1", "1x", "x", "+1", "1.0", "4294967297"}) {
    try {
      parser.parse("--count=" + text);
      FAIL("accepted " + text);
    } catch (const CLI::ValidationError& error) {
      CHECK(error.what() == "--count: '" + text + "' is not a number from 1 to 12");
    }
  }
  CHECK(count == 12);
}

TEST_CASE("A value goes by its first name", "[choice]") {
  CHECK(name_of(fruits, Fruit::pear) == "auto");
  CHECK(name_of(fruits, Fruit::apple) == "apple");
}

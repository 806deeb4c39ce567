// Plain-text tables.
#include "table.hpp"

#include "support/catch.hpp"

using namespace safeshuffle::app;

TEST_CASE("Columns are as wide as their widest cell", "[table]") {
  Table table({{"name", Align::left}, {"bytes"}, {"n"}});
  table.add({"a", "1", "1000"});
  table.add({"longer", "123456", "2"});
  CHECK(table.text() ==
        "name     bytes     n\n"
        "--------------------\n"
        "a            1  1000\n"
        "longer  123456     2\n");
}

TEST_CASE("No line ends with a space", "[table]") {
  Table table({{"n"}, {"path", Align::left}});
  table.add({"1", "a/longer/path"});
  table.add({"2", ""});
  CHECK(table.text() ==
        "n  path\n"
        "----------------\n"
        "1  a/longer/path\n"
        "2\n");
}

TEST_CASE("A table without rows is its header", "[table]") {
  CHECK(Table({{"rank"}, {"read"}}).text() ==
        "rank  read\n"
        "----------\n");
}

TEST_CASE("A row stays one line whatever its cells hold", "[table]") {
  Table table({{"tensor", Align::left}, {"bytes"}});
  table.add({"a\nb\x1b[31m", "4"});
  CHECK(table.text() ==
        "tensor    bytes\n"
        "---------------\n"
        "a?b?[31m      4\n");
}

// Sizes and counts as people write them.
#include "size.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "support/catch.hpp"

using namespace safeshuffle::app;

TEST_CASE("Sizes are read with and without a unit", "[size]") {
  const auto [text, bytes] = GENERATE(table<std::string, std::uint64_t>({
      {"0", 0},
      {"4096", 4096},
      {"7B", 7},
      {"1k", 1000},
      {"2kB", 2000},
      {"2KB", 2000},
      {"4KiB", 4096},
      {"64mib", 64 << 20},
      {"1.5GiB", 3 * (std::uint64_t{1} << 29)},
      {"2GB", 2'000'000'000},
      {"1TiB", std::uint64_t{1} << 40},
      {"1PB", 1'000'000'000'000'000},
      {"0.0005kB", 1},
  }));
  CAPTURE(text);
  CHECK(parse_size(text) == bytes);
}

TEST_CASE("What is no size is refused", "[size]") {
  const std::string text =
      GENERATE("", "abc", "-1", "+1", " 1", "1 KiB", ".5KiB", "1.2.3", "1KiBs", "1iB", "1EiB",
               "1ki8", "0x10", "1e3", "9PiB", "1000000000000PB");
  CAPTURE(text);
  CHECK_FALSE(parse_size(text).has_value());
}

TEST_CASE("Sizes are shown with three digits", "[size]") {
  const auto [bytes, text] = GENERATE(table<std::uint64_t, std::string>({
      {0, "0 B"},
      {999, "999 B"},
      {1000, "1.00 kB"},
      {9994, "9.99 kB"},
      {9995, "10.0 kB"},
      {99'949, "99.9 kB"},
      {99'950, "100 kB"},
      {999'499, "999 kB"},
      {999'500, "1.00 MB"},
      {1'491'929'088, "1.49 GB"},
      {std::numeric_limits<std::uint64_t>::max(), "18.4 EB"},
  }));
  CHECK(format_size(bytes) == text);
}

TEST_CASE("Sizes that are exact in powers of 1024 are shown so", "[size]") {
  const auto [bytes, text] = GENERATE(table<std::uint64_t, std::string>({
      {0, "0 B"},
      {1000, "1.00 kB"},
      {1024, "1 KiB"},
      {1536 << 10, "1536 KiB"},
      {64 << 20, "64 MiB"},
      {100'000'000, "100 MB"},
      {std::uint64_t{4} << 30, "4 GiB"},
      {std::uint64_t{1} << 63, "8192 PiB"},
  }));
  CHECK(format_binary_size(bytes) == text);
}

TEST_CASE("What was shown in powers of 1024 reads back the same", "[size]") {
  const std::uint64_t bytes = GENERATE(std::uint64_t{1} << 12, std::uint64_t{3} << 20,
                                       std::uint64_t{1} << 30, std::uint64_t{5} << 40);
  std::string text = format_binary_size(bytes);
  text.erase(text.find(' '), 1);
  CHECK(parse_size(text) == bytes);
}

TEST_CASE("Counts have a plural, except one", "[size]") {
  CHECK(count(0, "wave") == "0 waves");
  CHECK(count(1, "wave") == "1 wave");
  CHECK(count(2, "wave") == "2 waves");
}

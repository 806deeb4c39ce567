// Sizes and counts for people.
#include "size.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "support/catch.hpp"

using namespace safeshuffle::app;

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

TEST_CASE("Counts have a plural, except one", "[size]") {
  CHECK(count(0, "wave") == "0 waves");
  CHECK(count(1, "wave") == "1 wave");
  CHECK(count(2, "wave") == "2 waves");
}

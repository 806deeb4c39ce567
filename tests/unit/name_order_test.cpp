// Sorting names.
#include "core/name_order.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/pseudo_random.hpp"

using namespace safeshuffle;

namespace {

using Names = std::vector<std::string>;

std::vector<std::uint32_t> order(const Names& names) {
  const auto name_of = [&](std::uint32_t i) { return std::string_view(names[i]); };
  return core::NameSort(name_of).order(names.size());
}

std::vector<std::uint32_t> order_by_comparing(const Names& names) {
  std::vector<std::uint32_t> indices(names.size());
  std::iota(indices.begin(), indices.end(), 0U);
  std::ranges::stable_sort(indices, {},
                           [&](std::uint32_t i) { return std::string_view(names[i]); });
  return indices;
}

}  // namespace

TEST_CASE("names are ordered as comparing them orders them", "[names]") {
  testing::PseudoRandom random(7);
  const std::uint64_t letters = GENERATE(1U, 2U, 3U, 200U);
  const std::uint64_t longest = GENERATE(3U, 9U, 40U);
  const std::string prefix = GENERATE(as<std::string>(), "", "layers.", "model.layers.x");
  Names names;
  for (int i = 0; i < 500; ++i) {
    std::string name = prefix;
    for (std::uint64_t length = random.below(longest + 1); length != 0; --length) {
      name += static_cast<char>(random.below(letters) + (letters > 100 ? 100 : 0));
    }
    names.push_back(std::move(name));
  }
  CHECK(order(names) == order_by_comparing(names));
}

TEST_CASE("few names, and none, are ordered", "[names]") {
  CHECK(order({}).empty());
  CHECK(order({"b", "a", "", "a"}) == std::vector<std::uint32_t>{2, 1, 3, 0});
}

TEST_CASE("a name that ends precedes one that goes on with NUL", "[names]") {
  Names names(20, "aaaaaaaaaaaa");
  for (std::size_t i = 0; i < names.size(); ++i) names[i] += std::string(names.size() - i, '\0');
  CHECK(order(names) == order_by_comparing(names));
  CHECK(order(names).front() == 19);
}

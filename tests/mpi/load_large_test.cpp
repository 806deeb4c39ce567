// A tensor above 2^31 bytes, in one wave.
#include <algorithm>
#include <fstream>

#include "safeshuffle/loader.hpp"

#include "support/catch.hpp"
#include "support/group.hpp"
#include "support/shared_model.hpp"

using namespace safeshuffle;
using namespace safeshuffle::testing;

namespace {

constexpr std::uint64_t size = (std::uint64_t{1} << 31) + 4097;
constexpr std::uint64_t marks[] = {0, (std::uint64_t{1} << 31) - 1, std::uint64_t{1} << 31,
                                   size - 1};

/// Zeros, mostly a hole in the file, and some ones.
void write_sparse(const std::string& path) {
  output::FileWriter writer(path, format::layout_header({{"large", DType::U8, {size}}}));
  writer.extend();
  const std::byte one{1};
  for (const std::uint64_t mark : marks) writer.write(0, mark, {&one, 1});
  writer.commit();
}

}  // namespace

TEST_CASE("a replicated tensor above 2^31 bytes arrives in one run", "[.][large]") {
  const SharedDirectory directory;
  directory.fill([&] { write_sparse(directory / "large.safetensors"); });
  const Communicator& comm = shared_group();
  Options options;
  options.tp_plan = "replicate";
  options.plan.window = std::uint64_t{4} << 30;
  const TensorSet loaded = load(directory / "large.safetensors", comm, options);
  const TensorView& view = loaded.at("large");
  CHECK(loaded.report().waves == 1);
  REQUIRE(view.bytes == size);
  CHECK(std::count(view.data, view.data + size, std::byte{0}) == std::ptrdiff_t{size - 4});
  for (const std::uint64_t mark : marks) CHECK(view.data[mark] == std::byte{1});
}

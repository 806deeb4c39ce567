// The pack kernel on a GPU, through the device interface, against packing on the host: the tables
// of the unit test of the same name, and items of more than 2^32 rows and bytes.
#include <memory>
#include <vector>

#include "contract/device_contract.hpp"
#include "gpu/open_gpu.hpp"
#include "support/catch.hpp"
#include "support/pack_cases.hpp"

using namespace safeshuffle;
using testing::Bytes;
using testing::ConvertPair;
using testing::PackTable;
using testing::PackTargets;

namespace {

constexpr std::uint64_t mi = std::uint64_t{1} << 20;
constexpr std::uint64_t gi = std::uint64_t{1} << 30;

/// Null for no bytes.
std::shared_ptr<std::byte> upload(device::Device& device, const Bytes& data) {
  return data.empty() ? nullptr : contract::upload(device, data);
}

PackTargets packed_by(device::Device& device, const PackTable& table) {
  const auto slab = upload(device, table.slab());
  const auto arena = upload(device, table.blank().arena);
  const auto send = upload(device, table.blank().send);
  contract::pack_and_wait(device, table.items(), {slab.get(), arena.get(), send.get()});
  return {contract::download(device, arena.get(), table.blank().arena.size()),
          contract::download(device, send.get(), table.blank().send.size())};
}

void check(device::Device& device, const PackTable& table) {
  CHECK(difference(packed_by(device, table), table.packed()) == "");
}

void check_bytes(device::Device& device, const std::byte* actual, const Bytes& expected) {
  CHECK((contract::download(device, actual, expected.size()) == expected));
}

}  // namespace

TEST_CASE("the GPU packs at every misalignment for every pair of types",
          "[pack_kernel][sanitized]") {
  check(*open_gpu(), testing::every_misalignment());
}

TEST_CASE("the GPU packs random tables", "[pack_kernel][sanitized]") {
  const auto gpu = open_gpu();
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    check(*gpu, testing::random_table(seed));
  }
}

TEST_CASE("the GPU packs rows of any length", "[pack_kernel]") {
  const auto gpu = open_gpu();
  for (const ConvertPair pair : testing::pack_pairs()) {
    CAPTURE(name(pair.from), name(pair.to));
    check(*gpu, testing::row_shapes(pair));
  }
}

TEST_CASE("the GPU converts every value as the host does", "[pack_kernel]") {
  const auto gpu = open_gpu();
  for (const ConvertPair pair : testing::convert_pairs()) {
    CAPTURE(name(pair.from), name(pair.to));
    check(*gpu, testing::every_value(pair));
  }
}

TEST_CASE("the GPU leaves what adjoins alone", "[pack_kernel][sanitized]") {
  check(*open_gpu(), testing::adjoining_items());
}

TEST_CASE("the GPU packs large items", "[pack_kernel]") {
  const auto gpu = open_gpu();
  PackTable table;
  table.add({{DType::U8, DType::U8}, 1, 16 * mi + 77, 0, 0, 3, 0});
  table.add({{DType::BF16, DType::F16}, 1, 6 * mi - 3, 0, 0, 1, 8, PackTarget::pack_buffer});
  table.add({{DType::F32, DType::BF16}, 1000, 4097, 12, 2, 5, 4});
  table.add({{DType::BF16, DType::F32}, 1000, 2048, 4096, 0, 2, 0, PackTarget::pack_buffer});
  table.add({{DType::U8, DType::U8}, mi + 1, 1, 2, 1, 0, 0});
  check(*gpu, table);
}

TEST_CASE("the GPU packs a block of more than 2^32 bytes", "[pack_kernel][large]") {
  const auto gpu = open_gpu();
  const std::uint64_t bytes = 4 * gi + mi + 5;
  const auto slab = gpu->allocate(bytes + 3);
  const auto arena = gpu->allocate(bytes);
  const Bytes front = testing::PseudoRandom(1).bytes(mi);
  const Bytes back = testing::PseudoRandom(2).bytes(mi);
  contract::upload(*gpu, slab.get() + 3, front);
  contract::upload(*gpu, slab.get() + 3 + bytes - mi, back);
  PackItem item{.source = 3, .rows = 1, .row_bytes = bytes};
  item.source_stride = item.destination_stride = bytes;
  contract::pack_and_wait(*gpu, {item}, {slab.get(), arena.get(), nullptr});
  check_bytes(*gpu, arena.get(), front);
  check_bytes(*gpu, arena.get() + bytes - mi, back);
}

TEST_CASE("the GPU packs more than 2^32 rows", "[pack_kernel][large]") {
  const auto gpu = open_gpu();
  const PackItem item{
      .rows = 4 * gi + mi, .row_bytes = 1, .source_stride = 2, .destination_stride = 1};
  const auto slab = gpu->allocate(item.rows * 2);
  const auto arena = gpu->allocate(item.rows);
  const Bytes pairs = testing::PseudoRandom(3).bytes(2 * mi);
  contract::upload(*gpu, slab.get() + (item.rows - mi) * 2, pairs);
  contract::pack_and_wait(*gpu, {item}, {slab.get(), arena.get(), nullptr});
  Bytes expected(mi);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = pairs[2 * i];
  check_bytes(*gpu, arena.get() + item.rows - mi, expected);
}

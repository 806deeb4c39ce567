// What every device must do, however its memory is reached. A new device is tested by one file:
//
//   TEST_CASE("the host device keeps the contract", "[device]") { check_device(make_it); }
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "safeshuffle/error.hpp"

#include "device/convert.hpp"
#include "device/device.hpp"
#include "support/catch.hpp"
#include "support/device_memory.hpp"
#include "support/pseudo_random.hpp"

namespace safeshuffle::contract {

using testing::Bytes;
using testing::download;
using testing::upload;
using testing::wait_for_slot;
using testing::wait_until;
using DeviceFactory = std::function<std::shared_ptr<device::Device>()>;

inline void pack_and_wait(device::Device& device, const std::vector<PackItem>& items,
                          const device::PackBuffers& buffers) {
  const auto queue = device.make_queue();
  const auto packer = device.make_packer(*queue);
  packer->pack(items, buffers);
  wait_until([&] { return queue->idle(); });
}

inline void check_allocation(device::Device& device) {
  SECTION("memory is aligned, usable to its last byte, and nobody else's") {
    std::vector<std::shared_ptr<std::byte>> blocks;
    const std::vector<std::size_t> sizes{1, 4095, 4096, 4097, (std::size_t{4} << 20) + 1};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      blocks.push_back(upload(device, Bytes(sizes[i], std::byte(i + 1))));
      CHECK(reinterpret_cast<std::uintptr_t>(blocks.back().get()) % 4096 == 0);
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      CHECK((download(device, blocks[i].get(), sizes[i]) == Bytes(sizes[i], std::byte(i + 1))));
    }
  }
  SECTION("memory that cannot be had is an error that names the bytes") {
    for (const std::uint64_t bytes : {std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
      try {
        device.allocate(bytes);
        FAIL("no exception");
      } catch (const MemoryError& error) {
        CHECK(error.record().cause.find(std::to_string(bytes)) != std::string::npos);
      }
    }
  }
}

inline void check_staging(device::Device& device) {
  testing::PseudoRandom random(1);
  SECTION("what is staged arrives, at any offset, and only there") {
    const Bytes background = random.bytes(50000);
    const Bytes data = random.bytes(20001);
    const auto memory = upload(device, background);
    upload(device, memory.get() + 333, data);
    Bytes expected = background;
    std::copy(data.begin(), data.end(), expected.begin() + 333);
    CHECK((download(device, memory.get(), expected.size()) == expected));
  }
  SECTION("slots given back can be had again") {
    const auto memory = device.allocate(4096);
    const auto staging = device.make_staging(4096, 2);
    for (int i = 0; i < 10; ++i) {
      const auto slot = staging->try_acquire(memory.get(), 4096, 0);
      REQUIRE(slot);
      staging->discard(*slot);
    }
  }
  SECTION("a slot is free again when its data has landed") {
    const auto memory = device.allocate(4096);
    const auto staging = device.make_staging(4096, 1);
    for (int i = 0; i < 100; ++i) {
      const auto slot = staging->try_acquire(memory.get(), 4096, 0);
      REQUIRE(slot);
      std::promise<bool> landed;
      staging->commit(*slot, [&] {
        const auto next = staging->try_acquire(memory.get(), 4096, 0);
        if (next) staging->discard(*next);
        landed.set_value(next.has_value());
      });
      CHECK(landed.get_future().get());
    }
  }
  SECTION("several threads may stage at once") {
    constexpr std::size_t threads = 4;
    constexpr std::size_t piece = 1000;
    constexpr std::size_t pieces = 50;
    const Bytes data = random.bytes(threads * pieces * piece);
    const auto memory = device.allocate(data.size());
    const auto staging = device.make_staging(piece, 3);
    std::atomic<std::size_t> landed{0};
    const auto stage_every_fourth = [&](std::size_t first) {
      for (std::size_t i = first; i < threads * pieces; i += threads) {
        const auto slot = wait_for_slot(*staging, memory.get() + i * piece, piece);
        std::copy_n(data.data() + i * piece, piece, slot.host.data());
        staging->commit(slot, [&landed] { ++landed; });
      }
    };
    std::vector<std::thread> workers;
    for (std::size_t i = 0; i < threads; ++i) workers.emplace_back(stage_every_fourth, i);
    for (std::thread& worker : workers) worker.join();
    wait_until([&] { return landed == threads * pieces; });
    CHECK((download(device, memory.get(), data.size()) == data));
  }
}

inline void check_pack(device::Device& device) {
  testing::PseudoRandom random(2);
  const Bytes slab = random.bytes(100001);
  const auto slab_memory = upload(device, slab);
  const auto arena = upload(device, Bytes(100001));
  const auto send = upload(device, Bytes(100001));
  const device::PackBuffers buffers{slab_memory.get(), arena.get(), send.get()};

  SECTION("copies rows from odd offsets to both targets") {
    const PackItem rows{.source = 3,
                        .destination = 256,
                        .rows = 20,
                        .row_bytes = 77,
                        .source_stride = 100,
                        .destination_stride = 80};
    PackItem block{.source = 5001,
                   .destination = 1,
                   .rows = 1,
                   .row_bytes = 40000,
                   .source_stride = 40000,
                   .destination_stride = 40000};
    block.target = PackTarget::pack_buffer;
    pack_and_wait(device, {rows, block}, buffers);
    Bytes expected(256 + 20 * 80);
    for (std::size_t row = 0; row < 20; ++row) {
      std::copy_n(slab.data() + 3 + row * 100, 77, expected.data() + 256 + row * 80);
    }
    CHECK((download(device, arena.get(), expected.size()) == expected));
    CHECK((download(device, send.get() + 1, 40000) ==
           Bytes(slab.begin() + 5001, slab.begin() + 45001)));
  }
  SECTION("converts as the portable functions do") {
    const PackItem item{.source = 11,
                        .destination = 512,
                        .rows = 1,
                        .row_bytes = 60000,
                        .source_stride = 60000,
                        .destination_stride = 60000,
                        .from = DType::BF16,
                        .to = DType::F16};
    pack_and_wait(device, {item}, buffers);
    Bytes expected(60000);
    device::scalar_convert(DType::BF16, DType::F16)(slab.data() + 11, expected.data(), 30000);
    CHECK((download(device, arena.get() + 512, 60000) == expected));
  }
  SECTION("works in order, and needs the table only during the call") {
    const PackItem item{.source = 1,
                        .destination = 0,
                        .rows = 1,
                        .row_bytes = 90000,
                        .source_stride = 90000,
                        .destination_stride = 90000};
    std::vector<PackItem> table{item};
    const auto queue = device.make_queue();
    const auto packer = device.make_packer(*queue);
    packer->pack(table, buffers);
    table[0].source = 0;
    packer->pack(table, {arena.get(), send.get(), nullptr});
    table[0] = {};
    wait_until([&] { return queue->idle(); });
    CHECK((download(device, send.get(), 90000) == Bytes(slab.begin() + 1, slab.begin() + 90001)));
  }
  SECTION("zeros rows, and nothing between them") {
    const auto queue = device.make_queue();
    const auto packer = device.make_packer(*queue);
    packer->zero(slab_memory.get() + 13, 30, 77, 1001);
    packer->zero(slab_memory.get() + 50003, 1, 40000, 40000);
    wait_until([&] { return queue->idle(); });
    Bytes expected = slab;
    for (std::size_t row = 0; row < 30; ++row) {
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(13 + row * 1001), 77,
                  std::byte{0});
    }
    std::fill_n(expected.begin() + 50003, 40000, std::byte{0});
    CHECK((download(device, slab_memory.get(), slab.size()) == expected));
  }
  SECTION("an empty table is no work") {
    CHECK_NOTHROW(pack_and_wait(device, {}, buffers));
  }
  SECTION("queues of several threads do not disturb each other") {
    const auto copy_to = [&](PackTarget target) {
      const PackItem item{.rows = 300,
                          .row_bytes = 300,
                          .source_stride = 333,
                          .destination_stride = 300,
                          .target = target};
      const auto queue = device.make_queue();
      const auto packer = device.make_packer(*queue);
      packer->pack(std::vector<PackItem>(1, item), buffers);
      while (!queue->idle()) std::this_thread::yield();
    };
    std::thread other(copy_to, PackTarget::arena);
    copy_to(PackTarget::pack_buffer);
    other.join();
    CHECK((download(device, arena.get(), 90000) == download(device, send.get(), 90000)));
    CHECK((download(device, arena.get() + 300 * 299, 300) ==
           Bytes(slab.begin() + 333 * 299, slab.begin() + 333 * 299 + 300)));
  }
}

inline void check_lifetime(const DeviceFactory& make) {
  SECTION("memory, queues and packers outlive the handle they came from") {
    const Bytes data = testing::PseudoRandom(3).bytes(5000);
    auto device = make();
    const auto source = upload(*device, data);
    const auto target = device->allocate(data.size());
    const auto queue = device->make_queue();
    const auto packer = device->make_packer(*queue);
    device.reset();
    const PackItem item{.rows = 1,
                        .row_bytes = data.size(),
                        .source_stride = data.size(),
                        .destination_stride = data.size()};
    packer->pack(std::vector<PackItem>(1, item), {source.get(), target.get(), nullptr});
    wait_until([&] { return queue->idle(); });
    CHECK((download(*make(), target.get(), data.size()) == data));
  }
}

/// The whole contract, as sections of the calling test case.
inline void check_device(const DeviceFactory& make) {
  const auto device = make();
  CHECK_FALSE(device->description().empty());
  check_allocation(*device);
  check_staging(*device);
  check_pack(*device);
  check_lifetime(make);
}

}  // namespace safeshuffle::contract

// source/cached: the share of an object that is in the page cache.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/defaults.hpp"
#include "source/cached.hpp"
#include "support/catch.hpp"

using namespace safeshuffle;
using core::mebibyte;

namespace {

/// An object without contents, of whose bytes the page cache has what the test says.
class Object final : public source::Handle {
 public:
  explicit Object(std::uint64_t size) { identity_.size = size; }

  const core::FileIdentity& identity() const noexcept override { return identity_; }
  std::size_t read_some(std::uint64_t, std::span<std::byte>) const override { return 0; }

  std::optional<std::uint64_t> cached_bytes(std::uint64_t, std::uint64_t bytes) const override {
    if (!known) return {};
    return static_cast<std::uint64_t>(*known * static_cast<double>(bytes));
  }

  std::optional<std::uint64_t> sampled_cached_bytes(std::uint64_t,
                                                    std::uint64_t bytes) const override {
    if (!sampled) return {};
    return static_cast<std::uint64_t>(*sampled * static_cast<double>(bytes));
  }

  std::optional<double> known;  // shares
  std::optional<double> sampled;

 private:
  core::FileIdentity identity_;
};

}  // namespace

TEST_CASE("the share that is cached is estimated only if it is not known", "[cached_share]") {
  Object object(100 * mebibyte);
  CHECK_FALSE(source::cached_share(object));
  CHECK_FALSE(source::likely_cached_share(object));
  object.sampled = 0.5;
  CHECK_FALSE(source::cached_share(object));
  CHECK(source::likely_cached_share(object) == 0.5);
  object.known = 0.25;
  CHECK(source::cached_share(object) == 0.25);
  CHECK(source::likely_cached_share(object) == 0.25);
}

TEST_CASE("of small objects no share is estimated", "[cached_share]") {
  Object object(mebibyte);
  object.sampled = 1;
  CHECK_FALSE(source::likely_cached_share(object));
  object.known = 1;
  CHECK(source::likely_cached_share(object) == 1);
}

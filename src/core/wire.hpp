// A minimal binary encoding for control messages between ranks of the same build.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "safeshuffle/error.hpp"

namespace safeshuffle::core {

/// Appends values; they must be read in the same order.
class WireWriter {
 public:
  WireWriter& put(std::uint64_t value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  /// In as few bytes as the value needs, seven bits in each.
  WireWriter& put_short(std::uint64_t value) {
    constexpr std::uint64_t more = 0x80;
    for (; value >= more; value >>= 7) bytes_.push_back(static_cast<char>(value % more + more));
    bytes_.push_back(static_cast<char>(value));
    return *this;
  }
  WireWriter& put(double value) { return put(std::bit_cast<std::uint64_t>(value)); }
  WireWriter& put(std::string_view text) {
    put(std::uint64_t{text.size()});
    bytes_.append(text);
    return *this;
  }
  WireWriter& put_short(std::string_view text) {
    put_short(std::uint64_t{text.size()});
    bytes_.append(text);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads values from bytes that must outlive it. Throws TransportError if they end too early.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  bool at_end() const noexcept { return bytes_.empty(); }
  std::uint64_t number() {
    std::uint64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::uint64_t short_number() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1).front());
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80U) return value;
    }
    throw TransportError("a control message is damaged");
  }
  double real() { return std::bit_cast<double>(number()); }
  std::string text() { return std::string(take(number())); }
  std::string short_text() { return std::string(take(short_number())); }

 private:
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size()) throw TransportError("a control message is truncated");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::string_view bytes_;
};

}  // namespace safeshuffle::core

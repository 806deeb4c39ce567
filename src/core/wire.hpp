// A minimal binary encoding for control messages between ranks of the same build.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "safeshuffle/error.hpp"

namespace safeshuffle::core {

/// Appends values; they must be read in the same order.
class WireWriter {
 public:
  /// In as few bytes as the value needs, seven bits in each.
  WireWriter& put(std::uint64_t value) {
    constexpr std::uint64_t more = 0x80;
    for (; value >= more; value >>= 7) bytes_.push_back(static_cast<char>(value % more + more));
    bytes_.push_back(static_cast<char>(value));
    return *this;
  }
  /// In eight bytes.
  WireWriter& put_fixed(std::uint64_t value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  WireWriter& put(double value) { return put_fixed(std::bit_cast<std::uint64_t>(value)); }
  WireWriter& put(std::string_view text) {
    put(std::uint64_t{text.size()});
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
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1).front());
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80U) return value;
    }
    throw TransportError("a control message is damaged");
  }
  std::uint64_t fixed_number() {
    std::uint64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  double real() { return std::bit_cast<double>(fixed_number()); }
  std::string text() { return std::string(take(number())); }

 private:
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size()) throw TransportError("a control message is truncated");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::string_view bytes_;
};

/// Of functions that take records of this type, constant or not.
template <class T, class Record>
concept As = std::is_same_v<std::remove_const_t<T>, Record>;

template <class T>
concept WireNumber = std::is_integral_v<T> || std::is_enum_v<T>;

/// Puts numbers, texts, points in time, optional and repeated values, what pointers point to,
/// tuples, and records: of these, the values to which `fields(record)`, found by argument-dependent
/// lookup, refers (std::tie). `out` is a WireWriter, or anything else with such members `put`.
template <class Out, class T>
void put(Out& out, const T& value) {
  if constexpr (WireNumber<T>) {
    out.put(static_cast<std::uint64_t>(value));
  } else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::string>) {
    out.put(value);
  } else if constexpr (requires { value.time_since_epoch(); }) {
    put(out, value.time_since_epoch().count());
  } else if constexpr (requires { value.has_value(); }) {
    put(out, value.has_value());
    if (value) put(out, *value);
  } else if constexpr (requires { value.get(); }) {
    put(out, value != nullptr);
    if (value) put(out, *value);
  } else if constexpr (requires { value.size(); }) {
    put(out, value.size());
    for (const auto& each : value) put(out, each);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](const auto&... each) { (put(out, each), ...); }, value);
  } else {
    put(out, fields(value));
  }
}

/// Gets what `put` has put, but for pointers.
template <class T>
void get(WireReader& in, T& value) {
  if constexpr (WireNumber<T>) {
    value = static_cast<T>(in.number());
  } else if constexpr (std::is_same_v<T, double>) {
    value = in.real();
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = in.text();
  } else if constexpr (requires { value.time_since_epoch(); }) {
    value = T(typename T::duration(in.number()));
  } else if constexpr (requires { value.has_value(); }) {
    if (in.number() != 0) get(in, value.emplace());
  } else if constexpr (requires { value.emplace_back(); }) {
    for (std::uint64_t left = in.number(); left > 0; --left) get(in, value.emplace_back());
  } else if constexpr (requires { value.size(); }) {
    in.number();
    for (auto& each : value) get(in, each);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](auto&... each) { (get(in, each), ...); }, value);
  } else {
    auto values = fields(value);
    get(in, values);
  }
}

template <class T>
std::string to_wire(const T& value) {
  WireWriter out;
  put(out, value);
  return out.take();
}

template <class T>
T from_wire(std::string_view bytes) {
  WireReader in(bytes);
  T value{};
  get(in, value);
  return value;
}

}  // namespace safeshuffle::core

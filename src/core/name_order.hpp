// Sorts many names, such as those of all tensors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace safeshuffle::core {

/// Orders indices by name, several times faster than comparing names: these lie scattered in memory
/// and begin alike, so that every comparison waits for memory. Here each name is read a few times,
/// for the eight bytes behind what it has in common with its neighbours.
template <class NameOf>
class NameSort {
 public:
  /// `name_of(index)` is a string_view.
  explicit NameSort(const NameOf& name_of) : name_of_(name_of) {}

  /// 0 to `count` - 1, by name; those with the same name ascend.
  std::vector<std::uint32_t> order(std::size_t count) const {
    std::vector<Item> items(count);
    for (std::size_t i = 0; i < count; ++i) items[i].index = static_cast<std::uint32_t>(i);
    sort(items, 0);
    std::vector<std::uint32_t> indices(count);
    std::ranges::transform(items, indices.begin(), &Item::index);
    return indices;
  }

 private:
  struct Item {
    std::uint64_t key = 0;
    std::uint32_t index = 0;
  };

  static constexpr std::size_t few = 16;

  // The first `same` bytes are the same in all of the names.
  void sort(std::span<Item> items, std::size_t same) const {
    if (items.size() <= few) return sort_by_comparing(items);
    same = common_prefix(items, same);
    for (Item& item : items) item.key = key_of(name_of_(item.index).substr(same));
    std::ranges::sort(items, {}, &Item::key);
    for (auto begin = items.begin(); begin != items.end();) {
      const auto end = std::ranges::upper_bound(begin, items.end(), begin->key, {}, &Item::key);
      sort_equal_keys({begin, end}, same + sizeof(Item::key));
      begin = end;
    }
  }

  // A name that ends within the key has the same key as one that goes on with NUL.
  void sort_equal_keys(std::span<Item> items, std::size_t same) const {
    const bool ends = std::ranges::any_of(
        items, [&](const Item& item) { return name_of_(item.index).size() < same; });
    ends ? sort_by_comparing(items) : sort(items, same);
  }

  void sort_by_comparing(std::span<Item> items) const {
    std::ranges::sort(items, [this](const Item& a, const Item& b) {
      const int names = name_of_(a.index).compare(name_of_(b.index));
      return names < 0 || (names == 0 && a.index < b.index);
    });
  }

  std::size_t common_prefix(std::span<const Item> items, std::size_t same) const {
    std::string_view prefix = name_of_(items.front().index);
    for (const Item& item : items.subspan(1)) {
      const std::string_view name = name_of_(item.index);
      const auto differ =
          std::mismatch(prefix.begin() + same, prefix.end(), name.begin() + same, name.end());
      prefix = prefix.substr(0, static_cast<std::size_t>(differ.first - prefix.begin()));
    }
    return prefix.size();
  }

  // Compares like the first bytes of the text.
  static std::uint64_t key_of(std::string_view text) {
    std::uint64_t key = 0;
    for (std::size_t i = 0; i < sizeof key; ++i) {
      key = key << 8 | (i < text.size() ? static_cast<unsigned char>(text[i]) : 0U);
    }
    return key;
  }

  const NameOf& name_of_;
};

}  // namespace safeshuffle::core

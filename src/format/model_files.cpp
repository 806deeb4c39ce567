#include "format/model_files.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/text.hpp"
#include "format/sharded_state.hpp"

namespace safeshuffle::format {
namespace {

constexpr std::string_view extension = ".safetensors";
constexpr std::string_view digits = "0123456789";

/// Names that differ in one number.
struct Series {
  std::string before;  ///< the number
  std::string after;
  auto operator<=>(const Series&) const = default;
};

struct Numbers {
  std::set<std::uint64_t> present;
  std::size_t width = 1;    ///< with leading zeros
  std::uint64_t first = 1;  ///< or 0
  std::uint64_t count = 0;  ///< how many there should be, from `first` on
};

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

bool has_word(std::string_view name, std::string_view word) {
  const auto is_letter = [&](std::size_t at) {
    return at < name.size() && name[at] >= 'a' && name[at] <= 'z';
  };
  for (std::size_t at = name.find(word); at != name.npos; at = name.find(word, at + 1)) {
    if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + word.size())) return true;
  }
  return false;
}

class SeriesFinder {
 public:
  void add(const std::string& name) {
    if (const auto shard = parse_shard_name(name)) {
      const std::size_t number = name.find_last_of('-') + 1;
      Numbers& numbers = add(name, number, name.size() - extension.size(), shard->part);
      numbers.first = 0;
      numbers.count = std::max<std::uint64_t>(numbers.count, std::uint64_t{shard->part} + 1);
    } else {
      add_counted(name);
    }
  }

  std::string missing() const {
    std::vector<std::string> first;
    std::size_t total = 0;
    for (const auto& [series, numbers] : series_) {
      const std::size_t lacking = numbers.count - present(numbers);
      const std::size_t wanted = std::min(first.size() + lacking, core::most_enumerated);
      for (std::uint64_t i = numbers.first; first.size() < wanted; ++i) {
        if (!numbers.present.contains(i)) first.push_back(name(series, numbers, i));
      }
      total += lacking;
    }
    return core::enumerate(first, total);
  }

 private:
  /// NAME-00002-of-00003.safetensors.
  void add_counted(std::string_view name) {
    constexpr std::string_view of = "-of-";
    const std::size_t end = name.rfind(of);
    if (end == name.npos || !name.ends_with(extension)) return;
    const std::size_t begin = name.find_last_not_of(digits, end - 1) + 1;
    std::string_view total = name.substr(end + of.size());
    total.remove_suffix(extension.size());
    const auto number = parse_number(name.substr(begin, end - begin));
    const auto count = parse_number(total);
    if (number && count) add(name, begin, end, *number).count = *count;
  }

  Numbers& add(std::string_view name, std::size_t begin, std::size_t end, std::uint64_t number) {
    Numbers& numbers = series_[{std::string(name.substr(0, begin)), std::string(name.substr(end))}];
    if (name[begin] == '0') numbers.width = end - begin;
    if (number == 0) numbers.first = 0;
    numbers.present.insert(number);
    return numbers;
  }

  static std::uint64_t present(const Numbers& numbers) {
    return static_cast<std::uint64_t>(std::ranges::count_if(
        numbers.present, [&](std::uint64_t i) { return i - numbers.first < numbers.count; }));
  }

  static std::string name(const Series& series, const Numbers& numbers, std::uint64_t number) {
    std::string text = std::to_string(number);
    text.insert(0, numbers.width - std::min(numbers.width, text.size()), '0');
    return series.before + text + series.after;
  }

  std::map<Series, Numbers> series_;
};

}  // namespace

bool is_adapter_file(const std::string& name) {
  return name.starts_with("adapter_model") || name.starts_with("adapters.") ||
         has_word(name, "lora");
}

std::string adapters_warning(const std::vector<std::string>& names) {
  return "left out as an adapter of the model: " + core::enumerate(names);
}

std::string only_adapters(const std::vector<std::string>& names) {
  return "the directory has only an adapter, not the model that it belongs to: " +
         core::enumerate(names) + "; an adapter's file can be given by name";
}

ModelFiles sort_model_files(const std::vector<std::string>& names) {
  ModelFiles files{names, {}, {}};
  const auto take_out = [&](std::vector<std::string>& to, const auto& is_taken) {
    const auto taken =
        std::stable_partition(files.model.begin(), files.model.end(), std::not_fn(is_taken));
    if (taken == files.model.begin()) return;  // there is nothing else
    to.assign(taken, files.model.end());
    files.model.erase(taken, files.model.end());
  };
  const auto starts = [](std::string_view beginning) {
    return [=](const std::string& name) { return name.starts_with(beginning); };
  };
  take_out(files.adapters, is_adapter_file);
  if (std::ranges::any_of(files.model, starts("model"))) {
    take_out(files.copies, starts("consolidated"));
  }
  return files;
}

std::string missing_files(const std::vector<std::string>& names) {
  SeriesFinder finder;
  for (const std::string& name : names) finder.add(name);
  return finder.missing();
}

}  // namespace safeshuffle::format

// Plain-text tables.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace safeshuffle::app {

/// Rows of cells under a header. Columns are as wide as their widest cell; the first is aligned to
/// the left, the others to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}

  /// As many cells as the header has.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  /// With a rule under the header; every line ends with a newline.
  std::string text() const;

 private:
  std::vector<std::size_t> widths() const;

  std::vector<std::vector<std::string>> rows_;
};

}  // namespace safeshuffle::app

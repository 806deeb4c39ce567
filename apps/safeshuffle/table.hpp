// Plain-text tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace safeshuffle::app {

enum class Align : std::uint8_t { left, right };

struct Column {
  std::string title;
  Align align = Align::right;
};

/// Rows of cells under a header. Columns are as wide as their widest cell.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// One cell per column; control characters in them are shown as '?'.
  void add(const std::vector<std::string>& cells);

  /// With a line under the header; every line ends with a newline and has no trailing space.
  std::string text() const;

 private:
  std::vector<std::size_t> widths() const;
  std::string line(const std::vector<std::string>& cells,
                   const std::vector<std::size_t>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace safeshuffle::app

#include "table.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace safeshuffle::app {
namespace {

std::string line(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) {
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    text += i == 0 ? fmt::format("{:<{}}", cells[i], widths[i])
                   : fmt::format("  {:>{}}", cells[i], widths[i]);
  }
  return text + "\n";
}

}  // namespace

std::string Table::text() const {
  const std::vector<std::size_t> columns = widths();
  std::size_t total = 2 * (columns.size() - 1);
  for (const std::size_t width : columns) total += width;
  std::string text = line(rows_.front(), columns) + std::string(total, '-') + "\n";
  for (std::size_t i = 1; i < rows_.size(); ++i) text += line(rows_[i], columns);
  return text;
}

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  return widths;
}

}  // namespace safeshuffle::app

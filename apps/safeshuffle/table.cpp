#include "table.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/text.hpp"

namespace safeshuffle::app {
namespace {

constexpr std::size_t gap = 2;

}  // namespace

void Table::add(const std::vector<std::string>& cells) {
  std::vector<std::string>& row = rows_.emplace_back();
  for (const std::string& cell : cells) row.push_back(core::printable(cell));
}

std::string Table::text() const {
  const std::vector<std::size_t> column_widths = widths();
  std::vector<std::string> titles;
  std::size_t total = gap * (columns_.size() - 1);
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    titles.push_back(columns_[i].title);
    total += column_widths[i];
  }
  std::string text = line(titles, column_widths) + std::string(total, '-') + "\n";
  for (const auto& row : rows_) text += line(row, column_widths);
  return text;
}

std::string Table::line(const std::vector<std::string>& cells,
                        const std::vector<std::size_t>& widths) const {
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i != 0) text.append(gap, ' ');
    text += columns_[i].align == Align::left ? fmt::format("{:<{}}", cells[i], widths[i])
                                             : fmt::format("{:>{}}", cells[i], widths[i]);
  }
  return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
}

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(column.title.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  return widths;
}

}  // namespace safeshuffle::app

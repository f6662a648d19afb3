#include "table.h"

#include <algorithm>

namespace kachel::cli {

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(column.title.size());
  std::vector<bool> told(columns_.size(), rows_.empty());
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
      if (!row[i].empty() && row[i] != "-") told[i] = true;
    }

  std::string out;
  auto append = [&](const auto& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!told[i]) continue;
      const std::string& cell = cell_of(i);
      std::string fill(widths[i] - cell.size(), ' ');
      if (!line.empty()) line += "  ";
      line += columns_[i].align == Align::kLeft ? cell + fill : fill + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  append([&](size_t i) -> const std::string& { return columns_[i].title; });
  for (const auto& row : rows_) append([&](size_t i) -> const std::string& { return row[i]; });
  return out;
}

}  // namespace kachel::cli

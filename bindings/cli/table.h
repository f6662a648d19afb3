// Columns of text, each as wide as its widest cell.
#pragma once
#include <string>
#include <vector>

namespace kachel::cli {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // REQUIRES: one cell a column.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // Lines that end in a newline, without trailing spaces. A column whose cells are all "-" or empty is left out. Cells
  // are ASCII.
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kachel::cli

// Latencies as an SVG: a line for each policy and state of the store, on a logarithmic axis of milliseconds.
#pragma once
#include <string>
#include <vector>

#include "traffic.h"

namespace serve {

struct PlotLine {
  std::string label;
  Served served;
};
std::string plot(const std::string& title, const std::vector<PlotLine>& lines);

}  // namespace serve

#include "plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace serve {
namespace {

constexpr double kLeft = 170, kWidth = 560, kTop = 60, kLine = 46, kLeast = 0.05;

struct Kind {
  const char* name;
  const char* colour;
  Spread Served::* spread;
};
constexpr Kind kKinds[] = {{"a request", "#1f6fb4", &Served::request},
                           {"its first token", "#d1662c", &Served::first_token},
                           {"a step for next tokens", "#3d8f4f", &Served::token_step}};

template <class... Values>
void put(std::string& out, const char* format, Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);
  out += text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

}  // namespace

std::string plot(const std::string& title, const std::vector<PlotLine>& lines) {
  double most = 10;
  for (const PlotLine& line : lines)
    for (const Kind& kind : kKinds) most = std::max(most, (line.served.*kind.spread).worst);
  const double low = std::log(kLeast), high = std::log(std::pow(10, std::ceil(std::log10(most))));
  auto x = [&](double ms) { return kLeft + kWidth * (std::log(std::max(ms, kLeast)) - low) / (high - low); };
  const double bottom = kTop + kLine * static_cast<double>(lines.size());
  std::string out;
  put(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" ",
      kLeft + kWidth + 40, bottom + 50);
  out += "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  put(out, "<text x=\"12\" y=\"20\" font-size=\"14\" font-weight=\"bold\">%s</text>\n", escaped(title).c_str());
  double at = kLeft;
  for (const Kind& kind : kKinds) {
    put(out, "<circle cx=\"%.0f\" cy=\"40\" r=\"4\" fill=\"%s\"/><text x=\"%.0f\" y=\"44\">%s</text>\n", at,
        kind.colour, at + 8, kind.name);
    at += 30 + 7 * static_cast<double>(std::string(kind.name).size());
  }
  for (double tick = 0.1; tick <= std::exp(high) * 1.01; tick *= 10)
    put(out,
        "<line x1=\"%.1f\" y1=\"%.0f\" x2=\"%.1f\" y2=\"%.0f\" stroke=\"#dddddd\"/><text x=\"%.1f\" y=\"%.0f\" "
        "text-anchor=\"middle\">%g</text>\n",
        x(tick), kTop, x(tick), bottom, x(tick), bottom + 16, tick);
  for (size_t i = 0; i < lines.size(); ++i) {
    const double middle = kTop + kLine * (static_cast<double>(i) + 0.5);
    put(out, "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", kLeft - 10, middle + 4,
        escaped(lines[i].label).c_str());
    double y = middle - 12;
    for (const Kind& kind : kKinds) {
      const Spread& s = lines[i].served.*kind.spread;
      put(out,
          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2\"/>"
          "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>",
          x(s.p50), y, x(s.p99), y, kind.colour, x(s.p50), y, kind.colour);
      put(out,
          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2\"><title>%.2f / %.2f / "
          "%.2f ms</title></line>\n",
          x(s.worst), y - 5, x(s.worst), y + 5, kind.colour, s.p50, s.p99, s.worst);
      y += 12;
    }
  }
  put(out, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n</svg>\n", kLeft + kWidth / 2, bottom + 38,
      "milliseconds: median, line to the 99th percentile, mark at the worst");
  return out;
}

}  // namespace serve

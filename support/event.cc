#include "support/event.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "support/bytes.h"

namespace kachel {
namespace {

constexpr std::array<std::string_view, 4> kLevels = {"debug", "info", "warning", "error"};
constexpr std::array<std::string_view, static_cast<size_t>(EventKind::kCount)> kKinds = {
    "message",
    "lost",
    "compiled",
    "loaded",
    "tuned",
    "untuned",
    "served_undecided",
    "candidate_failed",
    "candidate_rejected",
    "candidate_crashed",
    "candidate_timed_out",
    "demoted",
    "device_lost",
    "worker_unusable",
    "store_degraded",
    "store_damaged",
    "store_evicted",
    "store_refused",
    "remote_failed",
    "drift_checked",
    "drift_noticed",
    "decision_replaced",
};

// How many bytes the character that begins here has; 0: none in UTF-8.
size_t utf8_length(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(i < text.size() ? text[i] : 0); };
  const uint8_t first = at(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((at(i) & 0xc0) != 0x80) return 0;
  // Overlong forms, surrogates, beyond the last character.
  if ((first == 0xe0 && at(1) < 0xa0) || (first == 0xed && at(1) > 0x9f) || (first == 0xf0 && at(1) < 0x90) ||
      (first == 0xf4 && at(1) > 0x8f))
    return 0;
  return length;
}

void put_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const char c = text[0];
    if (length == 0)
      out += "\\ufffd";
    else if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (static_cast<uint8_t>(c) < 0x20)
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    else
      out += text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  out += '"';
}

void put_member(std::string& out, std::string_view name, std::string_view text) {
  out += out.size() > 1 ? "," : "";
  put_string(out, name);
  out += ':';
  put_string(out, text);
}

void put_number(std::string& out, std::string_view name, auto number) {
  out += out.size() > 1 ? "," : "";
  put_string(out, name);
  fmt::format_to(std::back_inserter(out), ":{}", number);
}

}  // namespace

std::string_view level_name(LogLevel level) {
  return kLevels[static_cast<size_t>(level)];
}

std::string_view event_name(EventKind kind) {
  return kKinds[static_cast<size_t>(kind)];
}

std::string to_json(const Event& event) {
  std::string out = "{";
  put_number(out, "time_us", event.unix_us);
  put_member(out, "level", level_name(event.level));
  put_member(out, "event", event_name(event.kind));
  if (!event.kernel.empty()) put_member(out, "kernel", event.kernel);
  if (!event.key.empty()) put_member(out, "key", event.key);
  if (event.duration_ns != 0) put_number(out, "duration_ns", event.duration_ns);
  for (const EventField& field : event.fields) {
    if (const auto* whole = std::get_if<int64_t>(&field.value))
      put_number(out, field.name, *whole);
    else if (const auto* real = std::get_if<double>(&field.value); !real)
      put_member(out, field.name, std::get<std::string>(field.value));
    else if (std::isfinite(*real))
      put_number(out, field.name, *real);
    else
      put_number(out, field.name, "null");
  }
  put_member(out, "message", event.message);
  return out + '}';
}

std::string encode_event(const Event& event) {
  ByteWriter out;
  out.put(static_cast<int32_t>(event.kind));
  out.put(static_cast<int32_t>(event.level));
  out.put_bytes(event.message);
  out.put_bytes(event.kernel);
  out.put_bytes(event.key);
  out.put(event.duration_ns);
  out.put<uint64_t>(event.fields.size());
  for (const EventField& field : event.fields) {
    out.put_bytes(field.name);
    out.put(static_cast<uint8_t>(field.value.index()));
    if (const auto* whole = std::get_if<int64_t>(&field.value))
      out.put(*whole);
    else if (const auto* real = std::get_if<double>(&field.value))
      out.put(*real);
    else
      out.put_bytes(std::get<std::string>(field.value));
  }
  return out.take();
}

std::optional<Event> decode_event(std::string_view bytes) {
  ByteReader in(bytes);
  Event event;
  const auto kind = in.get<int32_t>(), level = in.get<int32_t>();
  if (kind < 0 || kind >= static_cast<int32_t>(EventKind::kCount) || level < 0 || level > 3) return std::nullopt;
  event.kind = static_cast<EventKind>(kind);
  event.level = static_cast<LogLevel>(level);
  event.message = in.get_bytes();
  event.kernel = in.get_bytes();
  event.key = in.get_bytes();
  event.duration_ns = in.get<int64_t>();
  for (uint64_t left = in.get_count(17); left > 0; --left) {
    std::string name(in.get_bytes());
    switch (in.get<uint8_t>()) {
      case 0:
        event.fields.emplace_back(std::move(name), in.get<int64_t>());
        break;
      case 1:
        event.fields.emplace_back(std::move(name), in.get<double>());
        break;
      case 2:
        event.fields.emplace_back(std::move(name), std::string(in.get_bytes()));
        break;
      default:
        return std::nullopt;
    }
  }
  if (!in.at_end()) return std::nullopt;
  return event;
}

}  // namespace kachel

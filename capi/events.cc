#include "capi/events.h"

#include "capi/boundary.h"
#include "capi/handles.h"

using namespace kachel;

namespace {

constexpr uint32_t kMostKept = 65536;

static_assert(static_cast<int>(EventKind::kRemoteFailed) == KACHEL_EVENT_REMOTE_FAILED &&
              static_cast<int>(EventKind::kCount) == KACHEL_EVENT_DECISION_REPLACED + 1);

kachel_event_field shown(const EventField& field) {
  kachel_event_field out{};
  out.name = field.name.c_str();
  out.kind = static_cast<int32_t>(field.value.index());
  if (const auto* whole = std::get_if<int64_t>(&field.value))
    out.u.i = *whole;
  else if (const auto* real = std::get_if<double>(&field.value))
    out.u.f = *real;
  else
    out.u.text = std::get<std::string>(field.value).c_str();
  return out;
}

void show(const Event& event, void (*to)(void* user, const kachel_event* event), void* user) {
  const std::string json = to_json(event);
  std::vector<kachel_event_field> fields;
  for (const EventField& field : event.fields) fields.push_back(shown(field));
  kachel_event out{};
  out.struct_size = sizeof(out);
  out.kind = static_cast<int32_t>(event.kind);
  out.level = static_cast<int32_t>(event.level);
  out.name = event_name(event.kind).data();
  out.unix_us = static_cast<int64_t>(event.unix_us);
  out.duration_ns = event.duration_ns;
  out.kernel = event.kernel.c_str();
  out.key = event.key.c_str();
  out.message = event.message.c_str();
  out.json = json.c_str();
  out.fields = fields.data();
  out.field_count = fields.size();
  to(user, &out);
}

}  // namespace

Status capi::event_options(const kachel_engine_options& given, runtime::EngineOptions& options) {
  if (given.events_kept > kMostKept)
    return invalid(std::to_string(given.events_kept) + " events cannot be kept; events_kept is at most 65536");
  options.events_kept = given.events_kept;
  if (given.log)
    options.log = [log = given.log, user = given.log_user](LogLevel level, std::string_view message) {
      log(user, static_cast<int32_t>(level), message.data(), message.size());
    };
  if (given.event)
    options.events = [to = given.event, user = given.event_user](const Event& event) { show(event, to, user); };
  return {};
}

kachel_status kachel_engine_events(kachel_engine* engine, kachel_text** out, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!engine) return capi::missing("engine");
    if (!out) return capi::missing("out");
    if (engine->engine->options().events_kept == 0)
      return invalid("this engine keeps no events; create it with events_kept above 0");
    auto text = std::make_unique<kachel_text>();
    text->text = engine->engine->log().take();
    *out = text.release();
    return {};
  });
}

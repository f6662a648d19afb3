// What tuning found, what a launch runs, and whether it was right.
#include <fmt/format.h>

#include <algorithm>

#include "capi/boundary.h"
#include "capi/handles.h"
#include "runtime/engine/report/check.h"

using namespace kachel;

static_assert(KACHEL_CANDIDATE_UNTRIED == static_cast<int>(tuner::CandidateState::kUntried));
static_assert(KACHEL_CANDIDATE_COMPILE_FAILED == static_cast<int>(tuner::CandidateState::kCompileFailed));
static_assert(KACHEL_CANDIDATE_REJECTED_WRONG == static_cast<int>(tuner::CandidateState::kRejectedWrong));
static_assert(KACHEL_CANDIDATE_LAUNCH_FAILED == static_cast<int>(tuner::CandidateState::kLaunchFailed));
static_assert(KACHEL_CANDIDATE_PRUNED == static_cast<int>(tuner::CandidateState::kPruned));
static_assert(KACHEL_CANDIDATE_MEASURED == static_cast<int>(tuner::CandidateState::kMeasured));
static_assert(KACHEL_CANDIDATE_REJECTED_FLAW == static_cast<int>(tuner::CandidateState::kRejectedFlaw));
static_assert(KACHEL_CANDIDATE_CRASHED == static_cast<int>(tuner::CandidateState::kCrashed));
static_assert(KACHEL_CANDIDATE_TIMED_OUT == static_cast<int>(tuner::CandidateState::kTimedOut));

kachel_status kachel_tuning_get(kachel_kernel* kernel, const kachel_arg* args, size_t count, kachel_tuning** out,
                                kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!kernel) return capi::missing("kernel");
    if (!args && count != 0) return capi::missing("args");
    if (!out) return capi::missing("out");
    KACHEL_ASSIGN(runtime::TuningView view, runtime::read_tuning(*kernel->kernel, capi::arguments(args, count)));
    *out = new kachel_tuning{std::move(view)};
    return {};
  });
}

void kachel_tuning_release(kachel_tuning* tuning) {
  delete tuning;
}
int32_t kachel_tuning_winner(const kachel_tuning* tuning) {
  return tuning ? tuning->view.winner : -1;
}
int32_t kachel_tuning_count(const kachel_tuning* tuning) {
  return tuning ? static_cast<int32_t>(tuning->view.candidates.size()) : 0;
}
double kachel_tuning_total_ns(const kachel_tuning* tuning) {
  return tuning ? tuning->view.total_ns : 0;
}
int32_t kachel_tuning_from_store(const kachel_tuning* tuning) {
  return tuning && tuning->view.from_store ? 1 : 0;
}

kachel_status kachel_tuning_candidate(const kachel_tuning* tuning, int32_t index, kachel_candidate* out) {
  return capi::guarded(nullptr, [&]() -> Status {
    if (!tuning) return capi::missing("tuning");
    if (index < 0 || static_cast<size_t>(index) >= tuning->view.candidates.size()) return invalid("no such candidate");
    const runtime::TuningView::Candidate& candidate = tuning->view.candidates[static_cast<size_t>(index)];
    kachel_candidate value{};
    value.configuration = candidate.configuration.c_str();
    value.message = candidate.message.c_str();
    value.state = static_cast<int32_t>(candidate.state);
    value.samples = candidate.samples;
    value.median_ns = candidate.median_ns;
    value.low_ns = candidate.low_ns;
    value.high_ns = candidate.high_ns;
    value.compile_ns = candidate.compile_ns;
    value.registers = candidate.usage.registers;
    value.shared_bytes = candidate.usage.shared_bytes;
    value.spill_bytes = candidate.usage.spill_bytes;
    value.predicted_ns = candidate.predicted_ns;
    return capi::write_struct(out, value, "out");
  });
}

const char* kachel_text_data(const kachel_text* text) {
  return text ? text->text.c_str() : "";
}
size_t kachel_text_size(const kachel_text* text) {
  return text ? text->text.size() : 0;
}
void kachel_text_release(kachel_text* text) {
  delete text;
}

kachel_status kachel_explain(kachel_kernel* kernel, const kachel_arg* args, size_t count,
                             const kachel_launch_options* options, int32_t what, kachel_text** out,
                             kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!kernel) return capi::missing("kernel");
    if (!args && count != 0) return capi::missing("args");
    if (!out) return capi::missing("out");
    runtime::LaunchSettings settings;
    KACHEL_TRY(capi::launch_settings(*kernel->kernel, options, settings));
    KACHEL_ASSIGN(std::string text, kernel->kernel->explain(capi::arguments(args, count), settings,
                                                            static_cast<runtime::ExplainWhat>(what)));
    *out = new kachel_text{std::move(text)};
    return {};
  });
}

kachel_status kachel_check(kachel_kernel* kernel, const kachel_arg* before, const kachel_arg* after, size_t count,
                           const char* configuration, kachel_check_result* out, kachel_error** err) {
  return capi::guarded(err, [&]() -> Status {
    if (!kernel) return capi::missing("kernel");
    if (!before && count != 0) return capi::missing("before");
    if (!after && count != 0) return capi::missing("after");
    if (kernel->kernel->model().is_program)
      return unsupported(fmt::format("`{}` is a program; check the kernels that it calls, one by one",
                                     kernel->kernel->model().kernel.name));
    const std::string_view wanted = configuration ? configuration : "";
    KACHEL_ASSIGN(runtime::CheckResult result,
                  runtime::check(kernel->kernel->model(), capi::arguments(before, count), capi::arguments(after, count),
                                 configuration ? &wanted : nullptr));
    kachel_check_result value{};
    value.elements = result.elements;
    value.mismatches = result.mismatches;
    value.undecided = result.undecided;
    value.median_bound_ulps = result.median_bound_ulps;
    const size_t size = std::min(result.first.size(), sizeof(value.first) - 1);
    std::memcpy(value.first, result.first.data(), size);
    return capi::write_struct(out, value, "out");
  });
}

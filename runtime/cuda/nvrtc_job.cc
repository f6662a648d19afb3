#include "runtime/cuda/nvrtc_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "runtime/cuda/exit_guard.h"
#include "runtime/cuda/ptxas_log.h"

namespace kachel::runtime::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// Shared with NVRTC's callback, which may come from threads of NVRTC's own. Once it has said stop it keeps saying so.
struct Flow {
  std::optional<Clock::time_point> deadline;
  std::atomic<bool> stopped{false};
};

int ask_to_go_on(void* payload, void*) {
  Flow& flow = *static_cast<Flow*>(payload);
  arm_exit_guard();
  if (process_exits() || (flow.deadline && Clock::now() >= *flow.deadline)) flow.stopped = true;
  return flow.stopped ? 1 : 0;
}

class Program {
 public:
  explicit Program(const NvrtcApi& api) : api_(api) {}
  ~Program() {
    if (handle_) api_.destroy_program(&handle_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  NvrtcProgram handle_ = nullptr;

 private:
  const NvrtcApi& api_;
};

// NVRTC counts the terminating zero of texts.
std::string text_of(NvrtcResult (*size_of)(NvrtcProgram, size_t*), NvrtcResult (*get)(NvrtcProgram, char*),
                    NvrtcProgram program, bool zero_terminated) {
  size_t bytes = 0;
  if (size_of(program, &bytes) != NvrtcResult::kSuccess || bytes == 0) return {};
  std::string out(bytes, '\0');
  if (get(program, out.data()) != NvrtcResult::kSuccess) return {};
  if (zero_terminated && out.back() == '\0') out.pop_back();
  return out;
}

// The first line that says "error", for the message; the log has the rest.
// ptxas says that it gives up ahead of why.
std::string first_error(const std::string& log) {
  std::string conclusion;
  for (size_t begin = 0; begin < log.size();) {
    const size_t end = std::min(log.find('\n', begin), log.size());
    const std::string line = log.substr(begin, end - begin);
    const bool concludes = line.find("aborted due to errors") != std::string::npos;
    if (!concludes && (line.find("error") != std::string::npos || line.find("(C7") != std::string::npos)) return line;
    if (concludes && conclusion.empty()) conclusion = line;
    begin = end + 1;
  }
  return conclusion;
}

bool defines(const CompileResult& result, const std::string& entry, bool ptx) {
  if (entry.empty()) return true;
  if (ptx) return result.binary.find(".entry " + entry + "(") != std::string::npos;
  std::string section = ".text." + entry;
  section.push_back('\0');
  return result.binary.find(section) != std::string::npos;
}

// Whether the log of a refusal names one of these options that NVRTC may do without; it is not asked for again.
bool forget_unknown(const NvrtcApi& api, const std::vector<const char*>& options, const std::string& log) {
  for (const NvrtcApi::Option& option : api.options) {
    if (std::find(options.begin(), options.end(), option.text) == options.end()) continue;
    if (log.find(option.text + 2) == std::string::npos) continue;  // however many dashes it prints
    option.known = false;
    return true;
  }
  return false;
}

Status explain(const NvrtcJob& job, NvrtcResult result, bool stopped, std::string log) {
  const NvrtcApi& api = *job.api;
  switch (result) {
    case NvrtcResult::kCancelled:
      if (stopped && process_exits()) return {Code::kCancelled, "the process exits while a kernel was being compiled"};
      return job.time_limit_exceeded(std::move(log));
    case NvrtcResult::kBuiltinOperationFailure:
      return {Code::kNoDevice,
              fmt::format("{} at {} does not find its second half: put libnvrtc-builtins.so.{}.{} into the same folder",
                          api.name(), api.path, api.major, api.minor),
              std::move(log)};
    case NvrtcResult::kOutOfMemory:
      return {Code::kNoMemory, api.name() + " ran out of memory", std::move(log)};
    default:
      break;
  }
  std::string message = fmt::format("{} refused the text of \"{}\" for {}", api.name(), job.entry,
                                    job.target.option.substr(std::string_view("-arch=").size()));
  if (std::string line = first_error(log); !line.empty())
    message += ": " + line;
  else
    message += fmt::format(": {}", api.get_error_string(result));
  return {Code::kCompile, std::move(message), job.target.note + log};
}

}  // namespace

Status NvrtcJob::time_limit_exceeded(std::string log) const {
  return {
      Code::kCompile,
      fmt::format("{} exceeded the time limit of {} ms on \"{}\": raise it, or make tiles and unrolled loops smaller",
                  api->name(), limit_ns / 1'000'000, entry),
      std::move(log)};
}

Result<CompileResult> NvrtcJob::run() const {
  ExitGuardScope scope;
  if (!scope.admitted()) return {Code::kCancelled, "the process exits"};
  const auto begun = Clock::now();
  const std::string file = (entry.empty() ? "kernel" : entry) + ".cu";
  std::vector<const char*> options = {target.option.c_str(), "-std=c++17", "-default-device"};
  if (!target.ptx) options.push_back("--ptxas-options=-v");

  for (;;) {
    std::vector<const char*> all = options;
    for (const NvrtcApi::Option& option : api->options)
      if (option.known) all.push_back(option.text);

    Program program(*api);
    NvrtcResult result = api->create_program(&program.handle_, text.c_str(), file.c_str(), 0, nullptr, nullptr);
    if (result != NvrtcResult::kSuccess) return explain(*this, result, false, {});
    Flow flow{deadline, {}};
    if (api->set_flow_callback) (void)api->set_flow_callback(program.handle_, ask_to_go_on, &flow);
    result = api->compile_program(program.handle_, static_cast<int>(all.size()), all.data());
    std::string log = text_of(api->get_log_size, api->get_log, program.handle_, true);
    if (result == NvrtcResult::kInvalidOption && forget_unknown(*api, all, log)) continue;
    // Which code NVRTC gives for a compilation that was stopped depends on the stage that was running.
    if (result != NvrtcResult::kSuccess && flow.stopped) result = NvrtcResult::kCancelled;
    if (result != NvrtcResult::kSuccess) return explain(*this, result, flow.stopped, std::move(log));
    arm_exit_guard(/*settled=*/true);

    CompileResult out;
    out.binary = target.ptx ? text_of(api->get_ptx_size, api->get_ptx, program.handle_, true)
                            : text_of(api->get_cubin_size, api->get_cubin, program.handle_, false);
    if (out.binary.empty()) return internal(api->name() + " succeeded but made no binary");
    if (!defines(out, entry, target.ptx))
      return Status(
          Code::kCompile,
          fmt::format("the text defines no kernel \"{0}\": declare it `extern \"C\" __global__ void {0}(...)`", entry),
          std::move(log));
    PtxasReport report = parse_ptxas_log(log, entry);
    out.usage = report.usage;
    out.losses = std::move(report.losses);
    out.log = target.note + log;
    out.compile_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begun).count();
    return out;
  }
}

}  // namespace kachel::runtime::cuda

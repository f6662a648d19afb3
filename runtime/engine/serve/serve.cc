// One thread reads and does what it is told, but for compilations, which have a thread each, since several are asked
// for at once. Another one waits for the host to go: by then the first may hang, and any lock be held by a thread that
// crashed, so it does nothing but ask the kernel.
#include "runtime/engine/serve/serve.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/engine/process/handshake.h"
#include "runtime/engine/serve/served_task.h"

namespace kachel::runtime {
namespace {

constexpr auto kHelloLimit = std::chrono::seconds(60);
constexpr auto kIdle = std::chrono::seconds(10);  // then the device is given back
constexpr int kParentLook_ms = 1000;

void watch_host(int socket, pid_t host) {
  for (;;) {
    pollfd watched{socket, POLLRDHUP, 0};
    // A child that the host has forked may keep its end open for longer than the host lives.
    if (::poll(&watched, 1, kParentLook_ms) > 0 || ::getppid() != host) ::_exit(0);
  }
}

class Server {
 public:
  Server(int socket, const std::function<void(EngineOptions&)>& adjust) : channel_(socket), adjust_(adjust) {}

  Status greet();
  void run();

 private:
  WorkerAnswer open(std::string_view body);
  WorkerAnswer contents(std::string_view body);
  WorkerAnswer start();
  WorkerAnswer compile(std::string_view body);
  WorkerAnswer compile_reference();
  WorkerAnswer rotate(std::string_view body);
  WorkerAnswer step(WorkerCall what, std::string_view body);
  WorkerAnswer answer(const Message& message);
  void reply(uint64_t call, const WorkerAnswer& answer);
  void compile_aside(Message message);
  void wait_for_compilers();
  void note(const Event& event);

  Channel channel_;
  const std::function<void(EngineOptions&)>& adjust_;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<ServedTask> task_;
  bool started_ = false;
  bool rotates_ = false;
  std::mutex sending_;
  std::mutex mutex_;  // guards compilers_
  std::condition_variable changed_;
  int compilers_ = 0;
};

Status Server::greet() {
  const auto deadline = std::chrono::steady_clock::now() + kHelloLimit;
  const Hello own{kWorkerProtocol, worker_build()};
  (void)channel_.send({0, kHelloMessage, encode_hello(own)}, deadline);
  const auto heard = channel_.receive(deadline);
  const bool said = heard.ok() && *heard && (*heard)->type == kHelloMessage;
  const auto host = said ? decode_hello((*heard)->body) : std::nullopt;
  if (!host) return invalid("what is connected is no engine; a worker is started by one");
  if (*host != own) return unsupported("the engine is of another build");
  return {};
}

void Server::note(const Event& event) {
  if (event.kind == EventKind::kDeviceLost) return;  // the answer to the call says so, and the host judges it
  std::lock_guard lock(sending_);
  (void)channel_.send({0, kNoteMessage, encode_event(event)}, Channel::kNever);
}

void Server::reply(uint64_t call, const WorkerAnswer& answer) {
  std::lock_guard lock(sending_);
  (void)channel_.send({call, static_cast<uint8_t>(WorkerCall::kOpen), encode_answer(answer)}, Channel::kNever);
}

WorkerAnswer Server::open(std::string_view body) {
  auto task = decode_task(body);
  if (!task) return {invalid("the task makes no sense"), {}};
  if (!engine_) {
    EngineOptions options;
    options.policy = tuner::Policy::kOff;
    options.devices = task->devices;
    options.compile_limit_ns = task->compile_limit_ns;
    options.events = [this](const Event& event) { note(event); };
    if (adjust_) adjust_(options);
    auto engine = Engine::create(std::move(options));
    if (!engine.ok()) return {engine.status(), {}};
    engine_ = *std::move(engine);
  }
  auto opened = ServedTask::open(engine_, *std::move(task));
  if (!opened.ok()) return {opened.status(), {}};
  task_ = *std::move(opened);
  return {};
}

WorkerAnswer Server::contents(std::string_view body) {
  ByteReader in(body);
  const auto param = in.get<uint64_t>(), offset = in.get<uint64_t>();
  const std::string_view bytes = in.get_bytes();
  if (!in.at_end() || !task_ || started_) return {invalid("contents make no sense"), {}};
  return {task_->put(param, offset, bytes), {}};
}

WorkerAnswer Server::start() {
  if (!task_ || started_) return {invalid("there is no task to start"), {}};
  auto keys = task_->start();
  if (!keys.ok()) return {keys.status(), {}};
  started_ = true;
  ByteWriter out;
  out.put_bytes(*keys);
  out.put<uint64_t>(task_->session().first_attempt());
  return {{}, out.take()};
}

WorkerAnswer Server::compile(std::string_view body) {
  ByteReader in(body);
  const auto index = in.get<uint64_t>();
  const std::string_view plan = in.get_bytes();
  if (!in.at_end() || !started_ || index >= task_->candidates()) return {invalid("there is no such candidate"), {}};
  auto made = task_->compile(index, plan);
  if (!made.ok()) return {made.status(), {}};
  ByteWriter out;
  out.put_bytes(task_->session().flaw(index));
  out.put_bytes(*made);
  return {{}, out.take()};
}

WorkerAnswer Server::compile_reference() {
  if (!started_) return {invalid("there is no task"), {}};
  task_->session().compile_reference();
  return {};
}

WorkerAnswer Server::rotate(std::string_view body) {
  ByteReader in(body);
  const auto run_ns = in.get<double>();
  if (!in.at_end() || !started_ || !(run_ns > 0)) return {invalid("there are no such runs"), {}};
  rotates_ = task_->session().rotate(run_ns);
  ByteWriter out;
  out.put<uint8_t>(rotates_);
  return {{}, out.take()};
}

WorkerAnswer Server::step(WorkerCall what, std::string_view body) {
  ByteReader in(body);
  const auto index = in.get<uint64_t>();
  const size_t most = started_ ? task_->candidates() * (what == WorkerCall::kRefer ? 2 : 1) : 0;
  if (!in.at_end() || index >= most) return {invalid("there is no such candidate"), {}};
  ReferencedRunner& session = task_->session();
  if (what == WorkerCall::kRefer) return {session.make_reference(index), {}};
  if (what == WorkerCall::kCheck) return {session.check(index), {}};
  if (what == WorkerCall::kMeasureRotated && !rotates_) return {invalid("operands do not rotate"), {}};
  session.prepare_run(what == WorkerCall::kMeasure        ? tuner::Caches::kEvicted
                      : what == WorkerCall::kMeasureAgain ? tuner::Caches::kAsLeft
                                                          : tuner::Caches::kRotated);
  auto ns = session.time_once_ns(index);
  if (!ns.ok()) return {ns.status(), {}};
  ByteWriter out;
  out.put(*ns);
  return {{}, out.take()};
}

WorkerAnswer Server::answer(const Message& message) {
  try {
    switch (const auto what = static_cast<WorkerCall>(message.type)) {
      case WorkerCall::kOpen:
        return open(message.body);
      case WorkerCall::kContents:
        return contents(message.body);
      case WorkerCall::kStart:
        return start();
      case WorkerCall::kCompile:
        return compile(message.body);
      case WorkerCall::kCompileReference:
        return compile_reference();
      case WorkerCall::kRotate:
        return rotate(message.body);
      case WorkerCall::kRefer:
      case WorkerCall::kCheck:
      case WorkerCall::kMeasure:
      case WorkerCall::kMeasureAgain:
      case WorkerCall::kMeasureRotated:
        return step(what, message.body);
      case WorkerCall::kClose:
        wait_for_compilers();
        task_.reset();
        started_ = rotates_ = false;
        return {};
    }
    return {invalid(fmt::format("there is no call {}", message.type)), {}};
  } catch (const std::bad_alloc&) {
    return {{Code::kNoMemory, "the worker has no memory left"}, {}};
  } catch (const std::exception& failure) {
    return {internal(failure.what()), {}};
  }
}

void Server::compile_aside(Message message) {
  {
    std::lock_guard lock(mutex_);
    ++compilers_;
  }
  auto work = [this, message = std::move(message)] {
    reply(message.call, answer(message));
    std::lock_guard lock(mutex_);
    --compilers_;
    changed_.notify_all();
  };
  try {
    std::thread(work).detach();
  } catch (const std::system_error&) {
    work();
  }
}

void Server::wait_for_compilers() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return compilers_ == 0; });
}

bool is_compilation(WorkerCall what) {
  return what == WorkerCall::kCompile || what == WorkerCall::kCompileReference;
}

void Server::run() {
  for (;;) {
    const auto deadline = task_ || !engine_ ? Channel::kNever : std::chrono::steady_clock::now() + kIdle;
    auto message = channel_.receive(deadline);
    if (!message.ok()) return;  // the host is gone
    if (!*message)
      engine_.reset();
    else if (is_compilation(static_cast<WorkerCall>((*message)->type)))
      compile_aside(**std::move(message));
    else
      reply((*message)->call, answer(**message));
  }
}

}  // namespace

Status serve_host(int socket, const std::function<void(EngineOptions&)>& adjust) {
  Server server(socket, adjust);
  KACHEL_TRY(server.greet());
  // Candidates fault, and their cores are of no use.
  const rlimit none{0, 0};
  (void)::setrlimit(RLIMIT_CORE, &none);
  std::thread(watch_host, socket, ::getppid()).detach();
  server.run();
  ::_exit(0);
}

}  // namespace kachel::runtime

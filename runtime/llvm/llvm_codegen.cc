#include "runtime/llvm/llvm_codegen.h"

#include <llvm-c/Target.h>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/OptBisect.h>
#include <llvm/IR/PassInstrumentation.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>

namespace kachel::llvm_module {
namespace {

constexpr char kTriple[] = "x86_64-unknown-linux-gnu";
constexpr size_t kMaxTextBytes = size_t{64} << 20;

void initialize_target_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser();
  });
}

// The code generator's passes ask this gate before they do anything that may be left out.
class DeadlineGate : public llvm::OptPassGate {
 public:
  explicit DeadlineGate(std::function<bool()> expired) : expired_(std::move(expired)) {}
  bool shouldRunPass(llvm::StringRef, llvm::StringRef) override { return !expired_(); }
  bool isEnabled() const override { return true; }

 private:
  std::function<bool()> expired_;
};

// Collects warnings and errors; nothing of LLVM's goes to stderr.
class LogHandler : public llvm::DiagnosticHandler {
 public:
  explicit LogHandler(std::string& log, bool& failed) : log_(log), failed_(failed) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() == llvm::DS_Remark || info.getSeverity() == llvm::DS_Note) return true;
    if (info.getSeverity() == llvm::DS_Error) failed_ = true;
    llvm::raw_string_ostream out(log_);
    out << (info.getSeverity() == llvm::DS_Error ? "error: " : "warning: ");
    llvm::DiagnosticPrinterRawOStream printer(out);
    info.print(printer);
    out << "\n";
    return true;
  }

 private:
  std::string& log_;
  bool& failed_;
};

llvm::OptimizationLevel pass_level(int32_t level) {
  switch (level) {
    case 0:
      return llvm::OptimizationLevel::O0;
    case 1:
      return llvm::OptimizationLevel::O1;
    case 2:
      return llvm::OptimizationLevel::O2;
    default:
      return llvm::OptimizationLevel::O3;
  }
}

llvm::CodeGenOptLevel codegen_level(int32_t level) {
  switch (level) {
    case 0:
      return llvm::CodeGenOptLevel::None;
    case 1:
      return llvm::CodeGenOptLevel::Less;
    case 2:
      return llvm::CodeGenOptLevel::Default;
    default:
      return llvm::CodeGenOptLevel::Aggressive;
  }
}

}  // namespace

struct Codegen::State {
  explicit State(std::function<bool()> expired) : gate(std::move(expired)), library(llvm::Triple(kTriple)) {
    // The loader resolves a fixed list of names. Calls into the C library that the text does not make itself are
    // limited to the three memory functions, so that no rewrite of one libm call into another can leave that list.
    library.disableAllFunctions();
    library.setAvailable(llvm::LibFunc_memcpy);
    library.setAvailable(llvm::LibFunc_memmove);
    library.setAvailable(llvm::LibFunc_memset);
  }

  DeadlineGate gate;
  bool failed = false;
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
  std::unique_ptr<llvm::TargetMachine> machine;
  llvm::TargetLibraryInfoImpl library;
  std::unique_ptr<llvm::legacy::PassManager> emitter;
  llvm::SmallVector<char, 0> object;
};

Codegen::Codegen(const KachelLlvmRequest& request)
    : request_(request), begin_(std::chrono::steady_clock::now()), state_(new State([this] { return expired(); })) {
  state_->context.setDiagnosticHandler(std::make_unique<LogHandler>(log_, state_->failed));
  state_->context.setOptPassGate(state_->gate);
}

Codegen::~Codegen() {
  delete state_;
}

bool Codegen::expired() const {
  if (request_.time_limit_ns <= 0) return false;
  return std::chrono::steady_clock::now() - begin_ > std::chrono::nanoseconds(request_.time_limit_ns);
}

void Codegen::note(const std::string& line) {
  log_ += line;
  if (log_.empty() || log_.back() != '\n') log_ += '\n';
}

int32_t Codegen::run() {
  initialize_target_once();
  for (auto step : {&Codegen::create_target, &Codegen::parse, &Codegen::check_entry})
    if (int32_t status = (this->*step)(); status != KACHEL_LLVM_OK) return status;
  prepare_functions();
  optimize();
  int32_t status = expired() ? int32_t{KACHEL_LLVM_TIME_LIMIT} : emit();
  return expired() ? int32_t{KACHEL_LLVM_TIME_LIMIT} : status;
}

std::string Codegen::take_object() {
  return std::string(state_->object.begin(), state_->object.end());
}

int32_t Codegen::create_target() {
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(kTriple, error);
  if (!target) {
    note(error);
    return KACHEL_LLVM_FAILED;
  }
  // An unknown name would be a line on stderr and code for another machine.
  std::unique_ptr<llvm::MCSubtargetInfo> plain(target->createMCSubtargetInfo(kTriple, "", ""));
  if (!plain->isCPUStringValid(request_.cpu)) {
    note(std::string("LLVM knows no x86-64 processor named '") + request_.cpu + "'");
    return KACHEL_LLVM_INVALID;
  }
  llvm::SmallVector<llvm::StringRef, 32> features;
  llvm::StringRef(request_.features).split(features, ',', -1, false);
  for (llvm::StringRef feature : features) {
    bool known = (feature.starts_with("+") || feature.starts_with("-")) &&
                 std::any_of(plain->getAllProcessorFeatures().begin(), plain->getAllProcessorFeatures().end(),
                             [&](const llvm::SubtargetFeatureKV& entry) { return feature.drop_front() == entry.Key; });
    if (known) continue;
    note("LLVM knows no x86-64 feature '" + feature.str() + "'");
    return KACHEL_LLVM_INVALID;
  }
  llvm::TargetOptions options;
  options.TrapUnreachable = true;
  state_->machine.reset(target->createTargetMachine(kTriple, request_.cpu, request_.features, options,
                                                    llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                                    codegen_level(request_.optimization_level)));
  return state_->machine ? KACHEL_LLVM_OK : KACHEL_LLVM_FAILED;
}

int32_t Codegen::parse() {
  if (request_.text_size > kMaxTextBytes) {
    note("the text is longer than 64 MiB");
    return KACHEL_LLVM_INVALID;
  }
  // The copy ends in the zero byte that the lexer relies on.
  auto buffer = llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(request_.text, request_.text_size), "kernel");
  std::string layout = state_->machine->createDataLayout().getStringRepresentation();
  auto set_layout = [&](llvm::StringRef, llvm::StringRef) { return std::optional<std::string>(layout); };
  llvm::SMDiagnostic diagnostic;
  state_->module = llvm::parseAssembly(buffer->getMemBufferRef(), diagnostic, state_->context, nullptr, set_layout);
  if (!state_->module) {
    llvm::raw_string_ostream out(log_);
    diagnostic.print(nullptr, out, /*ShowColors=*/false);
    return KACHEL_LLVM_INVALID;
  }
  state_->module->setTargetTriple(kTriple);
  llvm::raw_string_ostream out(log_);
  return llvm::verifyModule(*state_->module, &out) || state_->failed ? KACHEL_LLVM_INVALID : KACHEL_LLVM_OK;
}

int32_t Codegen::check_entry() {
  llvm::Function* entry = state_->module->getFunction(request_.entry);
  if (!entry || entry->isDeclaration() || !entry->hasExternalLinkage()) {
    note(std::string("the text defines no external function '") + request_.entry + "'");
    return KACHEL_LLVM_INVALID;
  }
  llvm::Type* pointer = llvm::PointerType::getUnqual(state_->context);
  llvm::Type* index = llvm::Type::getInt64Ty(state_->context);
  auto* wanted = llvm::FunctionType::get(llvm::Type::getVoidTy(state_->context),
                                         {pointer, index, index, index, pointer}, /*isVarArg=*/false);
  if (entry->getFunctionType() != wanted || entry->getCallingConv() != llvm::CallingConv::C) {
    note(std::string("'") + request_.entry + "' is not of type void (ptr, i64, i64, i64, ptr)");
    return KACHEL_LLVM_INVALID;
  }
  return KACHEL_LLVM_OK;
}

void Codegen::prepare_functions() {
  for (llvm::Function& function : *state_->module) {
    if (function.isDeclaration()) continue;
    // The binary depends on the architecture it is stored under and on nothing that the text says about a machine.
    function.removeFnAttr("target-cpu");
    function.removeFnAttr("target-features");
    function.removeFnAttr("tune-cpu");
    if (request_.vector_bits > 0 && !function.hasFnAttribute("prefer-vector-width"))
      function.addFnAttr("prefer-vector-width", std::to_string(request_.vector_bits));
    function.setDoesNotThrow();  // and so needs no unwind tables
    function.removeFnAttr(llvm::Attribute::UWTable);
    function.setDSOLocal(true);
  }
  for (llvm::GlobalVariable& global : state_->module->globals())
    if (!global.isDeclaration()) global.setDSOLocal(true);
}

void Codegen::optimize() {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = true;
  tuning.SLPVectorization = true;
  tuning.LoopInterleaving = true;
  tuning.LoopUnrolling = true;

  llvm::PassInstrumentationCallbacks callbacks;
  callbacks.registerShouldRunOptionalPassCallback([this](llvm::StringRef, llvm::Any) { return !expired(); });
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  functions.registerPass([&] { return llvm::TargetLibraryAnalysis(state_->library); });

  llvm::PassBuilder builder(state_->machine.get(), tuning, std::nullopt, &callbacks);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::OptimizationLevel level = pass_level(request_.optimization_level);
  llvm::ModulePassManager passes = level == llvm::OptimizationLevel::O0 ? builder.buildO0DefaultPipeline(level)
                                                                        : builder.buildPerModuleDefaultPipeline(level);
  passes.run(*state_->module, modules);
}

int32_t Codegen::emit() {
  state_->emitter = std::make_unique<llvm::legacy::PassManager>();
  state_->emitter->add(new llvm::TargetLibraryInfoWrapperPass(state_->library));
  llvm::raw_svector_ostream out(state_->object);
  if (state_->machine->addPassesToEmitFile(*state_->emitter, out, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    note("LLVM cannot emit objects for this target");
    return KACHEL_LLVM_FAILED;
  }
  state_->emitter->run(*state_->module);
  state_->emitter.reset();
  return state_->failed ? KACHEL_LLVM_FAILED : KACHEL_LLVM_OK;
}

}  // namespace kachel::llvm_module

// What the names of instructions say.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "tests/lowering/ptx_machine_functions.h"

namespace kachel::lowering {
namespace {

using ir::DType;
using Parts = std::vector<std::string>;

Parts split(const std::string& name) {
  Parts parts;
  for (size_t begin = 0, end; begin <= name.size(); begin = end + 1) {
    end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
  }
  return parts;
}

// Of a type as b32 or s8; 0: it is none.
int64_t bytes_of(const std::string& type) {
  if (type == "bf16") return 2;
  if (type.size() < 2 || std::string_view("busf").find(type[0]) == std::string_view::npos) return 0;
  const int64_t bits = std::strtoll(type.c_str() + 1, nullptr, 10);
  return type == fmt::format("{}{}", type[0], bits) && (bits == 8 || bits == 16 || bits == 32 || bits == 64) ? bits / 8
                                                                                                             : 0;
}

// ld[.relaxed.scope].space[.hint]...[.vN].type and st likewise
bool access(Parts parts, PtxInstruction* out) {
  if (parts.size() > 3 && parts[1] == "relaxed") parts.erase(parts.begin() + 1, parts.begin() + 3);
  out->kind = parts[0] == "ld" ? PtxKind::kLoad : PtxKind::kStore;
  if (parts.size() < 3) return false;
  if (parts[1] == "param")
    out->space = PtxSpace::kParam;
  else if (parts[1] == "shared" || parts[1] == "shared::cta")
    out->space = PtxSpace::kShared;
  else if (parts[1] == "shared::cluster")
    out->space = PtxSpace::kCluster;
  else if (parts[1] == "global")
    out->space = PtxSpace::kGlobal;
  else
    return false;
  for (size_t i = 2; i + 1 < parts.size(); ++i) {
    constexpr std::array kHints = {"nc", "ca", "cg", "cs", "cv", "lu", "wb", "wt"};
    if (parts[i] == "v2" || parts[i] == "v4")
      out->results = parts[i] == "v2" ? 2 : 4;
    else if (parts[i].rfind("L1::", 0) != 0 && std::find(kHints.begin(), kHints.end(), parts[i]) == kHints.end())
      return false;
  }
  out->bytes = bytes_of(parts.back());
  out->is_signed = parts.back()[0] == 's';
  return out->bytes != 0;
}

// red.space.op[.noftz][.vN].type, where additions of 16-bit floats may be of pairs; of shared memory single numbers
// alone
bool reduction(Parts parts, PtxInstruction* out) {
  if (parts.size() < 4 || (parts[1] != "global" && (parts[1] != "shared" || parts.size() > 4))) return false;
  out->space = parts[1] == "shared" ? PtxSpace::kShared : PtxSpace::kGlobal;
  if (const std::string width = parts.end()[-2]; width == "v2" || width == "v4") {
    out->results = width == "v2" ? 2 : 4;
    parts.erase(parts.end() - 2);
  }
  std::string& type = parts.back();
  const bool pair = type == "f16x2" || type == "bf16x2";
  if (out->results > 1 && type != "f32" && !pair) return false;
  if (pair) type.resize(type.size() - 2);
  const bool half = parts.size() == 5 && parts[3] == "noftz" && (type == "f16" || type == "bf16");
  if (half == (parts.size() == 4) || (pair && !half)) return false;
  const auto found = ptx_functions().find(fmt::format("{}{}.{}", parts[2], half ? ".rn" : "", type));
  if (found == ptx_functions().end()) return false;
  out->kind = PtxKind::kReduce;
  out->function = found->second;
  out->bytes = bytes_of(type);
  out->count = pair ? 2 : 1;
  return true;
}

// ldmatrix.sync.aligned.m8n8.xN[.trans].shared.b16 and stmatrix likewise
bool matrices(const Parts& parts, PtxInstruction* out) {
  out->transposed = parts.size() == 8 && parts[5] == "trans";
  if (parts.size() != (out->transposed ? 8 : 7) || parts[1] != "sync" || parts[3] != "m8n8" ||
      parts.end()[-2] != "shared" || parts.back() != "b16")
    return false;
  out->kind = parts[0] == "ldmatrix" ? PtxKind::kLoadMatrix : PtxKind::kStoreMatrix;
  out->count = parts[4] == "x1" ? 1 : parts[4] == "x2" ? 2 : parts[4] == "x4" ? 4 : 0;
  out->results = static_cast<uint32_t>(out->count);
  return out->count != 0;
}

std::optional<DType> factor(const std::string& type) {
  if (type == "f16") return DType::F16;
  if (type == "bf16") return DType::BF16;
  if (type == "tf32") return DType::F32;
  if (type == "e4m3") return DType::F8E4M3;
  if (type == "e5m2") return DType::F8E5M2;
  if (type == "s8") return DType::I8;
  if (type == "u8") return DType::U8;
  return std::nullopt;
}

// mma.sync.aligned.m16n8kN.row.col.D.A.B.C
bool products(const Parts& parts, PtxInstruction* out) {
  if (parts.size() != 10 || parts[1] != "sync" || parts[4] != "row" || parts[5] != "col") return false;
  const std::optional<DType> a = factor(parts[7]), b = factor(parts[8]);
  if (!a || !b || ir::bits(*a) != ir::bits(*b) || ir::is_float(*a) != ir::is_float(*b)) return false;
  if (ir::bits(*a) > 8 && a != b) return false;
  const char* sums = ir::is_float(*a) ? "f32" : "s32";
  if (parts[6] != sums || parts[9] != sums || parts[3] != fmt::format("m16n8k{}", 256 / ir::bits(*a))) return false;
  out->kind = PtxKind::kMma;
  out->type = *a;
  out->type_b = *b;
  out->results = 4;
  return true;
}

constexpr std::pair<const char*, PtxKind> kNames[] = {
    {"bra", PtxKind::kBranch},
    {"bra.uni", PtxKind::kBranch},
    {"ret", PtxKind::kExit},
    {"exit", PtxKind::kExit},
    {"trap", PtxKind::kTrap},
    {"bar.sync", PtxKind::kBarrier},
    // Who has arrived at the cluster's barrier waits there at once.
    {"barrier.cluster.arrive.relaxed", PtxKind::kNothing},
    {"barrier.cluster.arrive.release", PtxKind::kNothing},
    {"barrier.cluster.wait", PtxKind::kClusterBarrier},
    {"barrier.cluster.wait.acquire", PtxKind::kClusterBarrier},
    {"bar.warp.sync", PtxKind::kWarpBarrier},
    {"shfl.sync.bfly.b32", PtxKind::kShuffle},
    {"shfl.sync.idx.b32", PtxKind::kShuffleIndex},
    {"vote.sync.any.pred", PtxKind::kVoteAny},
    {"atom.global.cas.b32", PtxKind::kCompareSwap},
    {"atom.shared.cas.b32", PtxKind::kCompareSwap},
    {"cp.async.cg.shared.global", PtxKind::kCopyAsync},
    {"cp.async.ca.shared.global", PtxKind::kCopyAsync},
    {"cp.async.commit_group", PtxKind::kAsyncCommit},
    {"cp.async.wait_group", PtxKind::kAsyncWait},
    {".pragma", PtxKind::kNothing},
};

bool decode(const std::string& name, PtxInstruction* out) {
  for (const auto& [known, kind] : kNames) {
    if (name != known) continue;
    out->kind = kind;
    if (kind == PtxKind::kCompareSwap) {
      out->bytes = 4;
      out->space = name.find(".shared.") != name.npos ? PtxSpace::kShared : PtxSpace::kGlobal;
    }
    return true;
  }
  if (const auto found = ptx_functions().find(name); found != ptx_functions().end()) {
    out->kind = PtxKind::kFunction;
    out->function = found->second;
    if (name.rfind("mov.", 0) == 0) out->bytes = bytes_of(name.substr(4));
    return true;
  }
  const Parts parts = split(name);
  if (parts[0] == "ld" || parts[0] == "st") return access(parts, out);
  if (parts[0] == "red") return reduction(parts, out);
  if (parts[0] == "ldmatrix" || parts[0] == "stmatrix") return matrices(parts, out);
  if (parts[0] == "mma") return products(parts, out);
  // What only says when things are seen, or are fetched.
  return parts[0] == "griddepcontrol" || parts[0] == "prefetch" || parts[0] == "fence" || parts[0] == "membar";
}

}  // namespace

const PtxFunctions& ptx_functions() {
  static const PtxFunctions all = [] {
    PtxFunctions made;
    define_integers(&made);
    define_bits(&made);
    define_floats(&made);
    define_conversions(&made);
    return made;
  }();
  return all;
}

Result<PtxInstruction> decode_ptx(const std::string& name) {
  PtxInstruction out;
  if (!decode(name, &out)) return unsupported(fmt::format("the machine has no instruction {}", name));
  return out;
}

}  // namespace kachel::lowering

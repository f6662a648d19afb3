// A block of random elements, again and again. Its length is a prime, so that no tile of a tensor holds what another
// one holds, and reading the wrong one shows.
#include "runtime/engine/serve/synthesise.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "ir/numerics.h"
#include "runtime/engine/bind/arguments.h"

namespace kachel::runtime {
namespace {

constexpr uint64_t kBlockElements = 1'000'003;

}  // namespace

Status synthesise(Device& device, ir::DType type, uint64_t seed, void* to, uint64_t bytes, void* stream) {
  const auto width = static_cast<uint64_t>(bits_of(type)) / 8;
  const uint64_t elements = std::min(kBlockElements, bytes / width);
  std::string block(elements * width, '\0');
  std::mt19937_64 random(seed);
  for (uint64_t i = 0; i < elements; ++i) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    const uint32_t bits = ir::encode_float(type, 2 * unit - 1);
    std::memcpy(block.data() + i * width, &bits, width);
  }
  for (uint64_t done = 0; done < bytes && !block.empty(); done += block.size())
    KACHEL_TRY(device.copy(static_cast<char*>(to) + done, block.data(), std::min<uint64_t>(block.size(), bytes - done),
                           stream));
  return device.synchronize(stream);
}

}  // namespace kachel::runtime

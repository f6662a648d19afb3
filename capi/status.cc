#include <string_view>

#include "capi/boundary.h"
#include "runtime/engine/bind/arguments.h"

using namespace kachel;

uint32_t kachel_abi_version(void) {
  return KACHEL_ABI_VERSION;
}
const char* kachel_version(void) {
  return KACHEL_VERSION;
}

const char* kachel_status_name(kachel_status status) {
  const int32_t category = status & 0xff;
  if (category > KACHEL_E_INTERNAL) return "unknown";
  return code_name(static_cast<Code>(category)).data();  // from literals
}

kachel_status kachel_dtype_parse(const char* name, kachel_dtype* out) {
  if (!name || !out) return KACHEL_E_INVALID;
  const auto type = ir::dtype_from_name(name);
  if (!type) return KACHEL_E_INVALID;
  const runtime::DataType found = runtime::to_data_type(*type);
  *out = {found.code, found.bits, found.lanes};
  return KACHEL_OK;
}

const char* kachel_dtype_name(kachel_dtype dtype) {
  ir::DType type;
  if (!runtime::from_data_type({dtype.code, dtype.bits, dtype.lanes}, type)) return "?";
  return ir::name(type).data();
}

// Makes a relocatable object runnable without LLVM: what a stored kernel needs on a machine that never compiles.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/status.h"

namespace kachel::runtime {

// Code and constants of one object, mapped and ready to call. Immutable; functions may be called from any thread until
// it is destroyed.
class LoadedObject {
 public:
  // Copies what it needs of `bytes`. kInvalid for a damaged object or one that refers to anything not in externals.h.
  static Result<std::unique_ptr<LoadedObject>> load(std::string_view bytes);
  // Everything that load() checks before it maps anything.
  static Status check(std::string_view bytes);

  ~LoadedObject();
  LoadedObject(const LoadedObject&) = delete;
  LoadedObject& operator=(const LoadedObject&) = delete;

  // Null where the object defines no global function of that name.
  const void* find(std::string_view name) const;

 private:
  LoadedObject() = default;

  char* base_ = nullptr;
  size_t bytes_ = 0;
  std::vector<std::pair<std::string, const void*>> functions_;
};

}  // namespace kachel::runtime

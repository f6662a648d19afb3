// From signatures to loaded specialisations: what the warm path of a launch consists of.
//
// Open addressing over atomic pointers to immutable entries. Readers take no lock and write nothing: they load the
// table, then entries, with acquire. Writers hold a mutex; they publish an entry by storing its pointer, and grow by
// filling a table of twice the size and publishing that. What readers may still look at (a table outgrown, an entry
// replaced) is kept until the DispatchTable goes, which happens after the last launch through it; tables double, and of
// a signature and what served it there is one entry, however often it is replaced, so that this is bounded by what was
// live.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "runtime/engine/bind/signature.h"
#include "runtime/engine/specialise/specialisation.h"

namespace kachel::runtime {

// Target is a Specialisation for kernels, TunableValues for programs.
template <class Target>
class DispatchTable {
 public:
  // Beyond this many signatures nothing is added: the launch still works, through the store's path.
  static constexpr size_t kMaxEntries = 65536;

  DispatchTable();
  ~DispatchTable();
  DispatchTable(const DispatchTable&) = delete;
  DispatchTable& operator=(const DispatchTable&) = delete;

  // Null if there is none.
  const Target* find(const Signature& signature) const {
    const Slots* slots = slots_.load(std::memory_order_acquire);
    for (size_t at = signature.hash & slots->mask;; at = (at + 1) & slots->mask) {
      const Entry* entry = (*slots)[at].load(std::memory_order_acquire);
      if (!entry) return nullptr;
      if (entry->signature == signature) return entry->target;
    }
  }

  // Adds or replaces; null forgets, so that the next launch looks again. False if the table is full.
  bool publish(const Signature& signature, const Target* target);

  // What serves the same signature but for facts, of which it needs a part only. Slow; for launches under
  // capture.
  const Target* find_weaker(const Signature& signature) const;

  size_t size() const;
  size_t kept() const;  // entries, those replaced included

 private:
  struct alignas(64) Entry {
    const Target* target;  // before the signature, of which few words are looked at
    Signature signature;
  };
  // A power of two of entries lies behind the object, so that one pointer leads to both.
  struct Slots {
    struct Delete {
      void operator()(Slots* slots) const { ::operator delete(slots, kAlign); }
    };
    using Owner = std::unique_ptr<Slots, Delete>;
    static constexpr std::align_val_t kAlign{64};
    static Owner create(size_t capacity);
    std::atomic<const Entry*>& operator[](size_t at) {
      return reinterpret_cast<std::atomic<const Entry*>*>(this + 1)[at];
    }
    const std::atomic<const Entry*>& operator[](size_t at) const { return const_cast<Slots&>(*this)[at]; }

    const size_t mask;
  };
  static void insert(Slots& slots, const Entry* entry);
  const Entry* entry_of(const Signature& signature, const Target* target);

  std::atomic<const Slots*> slots_;
  mutable std::mutex mutex_;                   // guards what follows
  std::vector<typename Slots::Owner> tables_;  // the last is current
  std::vector<std::unique_ptr<Entry>> entries_;
  size_t used_ = 0;  // occupied slots of the current table
};

}  // namespace kachel::runtime

// The suites ask for absurd amounts of memory on purpose and expect an error, which the sanitizers' allocators give
// only when told to; workers die of signals on purpose, at once and not after a report.
extern "C" {
// Visible to the sanitizers' shared libraries.
__attribute__((visibility("default"))) const char* __asan_default_options();
__attribute__((visibility("default"))) const char* __tsan_default_options();
const char* __asan_default_options() {
  return "allocator_may_return_null=1:handle_segv=0";
}
const char* __tsan_default_options() {
  return "allocator_may_return_null=1:handle_segv=0";
}
}

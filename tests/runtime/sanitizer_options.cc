// The suites ask for absurd amounts of memory on purpose and expect an error, which the sanitizers' allocators give
// only when told to.
extern "C" {
// Visible to the sanitizers' shared libraries.
__attribute__((visibility("default"))) const char* __asan_default_options();
__attribute__((visibility("default"))) const char* __tsan_default_options();
const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}
}

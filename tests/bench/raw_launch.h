// The driver's own launch, of copies of one kernel. For benchmarks.
#pragma once
#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <type_traits>

// What `scale` of dispatch.cc does, with as many parameter bytes as its plan passes.
inline constexpr const char* kRawPtx = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry raw(.param .align 8 .b8 p[80]) {
  .reg .pred %p<2>;
  .reg .b32 %r<2>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<5>;
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 ret;
  ld.param.u64 %rd1, [p];
  ld.param.u64 %rd2, [p+8];
  ld.param.f32 %f1, [p+16];
  cvta.to.global.u64 %rd3, %rd1;
  cvta.to.global.u64 %rd4, %rd2;
  ld.global.f32 %f2, [%rd3];
  mul.f32 %f3, %f1, %f2;
  st.global.f32 [%rd4], %f3;
  ret;
}
)";

// The four driver calls that a raw launch needs.
struct RawLaunch {
  static constexpr int kCopies = 8;
  int (*module_load)(void**, const void*) = nullptr;
  int (*get_function)(void**, void*, const char*) = nullptr;
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                void**) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*set_current)(void*) = nullptr;
  void *context = nullptr, *functions[kCopies] = {};

  bool open() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return false;
    auto find = [&](auto& pointer, const char* name) {
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(dlsym(library, name));
    };
    find(module_load, "cuModuleLoadData");
    find(get_function, "cuModuleGetFunction");
    find(launch, "cuLaunchKernel");
    find(retain, "cuDevicePrimaryCtxRetain");
    find(set_current, "cuCtxSetCurrent");
    if (retain(&context, 0) != 0 || set_current(context) != 0) return false;
    return std::all_of(std::begin(functions), std::end(functions), [&](void*& function) {
      void* module = nullptr;
      return module_load(&module, kRawPtx) == 0 && get_function(&function, module, "raw") == 0;
    });
  }
};

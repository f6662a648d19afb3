# Included by tests/runtime/CMakeLists.txt; paths are relative to it.
foreach(variant fake_cuda_driver fake_old_cuda_driver)
  add_library(${variant} MODULE cuda/fake_driver.cc)
  target_include_directories(${variant} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${variant} PRIVATE kachel_flags)
endforeach()
target_compile_definitions(fake_old_cuda_driver PRIVATE KACHEL_FAKE_DRIVER_OLD)

kachel_test(NAME cuda_driver_test SOURCES cuda/driver_test.cc DEPENDS devices)
add_dependencies(cuda_driver_test fake_cuda_driver fake_old_cuda_driver)
target_compile_definitions(cuda_driver_test PRIVATE
  KACHEL_FAKE_DRIVER="$<TARGET_FILE_NAME:fake_cuda_driver>"
  KACHEL_FAKE_OLD_DRIVER="$<TARGET_FILE_NAME:fake_old_cuda_driver>")

add_executable(nvrtc_exit_probe cuda/nvrtc_exit_probe.cc)
target_link_libraries(nvrtc_exit_probe PRIVATE kachel_devices)
kachel_test(NAME nvrtc_test SOURCES cuda/nvrtc_text_test.cc cuda/nvrtc_compile_test.cc DEPENDS devices)
add_dependencies(nvrtc_test nvrtc_exit_probe)
target_compile_definitions(nvrtc_test PRIVATE KACHEL_NVRTC_EXIT_PROBE="$<TARGET_FILE_NAME:nvrtc_exit_probe>")

# Needs a GPU to say anything.
if(TARGET kachel_device_testing)
  add_executable(cuda_fault_probe cuda/cuda_fault_probe.cc)
  target_link_libraries(cuda_fault_probe PRIVATE kachel_devices)
  kachel_test(NAME cuda_gpu_test SOURCES cuda/cuda_gpu_test.cc DEPENDS device_testing LABELS "gpu")
  add_dependencies(cuda_gpu_test cuda_fault_probe)
  target_compile_definitions(cuda_gpu_test PRIVATE KACHEL_CUDA_FAULT_PROBE="$<TARGET_FILE_NAME:cuda_fault_probe>")
endif()

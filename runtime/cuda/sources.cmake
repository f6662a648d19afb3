# The CUDA device, and the code of the device boundary itself; paths are relative to runtime/. No CUDA is needed to
# build. Where its headers are found, two files that hold only static_asserts compare our declarations with them.
set(KACHEL_RUNTIME_CUDA_SOURCES
  device.cc
  cuda/cubin_check.cc
  cuda/cuda_context.cc
  cuda/cuda_device.cc
  cuda/cuda_function.cc
  cuda/cuda_memory.cc
  cuda/cuda_module.cc
  cuda/cuda_open.cc
  cuda/cuda_timer.cc
  cuda/driver_api.cc
  cuda/driver_error.cc
  cuda/exit_guard.cc
  cuda/nvrtc_api.cc
  cuda/nvrtc_compiler.cc
  cuda/nvrtc_job.cc
  cuda/nvrtc_search.cc
  cuda/nvrtc_target.cc
  cuda/ptxas_log.cc
  cuda/tensor_map.cc)

find_path(KACHEL_CUDA_INCLUDE cuda.h PATHS /usr/local/cuda/include)
mark_as_advanced(KACHEL_CUDA_INCLUDE)
if(KACHEL_CUDA_INCLUDE)
  set(kachel_cuda_checks cuda/driver_api_check.cc)
  set_source_files_properties(cuda/driver_api_check.cc PROPERTIES COMPILE_OPTIONS "-isystem;${KACHEL_CUDA_INCLUDE}")
  if(EXISTS ${KACHEL_CUDA_INCLUDE}/nvrtc.h)
    list(APPEND kachel_cuda_checks cuda/nvrtc_api_check.cc)
    set(kachel_nvrtc_options "-isystem;${KACHEL_CUDA_INCLUDE}")
    file(STRINGS ${KACHEL_CUDA_INCLUDE}/nvrtc.h kachel_nvrtc_flow REGEX "nvrtcResult nvrtcSetFlowCallback")
    if(kachel_nvrtc_flow)
      list(APPEND kachel_nvrtc_options -DKACHEL_NVRTC_HAS_FLOW_CALLBACK=1)
    endif()
    set_source_files_properties(cuda/nvrtc_api_check.cc PROPERTIES COMPILE_OPTIONS "${kachel_nvrtc_options}")
  endif()
  if(EXISTS ${KACHEL_CUDA_INCLUDE}/nvtx3/nvToolsExt.h)
    set(KACHEL_NVTX ON)
    set_source_files_properties(profile_range.cc PROPERTIES COMPILE_OPTIONS "-isystem;${KACHEL_CUDA_INCLUDE};-DKACHEL_NVTX")
  endif()
  # Nothing in them reaches the archive's users, so the precompiled header's flags need not match theirs.
  set_source_files_properties(${kachel_cuda_checks} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  list(APPEND KACHEL_RUNTIME_CUDA_SOURCES ${kachel_cuda_checks})
endif()

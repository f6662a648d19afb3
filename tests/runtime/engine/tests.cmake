# The engine on fake devices. Included by tests/runtime/CMakeLists.txt.
add_library(kachel_engine_testing STATIC engine/engine_fixture.cc)
target_link_libraries(kachel_engine_testing PUBLIC kachel_device_testing kachel_runtime)

kachel_test(NAME engine_test SOURCES
  engine/argument_binder_test.cc
  engine/facts_test.cc
  engine/background_test.cc
  engine/compact_form_test.cc
  engine/compile_ahead_test.cc
  engine/demotion_test.cc
  engine/dispatch_table_test.cc
  engine/drift_test.cc
  engine/events_test.cc
  engine/flaw_test.cc
  engine/guess_test.cc
  engine/host_program_test.cc
  engine/keys_test.cc
  engine/launch_test.cc
  engine/rejected_test.cc
  engine/early_launch_test.cc
  engine/output_check_test.cc
  engine/parts_of_sums_test.cc
  engine/plan_record_test.cc
  engine/prediction_test.cc
  engine/program_test.cc
  engine/remote_store_test.cc
  engine/rotation_test.cc
  engine/trials_test.cc
  engine/trouble_test.cc
  engine/tunings_json_test.cc
  DEPENDS engine_testing LIBRARIES nlohmann_json::nlohmann_json)
# A process that is a host's worker, and one that is such a host.
add_executable(engine_test_worker engine/test_worker.cc sanitizer_options.cc)
target_link_libraries(engine_test_worker PRIVATE kachel_engine_testing)
kachel_test(NAME engine_worker_test SOURCES engine/channel_test.cc engine/program_worker_test.cc engine/worker_test.cc
            DEPENDS engine_testing)
target_compile_definitions(engine_worker_test PRIVATE KACHEL_TEST_WORKER_PATH="$<TARGET_FILE:engine_test_worker>")
add_dependencies(engine_worker_test engine_test_worker)
kachel_test(NAME engine_processes_test SOURCES engine/processes_test.cc DEPENDS engine_testing)
kachel_test(NAME engine_stress_test SOURCES engine/stress_test.cc DEPENDS engine_testing)
add_test(NAME engine_stress_long_test COMMAND engine_stress_test)
set_tests_properties(engine_stress_long_test PROPERTIES LABELS slow ENVIRONMENT KACHEL_STRESS_SECONDS=60 TIMEOUT 300)

# On the machine's own devices, with 4 GiB of their memory; each says so where it cannot run.
add_executable(large_tensor_test engine/large_tensor_test.cc)
target_link_libraries(large_tensor_test PRIVATE kachel_runtime kachel_doctest_main)
add_test(NAME large_tensor_gpu_test COMMAND large_tensor_test "--test-case=*GPU*")
set_tests_properties(large_tensor_gpu_test PROPERTIES LABELS gpu TIMEOUT 600 SKIP_REGULAR_EXPRESSION "SKIPPED:")
if(TARGET kachel_llvm)
  kachel_test(NAME prepared_forms_test SOURCES engine/prepared_forms_test.cc DEPENDS engine_testing)
  target_compile_definitions(prepared_forms_test PRIVATE KACHEL_LLVM_FOLDER="${PROJECT_BINARY_DIR}/lib"
                             KACHEL_WORKER="${PROJECT_BINARY_DIR}/bin/kachel-tune-worker")
  add_dependencies(prepared_forms_test kachel_llvm kachel_tune_worker)
  add_dependencies(large_tensor_test kachel_llvm)
  add_test(NAME large_tensor_cpu_test COMMAND large_tensor_test "--test-case=*CPU*")
  set_tests_properties(large_tensor_cpu_test PROPERTIES LABELS slow TIMEOUT 600 SKIP_REGULAR_EXPRESSION "SKIPPED:"
                       ENVIRONMENT KACHEL_LLVM=${PROJECT_BINARY_DIR}/lib)
endif()

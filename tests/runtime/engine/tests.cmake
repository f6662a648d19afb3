# The engine on fake devices. Included by tests/runtime/CMakeLists.txt.
add_library(kachel_engine_testing STATIC engine/engine_fixture.cc)
target_link_libraries(kachel_engine_testing PUBLIC kachel_device_testing kachel_runtime)

kachel_test(NAME engine_test SOURCES
  engine/argument_binder_test.cc
  engine/dispatch_table_test.cc
  engine/host_program_test.cc
  engine/keys_test.cc
  engine/launch_test.cc
  engine/output_check_test.cc
  engine/plan_record_test.cc
  engine/trouble_test.cc
  DEPENDS engine_testing)
kachel_test(NAME engine_stress_test SOURCES engine/stress_test.cc DEPENDS engine_testing)
add_test(NAME engine_stress_long_test COMMAND engine_stress_test)
set_tests_properties(engine_stress_long_test PROPERTIES LABELS slow ENVIRONMENT KACHEL_STRESS_SECONDS=60 TIMEOUT 300)

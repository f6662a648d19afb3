# What `cmake --install` lays down: the library with its header, the CPU compiler beside it (runtime/ installs that), the
# Redis binding where hiredis is there, the command, the examples, and the two ways in which a build finds them:
# find_package(kachel) and pkg-config kachel.
include(CMakePackageConfigHelpers)

target_include_directories(kachel INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS kachel EXPORT kachelTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES capi/kachel.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS kachel_tune_worker RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET kachel_redis)
  install(TARGETS kachel_redis EXPORT kachelTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES bindings/redis/kachel_redis.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
if(TARGET kachel_cli)
  install(TARGETS kachel_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DATADIR}/kachel/examples FILES_MATCHING PATTERN "*.tile"
                                                                                           PATTERN "*.c")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kachel)
install(EXPORT kachelTargets NAMESPACE kachel:: DESTINATION ${package_dir})
configure_package_config_file(cmake/kachelConfig.cmake.in ${PROJECT_BINARY_DIR}/kachelConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kachelConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kachelConfig.cmake ${PROJECT_BINARY_DIR}/kachelConfigVersion.cmake
        DESTINATION ${package_dir})

# Relative to the .pc file, so that an installed tree can be moved as a whole.
file(RELATIVE_PATH KACHEL_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" KACHEL_PC_PREFIX "${KACHEL_PC_PREFIX}")
set(KACHEL_PC_NAMES kachel)
if(TARGET kachel_redis)
  list(APPEND KACHEL_PC_NAMES kachel_redis)
endif()
foreach(name ${KACHEL_PC_NAMES})
  configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

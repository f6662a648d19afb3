# Installs to a folder of its own, moves it, and builds and runs the README's C host against it in the two ways that a
# stranger's build would: CMake's find_package and pkg-config. The moved tree must need nothing of the build tree.
include(${CMAKE_CURRENT_LIST_DIR}/harness.cmake)
fresh_folder()
must(${CMAKE_COMMAND} --install ${BUILD} --prefix ${FOLDER}/staged)
file(RENAME ${FOLDER}/staged ${FOLDER}/prefix)
set(prefix ${FOLDER}/prefix)
set(program ${prefix}/share/kachel/examples/matmul_relu.tile)
set(flags "")
if(SANITIZE)
  set(flags -fsanitize=${SANITIZE})
endif()

must(${CMAKE_COMMAND} -S ${SOURCE}/tests/cli/consumer -B ${FOLDER}/consumer -G Ninja -DCMAKE_PREFIX_PATH=${prefix}
     -DCMAKE_C_COMPILER=${C_COMPILER} "-DCMAKE_C_FLAGS=${flags}" -DHOST=${prefix}/share/kachel/examples/hosts/matmul_relu.c)
must(${CMAKE_COMMAND} --build ${FOLDER}/consumer)
must(${FOLDER}/consumer/consumer ${program})
judge_text("find_package's program" "${out}" "= 0x4480")

file(GLOB_RECURSE pc ${prefix}/kachel.pc)
cmake_path(GET pc PARENT_PATH pc_folder)
set(ENV{PKG_CONFIG_PATH} ${pc_folder})
must(pkg-config --modversion kachel)
must(pkg-config --cflags --libs kachel)
separate_arguments(words UNIX_COMMAND "${out}")
must(pkg-config --variable=libdir kachel)
string(STRIP "${out}" libdir)
must(${C_COMPILER} -std=c99 ${flags} ${prefix}/share/kachel/examples/hosts/matmul_relu.c ${words} -Wl,-rpath,${libdir}
     -o ${FOLDER}/pc_consumer)
must(${FOLDER}/pc_consumer ${program})
judge_text("pkg-config's program" "${out}" "= 0x4480")
if(EXISTS ${pc_folder}/kachel_redis.pc)
  must(pkg-config --cflags --libs kachel_redis)
  judge_text("pkg-config's flags" "${out}" "-lkachel_redis.*-lkachel")
endif()

# The installed command finds the installed library and, beside it, the CPU compiler.
must(${CMAKE_COMMAND} -E env --unset=LD_LIBRARY_PATH ${prefix}/bin/kachel run ${program} --no-store --device cpu
     --bind M=64,N=64,K=64 --policy off --repeat 1 --check)
judge_text("the installed command" "${out}" "check   passed")
# And the worker, by its name.
must(${CMAKE_COMMAND} -E env --unset=LD_LIBRARY_PATH KACHEL_WORKER=kachel-tune-worker ${prefix}/bin/kachel tune
     ${SOURCE}/tests/cli/programs/two_configurations.tile --no-store --device cpu --threads 1 --scalar a=0.5
     --bind N=100 --budget 2 --stats)
judge_text("the installed worker" "${out}" "worker: 1 tunings taken up, 0 lost")
must(readelf -d ${libdir}/libkachel.so)
judge_text("the installed library's header" "${out}" "!${BUILD}")

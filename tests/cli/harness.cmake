cmake_minimum_required(VERSION 3.25)  # for its policies
# What the scripts of this folder share.

# An empty folder for this test, with the store in it.
function(fresh_folder)
  file(REMOVE_RECURSE ${FOLDER})
  file(MAKE_DIRECTORY ${FOLDER})
endfunction()
set(ENV{KACHEL_CACHE} ${FOLDER}/store)

# kachel(arguments...) sets exit, out and err.
macro(kachel)
  message("$ kachel ${ARGN}")
  execute_process(COMMAND ${KACHEL} ${ARGN} RESULT_VARIABLE exit OUTPUT_VARIABLE out ERROR_VARIABLE err)
endmacro()

# must(arguments...): runs any command and ends the test if it fails; sets out.
macro(must)
  message("$ ${ARGN}")
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE exit OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT exit STREQUAL "0")
    message(FATAL_ERROR "exit ${exit}\n${out}${err}")
  endif()
endmacro()

# judge(exit stdout stderr fields): compares `exit`, `out` and `err` of the caller with what is expected.
function(judge_text what text regexes)
  foreach(regex IN LISTS regexes)
    string(SUBSTRING "${regex}" 0 1 first)
    if(first STREQUAL "!")
      string(SUBSTRING "${regex}" 1 -1 regex)
      if(text MATCHES "${regex}")
        message(SEND_ERROR "${what} must not match: ${regex}")
      endif()
    elseif(NOT text MATCHES "${regex}")
      message(SEND_ERROR "${what} does not match: ${regex}")
    endif()
  endforeach()
endfunction()

function(judge expected_exit stdout stderr fields)
  if(NOT exit STREQUAL expected_exit)
    message(SEND_ERROR "exit status ${exit}, expected ${expected_exit}")
  endif()
  judge_text("standard output" "${out}" "${stdout}")
  judge_text("standard error" "${err}" "${stderr}")
  foreach(field IN LISTS fields)
    string(REGEX MATCH "^([^=]*)=(.*)$" _ "${field}")
    string(REPLACE " " ";" path "${CMAKE_MATCH_1}")
    set(regex "${CMAKE_MATCH_2}")
    string(JSON value ERROR_VARIABLE problem GET "${out}" ${path})
    if(problem)
      message(SEND_ERROR "no JSON member ${path}: ${problem}")
    elseif(NOT value MATCHES "${regex}")
      message(SEND_ERROR "JSON member ${path} is ${value}, expected ${regex}")
    endif()
  endforeach()
  message("exit ${exit}\n--- standard output\n${out}\n--- standard error\n${err}")
endfunction()

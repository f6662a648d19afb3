# Runs the command once and judges it: cmake -DKACHEL=... -DFOLDER=... -DEXIT=n [-DSTDOUT=regexes] [-DSTDERR=regexes]
# [-DFIELDS=checks] [-DINPUT=file] -P run_case.cmake -- arguments
# A regex begun with ! must not match. A check is "path=regex" for a member of the JSON that was printed.
set(arguments "")
set(past_dashes FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(past_dashes)
    list(APPEND arguments "${CMAKE_ARGV${i}}")
  elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
    set(past_dashes TRUE)
  endif()
endforeach()

include(${CMAKE_CURRENT_LIST_DIR}/harness.cmake)
fresh_folder()
set(input "")
if(INPUT)
  set(input INPUT_FILE ${INPUT})
endif()
execute_process(COMMAND ${KACHEL} ${arguments} ${input} RESULT_VARIABLE exit OUTPUT_VARIABLE out ERROR_VARIABLE err)
judge("${EXIT}" "${STDOUT}" "${STDERR}" "${FIELDS}")

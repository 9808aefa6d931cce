# Programs with a policy of their own, linked to the build tree: no other file names it.
dtk_test(own_policy_test
  SOURCES "${CMAKE_CURRENT_LIST_DIR}/own_policy_test.cpp" "${CMAKE_CURRENT_LIST_DIR}/rounded.cpp"
  DEPENDS dtk::toolkit nlohmann_json::nlohmann_json LABELS integration)

dtk_programs(PREFIX rounded- FOLDER tests/rounded
  SOURCES "${CMAKE_CURRENT_LIST_DIR}/registered.cpp" "${CMAKE_CURRENT_LIST_DIR}/rounded.cpp")
target_include_directories(rounded-families PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
add_test(NAME own_policy_programs_test
         COMMAND "${DTK_PYTHON}" -B "${CMAKE_CURRENT_LIST_DIR}/own_policy_programs_test.py" "${CMAKE_BINARY_DIR}/tests/rounded")
set_tests_properties(own_policy_programs_test PROPERTIES LABELS integration TIMEOUT 300
                     ENVIRONMENT "OMP_NUM_THREADS=1;OMP_WAIT_POLICY=passive")

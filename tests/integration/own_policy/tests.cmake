# A program with a policy of its own, linked to the build tree: no other file names it.
dtk_test(own_policy_test
  SOURCES "${CMAKE_CURRENT_LIST_DIR}/own_policy_test.cpp" "${CMAKE_CURRENT_LIST_DIR}/rounded.cpp"
  DEPENDS dtk::toolkit nlohmann_json::nlohmann_json LABELS integration)

# The four programs as if built with a LibTorch that plans do not know.
dtk_programs(PREFIX newer- FOLDER tests/newer_torch SOURCES "${CMAKE_CURRENT_LIST_DIR}/compiled_torch.cpp")
add_test(NAME newer_torch_test
         COMMAND "${DTK_PYTHON}" -B "${CMAKE_CURRENT_LIST_DIR}/newer_torch_test.py" "${CMAKE_BINARY_DIR}/tests/newer_torch"
                 "${CMAKE_BINARY_DIR}")
set_tests_properties(newer_torch_test PROPERTIES LABELS integration TIMEOUT 300
                     ENVIRONMENT "OMP_NUM_THREADS=1;OMP_WAIT_POLICY=passive")

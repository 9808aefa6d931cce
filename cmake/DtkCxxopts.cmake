# dtk_cxxopts: the command line's library without std::regex, which would take four seconds more of each file. So -x5 is
# no -x 5, and a switch takes no "t". All files of a program have to read it alike.
find_path(DTK_CXXOPTS_INCLUDE cxxopts.hpp REQUIRED)
add_library(dtk_cxxopts INTERFACE)
target_include_directories(dtk_cxxopts SYSTEM INTERFACE "${DTK_CXXOPTS_INCLUDE}")
target_compile_definitions(dtk_cxxopts INTERFACE CXXOPTS_NO_REGEX)

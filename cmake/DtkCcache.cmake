# ccache, when it is there, makes a second build of the same source nearly free.
find_program(DTK_CCACHE ccache)
if(DTK_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${DTK_CCACHE}")
endif()

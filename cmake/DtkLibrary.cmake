# Every library of the project has one include root, so an arrow in the wrong direction does not compile.
set(DTK_WARNINGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wpedantic)

function(dtk_configure_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE ${DTK_WARNINGS} $<$<BOOL:${DTK_WERROR}>:-Werror>)
  # Reading an operator's inputs in a callback needs it (DtkTorch.cmake); not passed on to others' programs.
  target_compile_definitions(${target} PRIVATE NDEBUG)
  if(DTK_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${DTK_SANITIZE} -fno-omit-frame-pointer
                           -fno-sanitize-recover=undefined)
    target_link_options(${target} PUBLIC -fsanitize=${DTK_SANITIZE})
  endif()
endfunction()

# dtk_library(<name> SOURCES <files> DEPENDS <targets>): static library dtk_<name>, alias dtk::<name>.
function(dtk_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(dtk_${name} STATIC ${ARG_SOURCES})
  add_library(dtk::${name} ALIAS dtk_${name})
  target_include_directories(dtk_${name} PUBLIC
    "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>")
  target_link_libraries(dtk_${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS})
  dtk_configure_target(dtk_${name})
endfunction()

# dtk_program(<name> SOURCES <files> DEPENDS <targets>): executable <name> in the build folder's root.
function(dtk_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS})
  dtk_configure_target(${name})
endfunction()

# A library consists of rooms: folders with a CMakeLists.txt that calls dtk_room(). Which rooms may include which is
# checked by tests/house; that no library reaches one above it is up to the include roots set here.
set(DTK_WARNINGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wpedantic)

function(dtk_configure_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  # Libraries may end in somebody's shared object (-fPIC); nobody replaces their functions there, so that they may still
  # be inlined. Of a program it is -fPIE.
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>)
  # LibTorch's headers are more than g++'s collector of garbage begins with: it would walk over them again and again, a
  # tenth of the time of a test's files. Costs 40 to 150 MB of memory.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-expand=1000;--param=ggc-min-heapsize=8000000>)
  target_compile_options(${target} PRIVATE ${DTK_WARNINGS} $<$<BOOL:${DTK_WERROR}>:-Werror>
                         "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
  # Programs link what they call, function by function: a wheel holds four of them.
  target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections)
  target_link_options(${target} PRIVATE LINKER:--gc-sections)
  # Reading an operator's inputs in a callback needs it (DtkTorch.cmake); not passed on to others' programs.
  target_compile_definitions(${target} PRIVATE NDEBUG)
  # What an overflow in a reader of strangers' files would need: knowledge of addresses, a writable table of
  # functions, an unwatched return address.
  if(DTK_HARDEN)
    target_compile_options(${target} PRIVATE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong
                           -fstack-clash-protection)
    target_link_options(${target} PRIVATE -pie LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
  endif()
  if(DTK_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${DTK_SANITIZE} -fno-omit-frame-pointer
                           -fno-sanitize-recover=undefined)
    target_link_options(${target} PUBLIC -fsanitize=${DTK_SANITIZE})
  endif()
endfunction()

# dtk_together(<target> <files>): with DTK_UNITY, compiles so many of its files as one.
function(dtk_together target files)
  if(DTK_UNITY)
    # g++ 12 warns of overlaps in std::string's own operator+ where it inlines much (GCC bug 105329).
    # clang warns of a local that hides a name of another file of the same unit.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                           $<$<CXX_COMPILER_ID:Clang>:-Wno-shadow>)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
  endif()
endfunction()

# dtk_library(<name> ROOMS <folders> DEPENDS <targets> [PRIVATE_DEPENDS <targets>] [ROOT <folder>]): static library
# dtk_<name>, alias dtk::<name>, of the rooms. All include its headers from ROOT; without one, others from its include/,
# itself from its folder too.
function(dtk_library name)
  cmake_parse_arguments(ARG "" "ROOT" "ROOMS;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  set(DTK_ROOM_ROOTS "${ARG_ROOT}")
  if(NOT ARG_ROOT)
    set(ARG_ROOT "${CMAKE_CURRENT_SOURCE_DIR}/include")
    set(DTK_ROOM_ROOTS "${ARG_ROOT}" "${CMAKE_CURRENT_SOURCE_DIR}")
  endif()
  add_library(dtk_${name} STATIC)
  add_library(dtk::${name} ALIAS dtk_${name})
  set_target_properties(dtk_${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(dtk_${name} PUBLIC "$<BUILD_INTERFACE:${ARG_ROOT}>")
  target_link_libraries(dtk_${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS})
  dtk_configure_target(dtk_${name})

  set(DTK_ROOM_LIBRARY ${name})
  set(DTK_ROOM_DEPENDS ${ARG_DEPENDS} ${ARG_PRIVATE_DEPENDS})
  foreach(room IN LISTS ARG_ROOMS)
    add_subdirectory(${room})
  endforeach()
  get_property(rooms GLOBAL PROPERTY dtk_${name}_rooms)
  add_custom_target(${name}_alone DEPENDS ${rooms})
  if(DTK_UNITY)
    target_include_directories(dtk_${name} PRIVATE ${DTK_ROOM_ROOTS})
    dtk_together(dtk_${name} ${DTK_UNITY})
    dtk_use_compiled_headers(dtk_${name} dtk_library_headers)
  endif()
endfunction()

# dtk_room(<files>): the folder's part of the library. Target <library>_<room> compiles it alone, file by file, and
# <library>_alone all rooms so; with DTK_UNITY the library compiles files of several rooms as one, in a third of the
# processor time.
function(dtk_room)
  file(RELATIVE_PATH room "${CMAKE_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REPLACE "/" "_" room "${room}")
  if(DTK_UNITY)
    list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" OUTPUT_VARIABLE sources)
    target_sources(dtk_${DTK_ROOM_LIBRARY} PRIVATE ${sources})
    set(alone EXCLUDE_FROM_ALL)
  else()
    target_sources(dtk_${DTK_ROOM_LIBRARY} PRIVATE $<TARGET_OBJECTS:${room}>)
  endif()
  add_library(${room} OBJECT ${alone} ${ARGN})
  target_include_directories(${room} PRIVATE ${DTK_ROOM_ROOTS})
  target_link_libraries(${room} PRIVATE ${DTK_ROOM_DEPENDS})
  dtk_configure_target(${room})
  if(DTK_UNITY)  # nobody links these objects: they show that no include is missing
    target_compile_options(${room} PRIVATE -O0)
  else()
    dtk_use_compiled_headers(${room} dtk_library_headers)
  endif()
  set_property(GLOBAL APPEND PROPERTY dtk_${DTK_ROOM_LIBRARY}_rooms ${room})
endfunction()

# With DTK_COMPILED_HEADERS, files that include much the same read it from one compiled file; other presets, and
# <library>_alone of a release build, show an include that is missing. The compiler takes it only where its options are
# those that it was made with, and libraries' are not programs'.
# dtk_compiled_headers(<name> LIBRARY|PROGRAM <header> <its empty source> [options]); <name> is a target that nothing else
# builds.
function(dtk_compiled_headers name kind header source)
  if(kind STREQUAL "LIBRARY")
    add_library(${name} OBJECT EXCLUDE_FROM_ALL ${source})
  else()
    add_executable(${name} EXCLUDE_FROM_ALL ${source})
  endif()
  dtk_configure_target(${name})
  target_compile_options(${name} PRIVATE ${ARGN})
  target_precompile_headers(${name} PRIVATE ${header})
endfunction()
# dtk_use_compiled_headers(<target> <name> [the same options])
function(dtk_use_compiled_headers target name)
  if(DTK_COMPILED_HEADERS)
    # ccache needs the first option to keep what reads a compiled header. g++ 12 at -O1 warns of bounds in std::string that
    # are kept, through a compiled header alone; the release build, at -O2, has these warnings.
    target_compile_options(${target} PRIVATE ${ARGN} $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
      $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Debug>>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow>)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

# A hundred programs are linked: gold takes a third of the default's time, and can fold functions of the same code.
if(NOT DTK_SANITIZE)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LINK_OPTIONS -fuse-ld=gold -Wl,--icf=safe)
  check_cxx_source_compiles("int main() { return 0; }" DTK_GOLD)
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
endif()

# dtk_program(<name> SOURCES <files> DEPENDS <targets>): executable <name> in the build folder's root.
function(dtk_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS})
  dtk_configure_target(${name})
  if(DTK_GOLD)
    target_link_options(${name} PRIVATE -fuse-ld=gold)
  endif()
  dtk_together(${name} 8)
endfunction()

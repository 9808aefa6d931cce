# dtk_find_torch(HINTS <folders>): imported target dtk::torch from a LibTorch or a torch wheel; sets
# DTK_TORCH_VERSION and DTK_TORCH_ROOT. Without a LibTorch there is no target afterwards. Installed with
# the package, for find_package(dtk).
#
# Why not find_package(Torch): with a CUDA build of torch it demands nvcc and the whole toolkit even for
# CPU programs, and its link line drags libtorch_cuda into every process. dtk::torch is torch_cpu and c10
# only; libtorch_cuda is loaded with dlopen when a CUDA device is wanted.
#
# The target does not define NDEBUG, although released libtorch is built with it. In the headers of 2.11 to 2.15 two
# structs have one member more without: jit's CodeImpl, which stays within libtorch, and at::RecordFunction,
# where it lies in padding (x86-64). That one is a flag which RecordFunction::inputs() checks and this libtorch
# never sets, so only code that calls inputs() in a callback must be compiled with NDEBUG.
set(TORCH_PREFIX "" CACHE PATH "Folder that holds LibTorch's include/ and lib/")

# The LibTorch of an earlier find_package(Torch), which must not meet a second one in the same process.
function(dtk_stock_torch result)
  set(found "")
  if(TARGET torch_cpu)
    get_target_property(found torch_cpu LOCATION)
  elseif(TORCH_INSTALL_PREFIX)
    set(found "${TORCH_INSTALL_PREFIX}/lib/libtorch_cpu.so")
  endif()
  if(NOT EXISTS "${found}")
    set(found "")
  endif()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

function(dtk_find_torch)
  cmake_parse_arguments(ARG "" "" "HINTS" ${ARGN})
  dtk_stock_torch(library)
  if(NOT library)
    unset(dtk_torch_cpu_file)  # the caller's, which would count as found
    set(given "${TORCH_PREFIX}")
    if(NOT given)
      set(given "$ENV{TORCH_PREFIX}")
    endif()
    # NO_CACHE: with the result in the cache another TORCH_PREFIX for the same build folder would be ignored.
    if(given)  # taken or refused, never passed over
      find_library(dtk_torch_cpu_file torch_cpu HINTS "${given}" PATH_SUFFIXES lib NO_DEFAULT_PATH NO_CACHE)
    else()
      find_library(dtk_torch_cpu_file torch_cpu HINTS ${CMAKE_PREFIX_PATH} ${ARG_HINTS}
                   PATH_SUFFIXES lib NO_CMAKE_SYSTEM_PATH NO_CACHE)
    endif()
    set(library "${dtk_torch_cpu_file}")
  endif()
  if(NOT library)
    return()
  endif()

  get_filename_component(lib "${library}" DIRECTORY)
  get_filename_component(root "${lib}" DIRECTORY)
  set(version "an unknown version")
  set(header "${root}/include/torch/headeronly/version.h")
  if(EXISTS "${header}")
    file(STRINGS "${header}" lines REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
    string(REGEX REPLACE "[^;]*MAJOR ([0-9]+);.*MINOR ([0-9]+)" "\\1.\\2" version "${lines}")
  endif()
  set(DTK_TORCH_VERSION "${version}" PARENT_SCOPE)
  set(DTK_TORCH_ROOT "${root}" PARENT_SCOPE)
  if(TARGET dtk::torch)
    return()
  endif()

  add_library(dtk::torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(dtk::torch SYSTEM INTERFACE
    "${root}/include" "${root}/include/torch/csrc/api/include")
  # Files, not names: after find_package(Torch), torch_cpu and c10 are targets with more behind them. CMake
  # gives a program the folder of such a file as its run path.
  target_link_libraries(dtk::torch INTERFACE "${library}" "${lib}/libc10.so")
  # The wheel's libraries find libcudart and friends by their own run path.
  target_link_options(dtk::torch INTERFACE "LINKER:--allow-shlib-undefined")
endfunction()

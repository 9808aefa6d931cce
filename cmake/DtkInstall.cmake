# cmake --install: headers, static libraries and the CMake package of dtk::policies, dtk::planner and dtk::models
# (component libraries), and the programs (component programs); cpack makes packages of both. All of it may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(DTK_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/dtk")

foreach(folder policies policies/planner models)
  get_filename_component(library "${folder}" NAME)
  set_target_properties(dtk_${library} PROPERTIES EXPORT_NAME ${library})
  install(TARGETS dtk_${library} EXPORT dtkTargets COMPONENT libraries
          INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(DIRECTORY ${folder}/include/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT libraries
          FILES_MATCHING PATTERN "*.h")
endforeach()
install(EXPORT dtkTargets NAMESPACE dtk:: DESTINATION "${DTK_PACKAGE_DIR}" COMPONENT libraries)

configure_package_config_file(cmake/dtkConfig.cmake.in "${CMAKE_BINARY_DIR}/dtkConfig.cmake"
  INSTALL_DESTINATION "${DTK_PACKAGE_DIR}")
# Before 1.0 any minor version may break.
write_basic_package_version_file("${CMAKE_BINARY_DIR}/dtkConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/dtkConfig.cmake" "${CMAKE_BINARY_DIR}/dtkConfigVersion.cmake"
              cmake/DtkTorch.cmake
        DESTINATION "${DTK_PACKAGE_DIR}" COMPONENT libraries)

# A program is started by a launcher of its name, which finds LibTorch. Beside it lie the libraries that neither LibTorch
# nor every system has.
set(DTK_PROGRAMS dit-plan dit-train dit-sample dit-export)

# A wheel holds all four: functions with the same code are one in each.
if(DTK_GOLD)
  foreach(program IN LISTS DTK_PROGRAMS)
    target_link_options(${program} PRIVATE LINKER:--icf=safe)
  endforeach()
endif()
set(DTK_PROGRAM_DIR "${CMAKE_INSTALL_LIBEXECDIR}/dit-train")
set_target_properties(${DTK_PROGRAMS} PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS ${DTK_PROGRAMS} COMPONENT programs
        RUNTIME_DEPENDENCIES PRE_INCLUDE_REGEXES "^lib(fmt|crypto|jpeg|png16|webp)\\." PRE_EXCLUDE_REGEXES ".*"
        RUNTIME DESTINATION "${DTK_PROGRAM_DIR}" LIBRARY DESTINATION "${DTK_PROGRAM_DIR}")
foreach(library dtk_cuda_kernels dtk_nccl)
  if(TARGET ${library})
    # The quickstart builds the programs without it.
    install(TARGETS ${library} LIBRARY DESTINATION "${DTK_PROGRAM_DIR}" COMPONENT programs OPTIONAL)
  endif()
endforeach()
foreach(program IN LISTS DTK_PROGRAMS)
  install(PROGRAMS "$<TARGET_FILE:dit-launch>" DESTINATION "${CMAKE_INSTALL_BINDIR}" RENAME ${program} COMPONENT programs)
  install(FILES toolkit/programs/completions.bash DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions"
          RENAME ${program} COMPONENT programs)
endforeach()
install(DIRECTORY configs/ DESTINATION "${CMAKE_INSTALL_DATADIR}/dit-train/configs" COMPONENT programs
        FILES_MATCHING PATTERN "*.toml")

# The texts that the licences of what is compiled in ask for, as Debian has them.
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT programs)
foreach(package libcxxopts-dev libfmt-dev libjpeg62-turbo-dev libpng-dev libssl-dev libstb-dev libtomlplusplus-dev libwebp-dev nlohmann-json3-dev zlib1g-dev)
  if(EXISTS "/usr/share/doc/${package}/copyright")
    install(FILES "/usr/share/doc/${package}/copyright" DESTINATION "${CMAKE_INSTALL_DOCDIR}/licenses"
            RENAME ${package} COMPONENT programs)
  else()
    message(WARNING "/usr/share/doc/${package}/copyright is missing: do not pass on what is installed from this build")
  endif()
endforeach()

set(CPACK_GENERATOR TZST DEB)
set(CPACK_PACKAGE_NAME dit-train)
set(CPACK_PACKAGE_CONTACT "the authors of dit-train <dit-train@localhost>")
set(CPACK_PACKAGE_DIRECTORY "${CMAKE_BINARY_DIR}/packages")
set(CPACK_PACKAGE_FILE_NAME "dit-train-${PROJECT_VERSION}-torch${DTK_TORCH_VERSION}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_DEBIAN_FILE_NAME "${CPACK_PACKAGE_FILE_NAME}.deb")
# Of the compiler's own system; the others are in the package, and LibTorch comes from elsewhere.
execute_process(COMMAND getconf GNU_LIBC_VERSION OUTPUT_VARIABLE DTK_LIBC OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REPLACE "glibc " "" DTK_LIBC "${DTK_LIBC}")
execute_process(COMMAND dpkg-query -W "-f=\${Version}" libstdc++6 OUTPUT_VARIABLE DTK_STDCXX ERROR_QUIET)
string(REGEX MATCH "^[0-9]+" DTK_STDCXX "${DTK_STDCXX}")
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= ${DTK_LIBC}), libstdc++6 (>= ${DTK_STDCXX}), zlib1g")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS dataset-fashion-mnist)
include(CPack)

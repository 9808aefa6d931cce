# cmake --install: headers, static libraries and the CMake package of dtk::policies, dtk::planner and dtk::models.
# The programs are a component of their own: --component programs.
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

install(TARGETS dit-plan dit-train dit-sample dit-export COMPONENT programs EXCLUDE_FROM_ALL)

# How a room is built: lmdeploy_room(NAME DEPS rooms... LIBS libraries...) makes from the folder it is called in
#   lmdeploy_NAME        all *.cc, folders included, but tests and benchmarks (SOURCES overrides the list)
#   NAME_test            all *_test.cc, found by CTest
#   NAME_bench           all *_bench.cc
add_library(lmdeploy_options INTERFACE)
# g++ 12 at -O3 sees overlaps in std::string that are not there (GCC bug 105651).
target_compile_options(lmdeploy_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Werror $<$<CONFIG:Release>:-Wno-restrict>>
  $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Wno-restrict>)
target_include_directories(lmdeploy_options INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/src ${CMAKE_CURRENT_BINARY_DIR}/src)
target_link_libraries(lmdeploy_options INTERFACE Threads::Threads Boost::headers)
if(LMDEPLOY_SANITIZE)
  # UBSan's null, vptr and object-size checks double the compile time, and AddressSanitizer stops at such an access
  # too. Instrumented code makes g++ see uninitialised values and mismatched deletes that are not there.
  target_compile_options(lmdeploy_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LMDEPLOY_SANITIZE} -fno-sanitize-recover=all
                              -fno-sanitize=null,vptr,object-size -fno-omit-frame-pointer
                              -Wno-maybe-uninitialized -Wno-mismatched-new-delete>)
  target_link_options(lmdeploy_options INTERFACE -fsanitize=${LMDEPLOY_SANITIZE})
endif()

function(lmdeploy_room NAME)
  cmake_parse_arguments(ROOM "" "" "DEPS;LIBS;SOURCES;TEST_LIBS" ${ARGN})
  file(GLOB_RECURSE tests CONFIGURE_DEPENDS *_test.cc)
  file(GLOB_RECURSE benches CONFIGURE_DEPENDS *_bench.cc)
  if(NOT ROOM_SOURCES)
    file(GLOB_RECURSE ROOM_SOURCES CONFIGURE_DEPENDS *.cc)
    list(REMOVE_ITEM ROOM_SOURCES ${tests} ${benches} "")
  endif()
  list(TRANSFORM ROOM_DEPS PREPEND lmdeploy_)
  add_library(lmdeploy_${NAME} STATIC ${ROOM_SOURCES})
  target_link_libraries(lmdeploy_${NAME} PUBLIC lmdeploy_options ${ROOM_DEPS} PRIVATE ${ROOM_LIBS})
  if(tests AND LMDEPLOY_BUILD_TESTS)
    lmdeploy_test(${NAME}_test SOURCES ${tests} LIBS lmdeploy_${NAME} ${ROOM_TEST_LIBS})
  endif()
  if(benches AND LMDEPLOY_BUILD_BENCHMARKS)
    add_executable(${NAME}_bench ${benches})
    target_link_libraries(${NAME}_bench PRIVATE lmdeploy_${NAME} benchmark::benchmark benchmark::benchmark_main)
  endif()
endfunction()

# lmdeploy_test(TARGET SOURCES files... LIBS libraries...): a GoogleTest program whose tests CTest lists one by one.
function(lmdeploy_test TARGET)
  cmake_parse_arguments(T "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${TARGET} ${T_SOURCES} ${CMAKE_SOURCE_DIR}/tests/own_temp_folder.cc)
  target_link_libraries(${TARGET} PRIVATE ${T_LIBS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${TARGET} PRIVATE LMDEPLOY_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  gtest_discover_tests(${TARGET} TEST_PREFIX "${TARGET}." NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 600)
endfunction()

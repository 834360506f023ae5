# The CUDA language for src/lmdeploy/kernels/cuda: LMDEPLOY_WITH_CUDA includes this.
# The device code of sm_90a runs on Hopper, that of sm_80 on Ampere and Ada and, as PTX, on what came after Hopper.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "75-real;80;90a-real" CACHE STRING "Architectures of the CUDA back end")
endif()
if(NOT CMAKE_CUDA_COMPILER)
  find_program(LMDEPLOY_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
  if(NOT LMDEPLOY_NVCC)
    message(FATAL_ERROR "LMDEPLOY_WITH_CUDA: nvcc is neither on the PATH nor in CUDA_HOME/bin nor in /usr/local/cuda/bin. "
                        "Install the CUDA toolkit 13 (https://developer.nvidia.com/cuda-downloads), or set "
                        "CMAKE_CUDA_COMPILER to its nvcc, or build without LMDEPLOY_WITH_CUDA")
  endif()
  set(CMAKE_CUDA_COMPILER ${LMDEPLOY_NVCC})
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
  message(FATAL_ERROR "LMDEPLOY_WITH_CUDA: ${CMAKE_CUDA_COMPILER} is CUDA ${CMAKE_CUDA_COMPILER_VERSION}, expected 13.0 or newer")
endif()
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # CMake 3.25 does not know that this nvcc has it
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
find_package(CUDAToolkit REQUIRED)

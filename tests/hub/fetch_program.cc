// fetch_model() as a process of its own, for tests that need several or kill one:
//   hub_fetch ENDPOINT CACHE_DIR MODEL
#include <iostream>

#include "lmdeploy/hub/hub.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  lmdeploy::HubConfig config;
  config.endpoint = argv[1];
  config.cache_dir = argv[2];
  try {
    std::cout << lmdeploy::fetch_model({.model = argv[3]}, config) << std::endl;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}

// For tests: a statement must throw an Error of one code whose message holds some words.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "lmdeploy/core/error.h"

namespace lmdeploy {

inline void expect_error(ErrorCode code, const std::vector<std::string>& words,
                         const std::function<void()>& body) {
  try {
    body();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << "no \"" << word << "\" in: " << error.what();
  }
}

}  // namespace lmdeploy

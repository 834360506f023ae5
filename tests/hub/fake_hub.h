// Hugging Face's hub as far as the client uses it, on a stand-in server, and what tests of it share.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "http_stand_in.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/hub/hub.h"

namespace lmdeploy::testing {

/// Hexadecimal, as the hub names files.
std::string sha256_of(const std::string& bytes);
std::string git_hash_of(const std::string& bytes);

/// One model, org/model. Weights (.safetensors, .bin, .gguf) are large files: named by SHA-256, at /storage
/// of the same or another server.
class FakeHub {
 public:
  FakeHub();

  std::map<std::string, std::string> files;      // name -> content
  std::map<std::string, std::string> revisions;  // branch, tag or commit -> commit
  std::string token;                             // needed, when not empty
  std::string storage_url;                       // of another server; empty: this one sends everything itself
  /// Changes a reply before it is sent.
  std::function<void(const StandInRequest&, StandInReply&)> tamper;

  std::string url() const { return server_.url(); }
  /// Requests so far whose method and target begin so: "GET /org".
  size_t count(const std::string& begin) const;
  std::vector<StandInRequest> requests() const { return server_.requests(); }

 private:
  StandInReply answer(const StandInRequest& request);
  StandInReply listing(const std::string& revision) const;
  StandInReply file(const StandInRequest& request, const std::string& name) const;

  HttpStandIn server_;  // last: its threads end first
};

/// The part of `body` that the Range header asks for, as 206; all of it without one.
StandInReply ranged(const StandInRequest& request, const std::string& body);

inline const std::string kCommit = "0123456789abcdef0123456789abcdef01234567";

/// A cache in a temporary folder, and a client that pauses no real time.
class HubTest : public ::testing::Test {
 protected:
  HubTest();
  ~HubTest() override;

  HubConfig config() const;
  HubHooks hooks();
  std::string fetch(const ModelRequest& request = {.model = "org/model"});
  std::string fetch(const ModelRequest& request, const HubHooks& hooks);
  /// See HttpStandIn: before and after servers are used.
  virtual void order() const { hub_.url(); }
  /// The message of the error that fetch() must end with.
  std::string failure(ErrorCode code, const ModelRequest& request = {.model = "org/model"});
  std::string cache() const { return folder_ + "/hub"; }
  std::string root() const { return cache() + "/models--org--model"; }
  std::string snapshot(const std::string& commit = kCommit) const { return root() + "/snapshots/" + commit; }

  FakeHub hub_;
  HubConfig config_;
  std::string folder_;
  std::vector<int64_t> pauses_ms_;
};

std::string text_of(const std::string& path);
void write_text(const std::string& path, const std::string& text);

}  // namespace lmdeploy::testing

// A model of a hub at one revision, and its copy on this machine: what the two hubs do differently.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdeploy/hub/config.h"
#include "lmdeploy/hub/hub.h"
#include "lmdeploy/hub/names.h"

namespace lmdeploy {

class Repository {
 public:
  virtual ~Repository() = default;

  /// The folder that an earlier finish() left for this revision; it may hold only some of the files.
  virtual std::optional<std::string> cached() const = 0;
  /// Asks the hub for its list of files. Returns what is wrong with the network, "" when all is well; a
  /// refusal is an Error.
  virtual std::string list() = 0;
  /// After list().
  virtual const std::vector<std::string>& files() const = 0;
  virtual std::string folder() const = 0;
  /// Downloads those that are not in the folder. Throws Error.
  virtual void fetch(const std::vector<std::string>& names) = 0;
  /// Everything needed is there: cached() finds it from now on.
  virtual void finish() = 0;
};

struct RepositoryOptions {
  ModelId id;
  std::string revision;
  const HubConfig& config;  // outlive the repository
  const HubHooks& hooks;
};
std::unique_ptr<Repository> make_hugging_face_repository(const RepositoryOptions& options);
std::unique_ptr<Repository> make_modelscope_repository(const RepositoryOptions& options);

}  // namespace lmdeploy

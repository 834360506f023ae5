// Hugging Face's hub and the cache that its tools share: blobs under their etags, snapshots as links to them.
// https://huggingface.co/docs/huggingface_hub/guides/manage-cache
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/hub/file_lock.h"
#include "lmdeploy/hub/repository.h"
#include "lmdeploy/hub/retry.h"
#include "lmdeploy/hub/small_file.h"
#include "lmdeploy/hub/transfer.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxRefBytes = 4096;
constexpr std::chrono::milliseconds kLockPause{100};

std::string secret(const HubConfig& config) {
  return config.token.empty() ? "" : "Authorization: Bearer " + config.token;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

class HuggingFaceRepository final : public Repository {
 public:
  explicit HuggingFaceRepository(const RepositoryOptions& options)
      : id_(options.id),
        revision_(options.revision),
        config_(options.config),
        folder_name_("models--" + id_.org + "--" + id_.name),
        root_(fs::path(config_.cache_dir) / folder_name_),
        transfer_(config_, options.hooks, secret(config_)) {}

  std::optional<std::string> cached() const override {
    const std::string commit = is_commit(revision_) ? revision_ : read_ref();
    if (!is_commit(commit) || !is_there(snapshot(commit))) return std::nullopt;
    return snapshot(commit).string();
  }

  std::string list() override {
    const std::string url =
        cat(config_.endpoint, "/api/models/", id_.repository(), "/revision/", url_quote(revision_));
    std::string body;
    const HttpReply reply = transfer_.get(url, body);
    if (is_passing_failure(reply)) return describe_failure(reply);
    if (!reply.ok()) throw_refusal(reply, {id_, revision_, ""}, config_);
    listing_ = parse_listing(body, url);
    return "";
  }

  const std::vector<std::string>& files() const override { return listing_.files; }
  std::string folder() const override { return snapshot(listing_.commit).string(); }

  void fetch(const std::vector<std::string>& names) override {
    std::vector<RemoteFile> missing;
    for (const std::string& name : names) {
      if (is_there(pointer(name))) continue;
      missing.push_back(ask_for(name));
      transfer_.expect(missing.back());
    }
    for (const RemoteFile& file : missing) fetch_one(file);
  }

  void finish() override {
    if (!is_commit(revision_) && read_ref() != listing_.commit)
      replace_file(ref_path().string(), listing_.commit);
  }

 private:
  fs::path snapshot(const std::string& commit) const { return root_ / "snapshots" / commit; }
  fs::path pointer(const std::string& name) const { return snapshot(listing_.commit) / name; }
  fs::path ref_path() const { return root_ / "refs" / revision_; }

  std::string read_ref() const {
    std::error_code ignored;
    if (!fs::is_regular_file(ref_path(), ignored)) return "";
    std::string commit = read_file(ref_path().string(), kMaxRefBytes);
    commit.erase(commit.find_last_not_of(" \r\n") + 1);
    return commit;
  }

  RemoteFile ask_for(const std::string& name) {
    const std::string url =
        cat(config_.endpoint, "/", id_.repository(), "/resolve/", listing_.commit, "/", url_quote(name, "/"));
    const HttpReply reply = transfer_.head(url);
    const bool redirected = reply.trouble.empty() && reply.status >= 300 && reply.status < 400;
    if (!reply.ok() && !redirected) throw_refusal(reply, {id_, revision_, name}, config_);
    RemoteFile file = parse_file_headers(reply, name);
    file.url = url;
    return file;
  }

  void fetch_one(const RemoteFile& file) {
    const fs::path blob = root_ / "blobs" / file.etag;
    make_folders(blob.parent_path().string());
    make_folders(pointer(file.path).parent_path().string());
    const fs::path lock_path = fs::path(config_.cache_dir) / ".locks" / folder_name_ / (file.etag + ".lock");
    const FileLock lock(lock_path.string(), [this] { transfer_.pause(kLockPause); });
    if (is_there(pointer(file.path)) || is_there(blob)) {
      transfer_.skip(file);
    } else {
      transfer_.download(file, blob.string() + ".incomplete", blob.string(), {id_, revision_, file.path});
    }
    if (!is_there(pointer(file.path))) link(blob, pointer(file.path));
  }

  /// Relative, so that a cache can be moved.
  void link(const fs::path& blob, const fs::path& pointer) const {
    const fs::path target = blob.lexically_relative(pointer.parent_path());
    ::unlink(pointer.c_str());  // one whose blob has been removed
    if (::symlink(target.c_str(), pointer.c_str()) == 0) return;
    const bool no_links = errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS;
    if (no_links && ::rename(blob.c_str(), pointer.c_str()) == 0) return;
    throw Error(ErrorCode::kIo,
                cat("link ", pointer.string(), " to ", blob.string(), ": ", std::strerror(errno)));
  }

  ModelId id_;
  std::string revision_;
  const HubConfig& config_;
  std::string folder_name_;
  fs::path root_;
  Transfer transfer_;
  Listing listing_;
};

}  // namespace

std::unique_ptr<Repository> make_hugging_face_repository(const RepositoryOptions& options) {
  return std::make_unique<HuggingFaceRepository>(options);
}

}  // namespace lmdeploy

// ModelScope's hub. Its cache has one folder per model with the files themselves, of one revision at a time;
// what is in it is recorded in .lmdeploy/files.json.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/hub/file_lock.h"
#include "lmdeploy/hub/repository.h"
#include "lmdeploy/hub/retry.h"
#include "lmdeploy/hub/small_file.h"
#include "lmdeploy/hub/transfer.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kLockPause{100};

std::string secret(const HubConfig& config) {
  return config.token.empty() ? "" : "Cookie: m_session_id=" + config.token;
}

/// The folder's name: a dot is written as three underscores.
std::string folder_name(const std::string& name) {
  std::string folder;
  for (const char c : name) folder += c == '.' ? std::string("___") : std::string(1, c);
  return folder;
}

/// What files.json says.
struct Record {
  std::string revision;                       // complete; empty while files change
  std::map<std::string, std::string> hashes;  // file -> SHA-256
};

Record read_record(const std::string& path) {
  Record record;
  try {
    const Json value = read_json_file(path);
    record.revision = value.at("revision").as_string();
    for (const auto& [file, hash] : value.at("files").as_object())
      record.hashes[std::string(file)] = std::string(hash.as_string());
  } catch (const std::exception&) {  // absent or damaged: then the files are hashed again
    return {};
  }
  return record;
}

void write_record(const std::string& path, const Record& record) {
  JsonObject files;
  for (const auto& [file, hash] : record.hashes) files[file] = hash;
  replace_file(path, to_json_text(JsonObject{{"revision", record.revision}, {"files", std::move(files)}}));
}

class ModelScopeRepository final : public Repository {
 public:
  explicit ModelScopeRepository(const RepositoryOptions& options)
      : id_(options.id),
        revision_(options.revision),
        config_(options.config),
        folder_(fs::path(config_.cache_dir) / "models" / folder_name(id_.org) / folder_name(id_.name)),
        record_path_((own_folder() / "files.json").string()),
        transfer_(config_, options.hooks, secret(config_)) {}

  std::optional<std::string> cached() const override {
    std::error_code ignored;
    if (!fs::is_directory(folder_, ignored)) return std::nullopt;
    // A folder without a record is from ModelScope's own tools.
    const bool by_others = !fs::exists(record_path_, ignored) && revision_ == default_revision(config_.kind);
    if (!by_others && read_record(record_path_).revision != revision_) return std::nullopt;
    return folder_.string();
  }

  std::string list() override {
    const std::string url = cat(config_.endpoint, "/api/v1/models/", id_.repository(),
                                "/repo/files?Revision=", url_quote(revision_), "&Recursive=true");
    std::string body;
    const HttpReply reply = transfer_.get(url, body);
    if (is_passing_failure(reply)) return describe_failure(reply);
    if (!reply.ok()) throw_refusal(reply, {id_, revision_, ""}, config_);
    listing_ = parse_modelscope_listing(body, url);
    for (RemoteFile& file : listing_) {
      names_.push_back(file.path);
      file.url = cat(config_.endpoint, "/api/v1/models/", id_.repository(),
                     "/repo?Revision=", url_quote(revision_), "&FilePath=", url_quote(file.path));
    }
    return "";
  }

  const std::vector<std::string>& files() const override { return names_; }
  std::string folder() const override { return folder_.string(); }

  void fetch(const std::vector<std::string>& names) override {
    make_folders(own_folder().string());
    const FileLock lock((own_folder() / "lock").string(), [this] { transfer_.pause(kLockPause); });
    Record record = read_record(record_path_);
    std::vector<RemoteFile> missing;
    for (const RemoteFile& file : listing_) {
      if (std::find(names.begin(), names.end(), file.path) == names.end() || is_here(file, record)) continue;
      missing.push_back(file);
      transfer_.expect(file);
    }
    if (!missing.empty()) record.revision.clear();
    write_record(record_path_, record);
    for (const RemoteFile& file : missing) {
      fetch_one(file);
      record.hashes[file.path] = file.etag;
      write_record(record_path_, record);
    }
  }

  void finish() override {
    const FileLock lock((own_folder() / "lock").string(), [this] { transfer_.pause(kLockPause); });
    Record record = read_record(record_path_);
    if (std::exchange(record.revision, revision_) != revision_) write_record(record_path_, record);
  }

 private:
  fs::path own_folder() const { return folder_ / ".lmdeploy"; }

  /// Of the size and hash that the hub lists. A file that is not in the record is hashed, once.
  bool is_here(const RemoteFile& file, Record& record) const {
    const fs::path path = folder_ / file.path;
    std::error_code error;
    const auto size = fs::file_size(path, error);
    if (error || static_cast<int64_t>(size) != file.size) return false;
    std::string& hash = record.hashes[file.path];
    if (hash.empty() && !file.etag.empty()) hash = hash_of(path, file);
    return hash == file.etag;
  }

  static std::string hash_of(const fs::path& path, const RemoteFile& file) {
    PartialFile there(path.string(), file);
    return there.is_intact() ? file.etag : "other";
  }

  void fetch_one(const RemoteFile& file) {
    const fs::path target = folder_ / file.path;
    make_folders(target.parent_path().string());
    const std::string name = file.etag.empty() ? url_quote(file.path) : file.etag;
    transfer_.download(file, (own_folder() / (name + ".incomplete")).string(), target.string(),
                       {id_, revision_, file.path});
  }

  ModelId id_;
  std::string revision_;
  const HubConfig& config_;
  fs::path folder_;
  std::string record_path_;
  Transfer transfer_;
  std::vector<RemoteFile> listing_;
  std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<Repository> make_modelscope_repository(const RepositoryOptions& options) {
  return std::make_unique<ModelScopeRepository>(options);
}

}  // namespace lmdeploy

// A model of a hub's cache by its name.
#include <filesystem>
#include <fstream>

#include "fixture.h"

namespace lmdeploy::testing {
namespace {

class PipelineHubTest : public PipelineTest {
 protected:
  PipelineHubTest() {
    const std::string commit(40, 'a'), root = folder() + "/models--org--model";
    std::filesystem::create_directories(root + "/snapshots/" + commit);
    std::filesystem::create_directories(root + "/refs");
    std::ofstream(root + "/refs/main") << commit;
    write_chain_model(root + "/snapshots/" + commit);
  }
  PipelineConfig hub_config() const {
    PipelineConfig with_hub = config();
    with_hub.model_path = "org/model";
    with_hub.hub = HubConfig();
    with_hub.hub->cache_dir = folder();
    with_hub.hub->offline = true;
    return with_hub;
  }
};

TEST_F(PipelineHubTest, OpensByName) {
  Pipeline pipeline(hub_config());
  EXPECT_EQ(run_raw(pipeline, "w").text, "xyz");
  EXPECT_EQ(pipeline.config().model_path, "org/model");
}

TEST_F(PipelineHubTest, RevisionAndDownloadDir) {
  PipelineConfig other = hub_config();
  other.revision = "v2";
  expect_error(ErrorCode::kNotFound, {"org/model", "v2"}, [&] { Pipeline pipeline(other); });
  other.revision = std::string(40, 'a');
  other.hub->cache_dir = "/nowhere";
  other.download_dir = folder();
  EXPECT_EQ(run_raw(*std::make_unique<Pipeline>(other), "w").text, "xyz");
}

TEST_F(PipelineHubTest, WithoutAHubANameIsAPath) {
  PipelineConfig local = hub_config();
  local.hub.reset();
  expect_error(ErrorCode::kNotFound, {"org/model", "no such file or folder"},
               [&] { Pipeline pipeline(local); });
}

}  // namespace
}  // namespace lmdeploy::testing

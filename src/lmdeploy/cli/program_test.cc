#include "lmdeploy/cli/program.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace lmdeploy {
namespace {

struct Outcome {
  int code = 0;
  std::string out, err;
};

Outcome run(const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  const int code = run_program(arguments, out, err);
  return {code, out.str(), err.str()};
}

void expect_one_error_line(const Outcome& outcome, std::initializer_list<const char*> words) {
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.rfind("lmdeploy: error: ", 0), 0u) << outcome.err;
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
  for (const char* word : words)
    EXPECT_NE(outcome.err.find(word), std::string::npos) << "no " << word << " in " << outcome.err;
}

TEST(Program, F78_VersionAndHelpNeedNothing) {
  for (const char* flag : {"-v", "--version", "--vers"}) {
    const Outcome version = run({flag});
    EXPECT_EQ(version.code, 0);
    EXPECT_EQ(version.out.find_first_not_of("0123456789.\n"), std::string::npos) << version.out;
  }
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{},
                                                    {"-h"},
                                                    {"--help"},
                                                    {"serve"},
                                                    {"lite"},
                                                    {"chat", "-h"},
                                                    {"convert", "--help"}}) {
    const Outcome help = run(arguments);
    EXPECT_EQ(help.code, 0);
    EXPECT_NE(help.out.find("Usage: lmdeploy"), std::string::npos) << help.out;
    EXPECT_EQ(help.err, "");
  }
  EXPECT_NE(run({"serve"}).out.find("api_server"), std::string::npos);
  const std::string program_help = run({"-h"}).out;
  EXPECT_NE(program_help.find("Quantise a model (not supported yet)"), std::string::npos) << program_help;
  const std::string chat_help = run({"chat", "-h"}).out;
  for (const char* word : {"--session-len", "`end` starts a new conversation", "`exit` leaves"})
    EXPECT_NE(chat_help.find(word), std::string::npos) << chat_help;
}

TEST(Program, WrongCommandLinesEndWithCode2) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"chat"},
                                                    {"chat", "m", "--no-such-flag"},
                                                    {"chat", "m", "--session-len", "many"},
                                                    {"chat", "m", "--dtype", "int3"},
                                                    {"chat", "m", "--spec", "x"},
                                                    {"chat", "what", "m"},
                                                    {"no-such-command"},
                                                    {"serve", "no-such-server"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << testing::PrintToString(arguments) << outcome.out << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find(": error: "), std::string::npos) << outcome.err;
  }
}

TEST(Program, EmptyKeysAndNamesAreRefused) {
  const auto refuses = [](const std::vector<std::string>& arguments, const std::string& words) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << testing::PrintToString(arguments) << outcome.err;
    EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
  };
  for (const char* keys : {"", " ", ",", "k,", ",k", "k,,l"}) {
    refuses({"serve", "api_server", "/no/such", "--api-keys", keys}, "--api-keys: a key is empty");
    refuses({"serve", "proxy", "--api-keys", keys, "--server-name", "no.such.invalid"},
            "--api-keys: a key is empty");
  }
  refuses({"serve", "api_server", "/no/such", "--api-keys="}, "--api-keys");
  refuses({"serve", "proxy", "--api-keys", "k", ""}, "--api-keys: a key is empty");
  refuses({"serve", "api_server", "/no/such", "--model-name", ""}, "--model-name: a name is empty");
  for (const std::vector<std::string>& names : {std::vector<std::string>{"a", "a"}, {"a,b, a"}}) {
    std::vector<std::string> arguments = {"serve", "api_server", "/no/such", "--model-name"};
    arguments.insert(arguments.end(), names.begin(), names.end());
    refuses(arguments, "--model-name: the name a is given twice");
  }
}

TEST(Program, AModelThatAListFlagTook) {
  const Outcome taken =
      run({"serve", "api_server", "--api-keys", "k1", "k2", "org/model", "--server-port", "1"});
  EXPECT_EQ(taken.code, 2);
  for (const char* words : {"model_path is required", "--api-keys has taken org/model", "before the flags"})
    EXPECT_NE(taken.err.find(words), std::string::npos) << taken.err;
  EXPECT_EQ(run({"serve", "api_server", "--api-keys", "k1"}).err.find("has taken"), std::string::npos);
}

TEST(Program, IntegersOutOfRange) {
  const auto refuses = [](const char* flag, const char* value, const char* reason) {
    const Outcome outcome = run({"chat", "m", flag, value});
    EXPECT_EQ(outcome.code, 2) << flag << " " << value;
    const std::string line = std::string("lmdeploy chat: error: ") + flag + ": " + value +
                             " is not an integer from " + reason + "\n";
    EXPECT_EQ(outcome.err.rfind(line, 0), 0u) << outcome.err;
  };
  for (const char* value : {"99999999999999999999", "2147483648", "-1", "1.5", "0x10", "", "1 "}) {
    refuses("--session-len", value, "0 to 2147483647");
    refuses("--num-threads", value, "0 to 1024");
    refuses("--max-batch-size", value, "1 to 2147483647");
  }
  refuses("--max-batch-size", "0", "1 to 2147483647");
  refuses("--tp", "99999999999999999999", "1 to 2147483647");
  refuses("--tp", "1.5", "1 to 2147483647");
  refuses("--tp", "0", "1 to 2147483647");
  expect_one_error_line(run({"chat", "m", "--cp", "010"}), {"--cp 10;"});  // not octal
}

// Before anything is loaded or measured.
TEST(Program, BenchOverwritesNothingButItsFigures) {
  namespace fs = std::filesystem;
  std::string folder = testing::TempDir() + "bench-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto file = [&](const char* name) { return folder + "/" + name; };
  const auto write = [&](const char* name, const char* text) { std::ofstream(file(name)) << text; };
  const auto bench = [&](const char* name) {
    return run({"bench", "model", file("m.gguf"), "--json", file(name)});
  };
  for (const char* text : {"GGUF...", R"({"model_type": "llama"})", "[1]"}) {
    write("m.gguf", text);
    expect_one_error_line(bench("m.gguf"), {"m.gguf", "holds no figures"});
    std::string left;
    std::getline(std::ifstream(file("m.gguf")), left);
    EXPECT_EQ(left, text);
  }
  write("m.gguf", "GGUF...");
  write("figures.json", R"({"cases": []})");
  write("empty.json", "");
  for (const char* name : {"figures.json", "empty.json", "new.json"})
    EXPECT_NE(bench(name).err.find("m.gguf: "), std::string::npos) << name;  // the model is cut short
  fs::remove_all(folder);
}

TEST(Program, BenchTakesEachBatchOnce) {
  const Outcome outcome = run({"bench", "model", "--shape", "tiny", "--batch", "2,1", "--batch", "2"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("--batch: 2 stands there twice"), std::string::npos) << outcome.err;
}

TEST(Program, ThreadsHaveTwoNames) {
  EXPECT_NE(run({"chat", "m", "--threads", "1025"}).err.find("1025 is not an integer from 0 to 1024"),
            std::string::npos);
}

TEST(Program, MissingCommandsSayWhatToUse) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"serve", "triton_client", "x"},
                                                    {"lite", "auto_awq", "m", "--work-dir", "w"},
                                                    {"lite", "auto_gptq", "m"},
                                                    {"lite", "calibrate", "m"},
                                                    {"lite", "smooth_quant", "m"},
                                                    {"lite", "kv_qparams", "w", "t"}}) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    expect_one_error_line(run(arguments), {"not supported yet", "; use "});
  }
}

TEST(Program, BadInput_Convert) {
  const Outcome format = run({"convert", "llama2", "m", "--model-format", "onnx"});
  EXPECT_EQ(format.code, 255);
  EXPECT_NE(format.err.find("onnx"), std::string::npos) << format.err;
  EXPECT_NE(format.err.find("hf, llama, awq"), std::string::npos) << format.err;
  expect_one_error_line(run({"convert", "no-such", "m"}), {"no-such", "internlm2", "llama2"});
  expect_one_error_line(run({"convert", "llama2", "/no/such/model"}), {"/no/such/model"});
  expect_one_error_line(run({"convert", "llama2", "m", "--quant-path", "q"}), {"--quant-path", "MODEL_PATH"});
  expect_one_error_line(run({"convert", "llama2", testing::TempDir(), "--tp", "3"}),
                        {"--tp is 3", "power of two"});
  EXPECT_EQ(run({"convert", "llama2"}).code, 2);
  EXPECT_EQ(run({"convert", "llama2", "m", "--tp", "0"}).code, 2);
}

TEST(Program, ChatRefusesByName) {
  const Outcome outcome = run({"chat", "m", "--rounded-activations", "maybe"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("maybe not in {true,false}"), std::string::npos) << outcome.err;
  expect_one_error_line(run({"chat", "m", "--tp", "16", "--device", "cpu"}),
                        {"not supported: tp 16", "device_type is cpu", "use tp 1"});
  expect_one_error_line(run({"chat", "m", "--tp", "17"}), {"tp is 17", "1 to 16"});
  expect_one_error_line(run({"chat", "m", "--quant_policy=fp8"}), {"--quant-policy fp8", "--quant-policy 8"});
  expect_one_error_line(run({"chat", "m", "--adapters", "a=b", "c=d"}), {"--adapters a=b"});
  expect_one_error_line(run({"chat", "m", "--device", "ascend"}), {"--device ascend", "--device cpu"});
  // Without a GPU CUDA is not available, with one the model is not there.
  const Outcome on_cuda = run({"chat", "m", "--device", "cuda"});
  EXPECT_EQ(on_cuda.code, 1);
  EXPECT_EQ(on_cuda.err.find("not supported yet"), std::string::npos) << on_cuda.err;
  expect_one_error_line(run({"chat", "m", "--speculative-alg", "eagle"}),
                        {"--speculative-algorithm eagle", "use prompt_lookup or draft"});
  expect_one_error_line(run({"chat", "m", "--speculative-algorithm", "guess"}),
                        {"\"guess\"", "prompt_lookup"});
  expect_one_error_line(run({"chat", "m", "--speculative-algorithm", "draft"}), {"model is empty"});
  expect_one_error_line(run({"chat", "m", "--speculative-num-draft-tokens", "4"}),
                        {"need --speculative-algorithm"});
}

TEST(Program, BadInput_ChatModelAndTemplate) {
  expect_one_error_line(run({"chat", "/no/such/model"}), {"/no/such/model", "path of a model"});
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  expect_one_error_line(run({"chat", "internlm/no-such-model", "--session-len", "100"}),
                        {"internlm/no-such-model", "HF_HUB_OFFLINE", "no copy"});
  ::unsetenv("HF_HUB_OFFLINE");
  expect_one_error_line(run({"chat", testing::TempDir(), "--chat-template", "no-such"}),
                        {"no-such", "llama2"});
  for (const char* file : {"/no/such/file", "no-such.json"})
    expect_one_error_line(run({"chat", testing::TempDir(), "--chat-template", file}),
                          {"--chat-template: there is no file", file});
  expect_one_error_line(run({"chat", "https://hub.example/a/b"}),
                        {"https://hub.example/a/b", "no such folder or file"});
  expect_one_error_line(run({"chat", testing::TempDir(), "--log-level", "loud"}),
                        {"--log-level: ", "loud", "WARNING"});
  ::setenv("TM_LOG_LEVEL", "louder", 1);
  expect_one_error_line(run({"chat", testing::TempDir()}), {"TM_LOG_LEVEL: ", "louder", "WARNING"});
  ::unsetenv("TM_LOG_LEVEL");
}

TEST(Program, BadInput_LogFile) {
  ::setenv("LMDEPLOY_LOG_FILE", "/dev/null/log", 1);
  expect_one_error_line(run({"list"}), {"LMDEPLOY_LOG_FILE: ", "/dev/null/log"});
  ::unsetenv("LMDEPLOY_LOG_FILE");
}

TEST(Program, List) {
  const Outcome list = run({"list"});
  EXPECT_EQ(list.code, 0);
  EXPECT_NE(list.out.find("\nllama2\n"), std::string::npos) << list.out;
  EXPECT_EQ(list.out.find("\nbase\n"), std::string::npos);
  EXPECT_NE(list.out.substr(0, list.out.find('\n')).find("deprecated"), std::string::npos);
}

TEST(Program, F78_CheckEnvEndsWithAVerdict) {
  const Outcome check = run({"check_env"});
  EXPECT_EQ(check.err, "");
  const size_t last_line = check.out.rfind('\n', check.out.size() - 2) + 1;
  EXPECT_EQ(check.out.substr(last_line, 9), "Verdict: ") << check.out;
  EXPECT_NE(check.out.find("CPU instruction set: "), std::string::npos);
  expect_one_error_line(run({"check_env", "--dump-file", "x.pkl"}), {"pickle"});
}

}  // namespace
}  // namespace lmdeploy

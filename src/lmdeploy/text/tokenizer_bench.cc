// What tools/tokenizer_bench.py cannot see from Python: encoding by itself, to be profiled, and streamed
// decoding. MB/s of UTF-8, on one thread. Run from the repository root after `make demo`, or with
// --tokenizer=PATH (a model folder, a tokenizer.json or a .gguf).
#include "lmdeploy/text/tokenizer.h"

#include <benchmark/benchmark.h>

#include <cstring>
#include <filesystem>

#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

std::string tokenizer_path = "models/SmolLM2-135M-Instruct-Q4_1.gguf";

constexpr const char* kEnglish =
    "When the ferry reached the northern shore, Mrs. Aldridge hadn't yet decided whether to stay; the "
    "letters, "
    "tied with a red string, were still unread. \"It's late,\" she said, and counted 1,250 steps to the "
    "gate.\n\n";

// About `bytes` of text: the sample's words in a random order, so that no cache sees one line again and
// again.
std::string make_text(size_t bytes) {
  std::vector<std::string_view> words;
  const char* word = kEnglish;
  for (const char* at = kEnglish + 1; *at != '\0'; ++at)
    if (*at == ' ') {
      words.emplace_back(word, static_cast<size_t>(at - word));
      word = at;
    }
  words.emplace_back(word, std::strlen(word));
  std::string text;
  for (Rng rng(7); text.size() < bytes;) text += words[rng.below(words.size())];
  return text;
}

const Tokenizer* load(benchmark::State& state) {
  static std::shared_ptr<const Tokenizer> tokenizer;
  if (tokenizer == nullptr && std::filesystem::exists(tokenizer_path))
    tokenizer = Tokenizer::load(tokenizer_path);
  if (tokenizer == nullptr) state.SkipWithError("no tokenizer; see --tokenizer=PATH");
  return tokenizer.get();
}

void encode_english(benchmark::State& state) {
  const Tokenizer* tokenizer = load(state);
  if (tokenizer == nullptr) return;
  const std::string text = make_text(size_t{1} << 20);
  size_t tokens = 0;
  for (auto _ : state) tokens = tokenizer->encode(text).size();
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
  state.counters["bytes/token"] = static_cast<double>(text.size()) / static_cast<double>(tokens);
}

// Nothing to cut and nothing to cache: the heap's own speed.
void encode_one_word(benchmark::State& state) {
  const Tokenizer* tokenizer = load(state);
  if (tokenizer == nullptr) return;
  std::string text;
  for (Rng rng(3); text.size() < (size_t{1} << 20);) text.push_back(static_cast<char>('a' + rng.below(26)));
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->encode(text));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

// Token by token, as answers are.
void decode_streamed(benchmark::State& state) {
  const Tokenizer* tokenizer = load(state);
  if (tokenizer == nullptr) return;
  const std::string text = make_text(size_t{1} << 20);
  const std::vector<int> ids = tokenizer->encode(text, {.add_special_tokens = false});
  for (auto _ : state) {
    const auto stream = tokenizer->decode_stream(true);
    std::string piece;
    for (const int id : ids) {
      piece.clear();
      stream->push(id, piece);
      benchmark::DoNotOptimize(piece);
    }
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

BENCHMARK(encode_english)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_one_word)->Unit(benchmark::kMillisecond);
BENCHMARK(decode_streamed)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lmdeploy

int main(int argc, char** argv) {
  constexpr std::string_view kFlag = "--tokenizer=";
  for (int i = 1; i < argc; ++i) {
    if (!std::string_view(argv[i]).starts_with(kFlag)) continue;
    lmdeploy::tokenizer_path = argv[i] + kFlag.size();
    std::copy(argv + i + 1, argv + argc, argv + i);
    --argc;
    break;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

// Which catalogue template a model path means.
#include <algorithm>
#include <array>
#include <iterator>

#include "lmdeploy/text/chat/catalogue.h"

namespace lmdeploy {
namespace {

// Fits a name that contains all of `all` and none of `none`, in lower case.
struct PathRule {
  std::string_view name;  // of the template
  std::array<std::string_view, 3> all;
  std::array<std::string_view, 5> none = {};
};

// The first rule that fits decides.
constexpr PathRule kRules[] = {
    {"deepseek-v3", {"deepseek-v3"}},
    {"deepseek-r1", {"deepseek-r1"}},
    {"cogvlm", {"cogvlm"}, {"cogvlm2"}},
    {"cogvlm2", {"cogvlm2"}},
    {"vicuna", {"vicuna"}, {"llava"}},
    {"wizardlm", {"wizardlm"}},
    {"llava-v1", {"llava", "v1"}, {"v1.6-34b", "mistral"}},
    {"llava-v1", {"llava-1.5"}},
    {"mini-gemini-vicuna", {"mgm-7b"}},
    {"mini-gemini-vicuna", {"mgm-13b"}},
    {"mini-gemini-vicuna", {"mgm-34b"}},
    {"mini-gemini-vicuna", {"mini-gemini-7b"}},
    {"mini-gemini-vicuna", {"mini-gemini-13b"}},
    {"internlm", {"internlm", "chat"}, {"internlm2", "internlm3", "8k"}},
    {"internlm3", {"internlm3", "instruct"}},
    {"internlm2", {"internlm2", "chat"}},
    {"internlm2", {"internlm2", "math"}},
    {"internvl-phi3", {"mini-internvl-chat", "4b", "v1-5"}},
    {"internvl-internlm2", {"internvl", "v1-5"}},
    {"internvl-internlm2", {"chemvlm"}},
    {"internvl2-internlm2", {"internvl2"}, {"internvl2-4b", "internvl2.5", "internvl2_5"}},
    {"internvl2-internlm2", {"mono-internvl"}},
    {"internvl2_5", {"internvl2.5"}},
    {"internvl2_5", {"internvl2_5"}},
    {"internvl2_5", {"internvl3"}},
    {"internlm-xcomposer2d5", {"internlm", "xcomposer2", "2d5"}},
    {"internlm-xcomposer2-4khd", {"internlm", "xcomposer2", "4khd"}},
    {"internlm-xcomposer2", {"internlm", "xcomposer2"}},
    {"baichuan2", {"baichuan2", "chat"}},
    {"puyu", {"puyu"}},
    {"llama2", {"llama-2"}},
    {"llama2", {"llama2"}},
    {"llama3", {"llama-3-"}, {"internvl2"}},
    {"llama3", {"llama3-"}, {"internvl2"}},
    {"llama3_1", {"llama-3.1-"}},
    {"llama3_1", {"llama3.1-"}},
    {"llama3_2", {"llama-3.2-"}},
    {"llama3_2", {"llama3.2-"}},
    {"minicpm3", {"minicpm3-"}},
    {"minicpmv-2d6", {"minicpm-v-2_6"}},
    {"qwen", {"qwen"}, {"qwen2.5", "qwen2_5", "qwen3", "qwq"}},
    {"qwen2d5", {"qwen2.5"}, {"vl"}},
    {"qwen2d5", {"qwen2_5"}, {"vl"}},
    {"qwen2d5-vl", {"qwen2.5", "vl"}},
    {"qwen2d5-vl", {"qwen2_5", "vl"}},
    {"qwq_preview", {"qwq", "preview"}},
    {"qwq", {"qwq"}},
    {"qwen3", {"qwen3"}},
    {"codellama", {"codellama"}},
    {"falcon", {"falcon"}},
    {"chatglm", {"chatglm2"}},
    {"solar", {"solar"}},
    {"ultracm", {"ultracm"}},
    {"ultralm", {"ultralm"}},
    {"yi", {"yi"}, {"vl"}},
    {"mistral", {"mistral", "instruct"}},
    {"mistral", {"mistral", "llava"}},
    {"mixtral", {"mixtral", "instruct"}},
    {"mixtral", {"mixtral", "llava"}},
    {"gemma", {"gemma"}},
    {"deepseek", {"deepseek", "chat"}, {"vl"}},
    {"internvl-zh", {"internvl-chat", "v1-1"}},
    {"deepseek-vl", {"deepseek-vl", "chat"}},
    {"deepseek-vl2", {"deepseek-vl2"}},
    {"deepseek-coder", {"deepseek-coder"}},
    {"yi-vl", {"yi-vl"}},
    {"dbrx", {"dbrx"}},
    {"llava-chatml", {"llava", "v1.6-34b"}},
    {"internvl-zh-hermes2", {"internvl-chat", "v1-2"}},
    {"phi-3", {"phi-3", "instruct"}},
    {"phi-4", {"phi-4", "instruct"}},
    {"internvl2-phi3", {"internvl2-4b"}},
    {"chatglm3", {"chatglm3"}},
    {"glm4", {"glm-4"}},
    {"codegeex4", {"codegeex4"}},
    {"molmo", {"molmo"}},
    {"llama4", {"llama-4"}},
};

// "yi" is the beginning of many a word: it must stand alone ("yi-34b", "01-ai/yi", not "yifan").
bool contains_word(std::string_view name, std::string_view word) {
  const auto is_letter = [&](size_t i) { return i < name.size() && name[i] >= 'a' && name[i] <= 'z'; };
  for (size_t at = name.find(word); at != std::string_view::npos; at = name.find(word, at + 1))
    if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + word.size())) return true;
  return false;
}

bool fits(const PathRule& rule, std::string_view name) {
  const auto contains = [&](std::string_view part) {
    if (part == "yi") return contains_word(name, part);
    return !part.empty() && name.find(part) != std::string_view::npos;
  };
  const auto absent_or_contained = [&](std::string_view part) { return part.empty() || contains(part); };
  return std::all_of(rule.all.begin(), rule.all.end(), absent_or_contained) &&
         std::none_of(rule.none.begin(), rule.none.end(), contains);
}

const std::string_view* match_name(std::string_view name) {
  const auto rule =
      std::find_if(std::begin(kRules), std::end(kRules), [&](const PathRule& r) { return fits(r, name); });
  return rule == std::end(kRules) ? nullptr : &rule->name;
}

}  // namespace

// The model's own folder says more than those above it, which may be a user's or a project's.
const std::string_view* match_model_path(std::string_view path) {
  std::string lower(path);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  std::string_view rest = lower;
  while (!rest.empty()) {
    const size_t slash = rest.find_last_of("/\\");
    const std::string_view name = slash == std::string_view::npos ? rest : rest.substr(slash + 1);
    if (const std::string_view* found = match_name(name)) return found;
    rest = slash == std::string_view::npos ? std::string_view() : rest.substr(0, slash);
  }
  return nullptr;
}

}  // namespace lmdeploy

// Finds all merges of a vocabulary by cutting each token at each place.
#include "lmdeploy/text/model/ranked_merges.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/unicode/unicode.h"

namespace lmdeploy {
namespace {

struct RankedMerge {
  int left, right;
  Merge merge;
};

// Characters that occur in tokens but are none themselves can still be joined into one.
void add_virtual_characters(Vocabulary& vocabulary, std::vector<uint32_t>& ranks) {
  const int num_tokens = vocabulary.num_ids();
  for (int id = 0; id < num_tokens; ++id) {
    if (ranks[static_cast<size_t>(id)] == kNoRank) continue;
    const std::string text(vocabulary.text(id));
    for (size_t at = 0; at < text.size();) {
      const size_t size = decode_utf8(text, at).size;
      const std::string_view unit = std::string_view(text).substr(at, size);
      if (!vocabulary.find(unit)) {
        vocabulary.add(unit, vocabulary.num_ids());
        ranks.push_back(kNoRank - 1);
      }
      at += size;
    }
  }
}

std::vector<RankedMerge> find_merges(const Vocabulary& vocabulary, const std::vector<uint32_t>& ranks,
                                     bool byte_units) {
  const auto rank_of = [&](int id) { return ranks[static_cast<size_t>(id)]; };
  const auto find_part = [&](std::string_view text) {
    const auto id = vocabulary.find(text);
    return id && rank_of(*id) != kNoRank ? id : std::nullopt;
  };
  std::vector<RankedMerge> merges;
  for (int id = 0; id < vocabulary.num_ids(); ++id) {
    const std::string_view text = vocabulary.text(id);
    // of two tokens with one spelling only the first is ever found
    if (text.empty() || rank_of(id) == kNoRank || vocabulary.find(text) != id) continue;
    const auto unit_size = [&](size_t at) { return byte_units ? 1 : decode_utf8(text, at).size; };
    for (size_t at = unit_size(0); at < text.size(); at += unit_size(at)) {
      const auto left = find_part(text.substr(0, at));
      if (!left) continue;
      if (const auto right = find_part(text.substr(at)))
        merges.push_back({*left, *right, make_merge(rank_of(id), id)});
    }
  }
  return merges;
}

}  // namespace

std::unique_ptr<BpeModel> make_ranked_bpe(Vocabulary vocabulary, std::vector<uint32_t> ranks,
                                          BpeOptions options) {
  LMD_CHECK(ranks.size() == static_cast<size_t>(vocabulary.num_ids()), ranks.size());
  options.first_virtual_id = vocabulary.num_ids();
  if (!options.byte_units) add_virtual_characters(vocabulary, ranks);
  const std::vector<RankedMerge> merges = find_merges(vocabulary, ranks, options.byte_units);
  MergeTable table(merges.size());
  for (const RankedMerge& m : merges) table.add(m.left, m.right, m.merge);
  const bool byte_units = options.byte_units;
  auto model = std::make_unique<BpeModel>(std::move(vocabulary), std::move(table), std::move(options));
  if (byte_units) return model;
  for (const RankedMerge& m : merges) {
    const std::string_view left = model->vocabulary().text(m.left);
    model->note_junction(decode_utf8(left, last_char_begin(left)).code,
                         decode_utf8(model->vocabulary().text(m.right), 0).code);
  }
  model->allow_cuts();
  return model;
}

std::vector<uint32_t> rank_scores(const std::vector<double>& scores, const std::string& where) {
  if (std::any_of(scores.begin(), scores.end(), [](double score) { return std::isnan(score); }))
    throw Error(ErrorCode::kInvalidData, cat(where, ": a score is not a number"));
  std::vector<double> sorted = scores;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::vector<uint32_t> ranks;
  ranks.reserve(scores.size());
  for (const double score : scores)
    ranks.push_back(static_cast<uint32_t>(
        std::lower_bound(sorted.begin(), sorted.end(), score, std::greater<>()) - sorted.begin()));
  return ranks;
}

}  // namespace lmdeploy

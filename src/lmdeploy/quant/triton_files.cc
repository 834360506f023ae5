#include "lmdeploy/quant/triton_files.h"

#include <filesystem>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/quant/workspace_writer.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTokenizer = R"(# The tokenizer of this folder, for the Triton models beside it.
import os.path as osp


class Tokenizer:

    def __init__(self, model_file):
        folder = osp.dirname(model_file) if osp.isfile(model_file) else model_file
        try:
            from lmdeploy import Tokenizer as Model
            self.model = Model(folder)
        except ImportError:
            from transformers import AutoTokenizer
            self.model = AutoTokenizer.from_pretrained(folder)

    def encode(self, text):
        return list(self.model.encode(text))

    def decode(self, ids, skip_special_tokens=True):
        return self.model.decode(list(ids), skip_special_tokens=skip_special_tokens)
)";

constexpr std::string_view kPreprocessing = R"(# Text to token ids.
import os.path as osp

import numpy as np
import triton_python_backend_utils as pb_utils

from .tokenizer.tokenizer import Tokenizer


class TritonPythonModel:

    def initialize(self, args):
        self.tokenizer = Tokenizer(osp.join(osp.dirname(osp.abspath(__file__)), 'tokenizer'))

    def execute(self, requests):
        return [self.encode(request) for request in requests]

    def encode(self, request):
        queries = pb_utils.get_input_tensor_by_name(request, 'QUERY').as_numpy().reshape(-1)
        rows = [self.tokenizer.encode(query.decode()) for query in queries]
        lengths = np.array([[len(row)] for row in rows], dtype=np.uint32)
        ids = np.zeros((len(rows), max(map(len, rows))), dtype=np.uint32)
        for i, row in enumerate(rows):
            ids[i, :len(row)] = row
        return pb_utils.InferenceResponse(output_tensors=[
            pb_utils.Tensor('INPUT_ID', ids),
            pb_utils.Tensor('REQUEST_INPUT_LEN', lengths),
        ])
)";

constexpr std::string_view kPostprocessing = R"(# Token ids to text.
import os.path as osp

import numpy as np
import triton_python_backend_utils as pb_utils

from .tokenizer.tokenizer import Tokenizer


class TritonPythonModel:

    def initialize(self, args):
        self.tokenizer = Tokenizer(osp.join(osp.dirname(osp.abspath(__file__)), 'tokenizer'))

    def execute(self, requests):
        return [self.decode(request) for request in requests]

    def decode(self, request):
        batches, lengths, skip = (pb_utils.get_input_tensor_by_name(request, name).as_numpy()
                                  for name in ('TOKENS_BATCH', 'sequence_length', 'skip_special_tokens'))
        texts = [
            self.tokenizer.decode(beam[:length], skip_special_tokens=bool(skip.reshape(-1)[0])).encode()
            for beams, beam_lengths in zip(batches, lengths) for beam, length in zip(beams, beam_lengths)
        ]
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor('OUTPUT', np.array(texts, dtype=object))])
)";

constexpr std::string_view kDockerScript = R"sh(#!/bin/sh
# Starts a Triton server with this model in a container.
show_help() {
    echo "Usage: $0 [-h] [--help] [--lib-dir DIR]"
    echo
    echo "Options:"
    echo "  -h, --help      Show this help message and exit"
    echo "  --lib-dir DIR   Folder with the turbomind backend, mounted into the container"
}

# check if '-h' or '--help' in the arguments
for arg in "$@"; do
    if [ "$arg" = "-h" ] || [ "$arg" = "--help" ]; then
        show_help
        exit 0
    fi
done

TP=1
LIB_DIR=""
while [ $# -gt 0 ]; do
    case "$1" in
        --lib-dir) LIB_DIR="$2"; shift 2 ;;
        *) echo "unknown option: $1" >&2; show_help >&2; exit 2 ;;
    esac
done

DEVICES=0
i=1
while [ "$i" -lt "$TP" ]; do
    DEVICES="$DEVICES,$i"
    i=$((i + 1))
done

DIR="$(cd "$(dirname "$0")" && pwd)"
LIB_MOUNT=""
if [ -n "$LIB_DIR" ]; then
    LIB_MOUNT="-v $LIB_DIR:/opt/tritonserver/backends/turbomind"
fi
#shellcheck disable = SC2086
docker run \
    --gpus "\"device=$DEVICES\"" \
    --rm \
    -v "$DIR":/workspace/models \
    $LIB_MOUNT \
    --shm-size 16g \
    -p 33336:22 \
    -p 33337-33400:33337-33400 \
    --cap-add=SYS_PTRACE \
    --cap-add=SYS_ADMIN \
    --security-opt seccomp=unconfined \
    --name lmdeploy \
    -it --env NCCL_LAUNCH_MODE=GROUP openmmlab/lmdeploy:latest \
    tritonserver \
    --model-repository=/workspace/models/model_repository \
    --allow-http=0 \
    --allow-grpc=1 \
    --grpc-port=33337 \
    --log-verbose=0 \
    --allow-metrics=1
)sh";

struct Field {
  std::string_view name, type, dims;
  bool optional = false;
};

constexpr Field kInferenceInputs[] = {
    {"input_ids", "TYPE_UINT32", "-1"},
    {"input_embeddings", "TYPE_INT8", "-1", true},
    {"input_embedding_ranges", "TYPE_UINT32", "-1, 2", true},
    {"step", "TYPE_INT32", "1", true},
    {"session_len", "TYPE_UINT32", "1", true},
    {"input_lengths", "TYPE_UINT32", "1"},
    {"request_output_len", "TYPE_UINT32", "1"},
    {"runtime_top_k", "TYPE_UINT32", "1", true},
    {"runtime_top_p", "TYPE_FP32", "1", true},
    {"temperature", "TYPE_FP32", "1", true},
    {"len_penalty", "TYPE_FP32", "1", true},
    {"repetition_penalty", "TYPE_FP32", "1", true},
    {"random_seed", "TYPE_UINT64", "1", true},
    {"is_return_log_probs", "TYPE_BOOL", "1", true},
    {"beam_width", "TYPE_UINT32", "1", true},
    {"start_id", "TYPE_UINT32", "1", true},
    {"end_id", "TYPE_UINT32", "1", true},
    {"bad_words_list", "TYPE_INT32", "2, -1", true},
    {"stop_words_list", "TYPE_INT32", "2, -1", true},
    {"STOP", "TYPE_INT32", "1", true},
};
constexpr Field kInferenceOutputs[] = {
    {"output_ids", "TYPE_UINT32", "-1, -1"},
    {"sequence_length", "TYPE_UINT32", "-1"},
    {"cum_log_probs", "TYPE_FP32", "-1"},
    {"output_log_probs", "TYPE_FP32", "-1, -1"},
};
constexpr Field kPreInputs[] = {{"QUERY", "TYPE_STRING", "-1"}};
constexpr Field kPreOutputs[] = {{"INPUT_ID", "TYPE_UINT32", "-1"},
                                 {"REQUEST_INPUT_LEN", "TYPE_UINT32", "-1"}};
constexpr Field kPostInputs[] = {{"TOKENS_BATCH", "TYPE_UINT32", "-1, -1"},
                                 {"sequence_length", "TYPE_UINT32", "-1"},
                                 {"skip_special_tokens", "TYPE_BOOL", "-1"}};
constexpr Field kPostOutputs[] = {{"OUTPUT", "TYPE_STRING", "-1, -1"}};

template <size_t N>
std::string field_list(std::string_view name, const Field (&fields)[N]) {
  std::string out = cat(name, " [\n");
  for (const Field& field : fields)
    out += cat("  {\n    name: \"", field.name, "\"\n    data_type: ", field.type, "\n    dims: [ ",
               field.dims, " ]\n", field.optional ? "    optional: true\n" : "",
               &field == &fields[N - 1] ? "  }\n" : "  },\n");
  return out + "]\n";
}

std::string parameter(std::string_view key, std::string_view value) {
  return cat("\nparameters {\n  key: \"", key, "\"\n  value: {\n    string_value: \"", value, "\"\n  }\n}\n");
}

std::string control(std::string_view name, std::string_view kind, std::string_view values) {
  return cat("    {\n      name: \"", name, "\"\n      control [\n        {\n          kind: ", kind,
             "\n          ", values, "\n        }\n      ]\n    }");
}

// Requests of a conversation carry its id, and where it starts, ends and stops.
std::string sequence_batching() {
  constexpr std::string_view kFlag = "int32_false_true: [ 0, 1 ]";
  return cat("sequence_batching {\n  max_sequence_idle_microseconds: 600000000\n  control_input [\n",
             control("START", "CONTROL_SEQUENCE_START", kFlag), ",\n",
             control("END", "CONTROL_SEQUENCE_END", kFlag), ",\n",
             control("CORRID", "CONTROL_SEQUENCE_CORRID", "data_type: TYPE_UINT64"), "\n  ]\n}\n");
}

std::string inference_config(const std::string& template_name, int64_t tp) {
  return cat(
      "name: \"turbomind\"\nbackend: \"turbomind\"\ndefault_model_filename: \"weights\"\nmax_batch_size: "
      "1\n\n"
      "model_transaction_policy {\n  decoupled: True\n}\n\n",
      sequence_batching(), "\ninstance_group [\n  {\n    count: 48\n    kind: KIND_CPU\n  }\n]\n\n",
      field_list("input", kInferenceInputs), "\n", field_list("output", kInferenceOutputs),
      parameter("tensor_para_size", cat(tp)), parameter("model_name", template_name));
}

std::string python_config(std::string_view name, const std::string& fields) {
  return cat("name: \"", name, "\"\nbackend: \"python\"\nmax_batch_size: 1\n\n", fields,
             "\ninstance_group [\n  {\n    count: 4\n    kind: KIND_CPU\n  }\n]\n",
             parameter("tokenizer_path", "tokenizer/tokenizer.model"));
}

void write_placeholder(const fs::path& path) { write_text_file(path.string(), ""); }

void write_python_model(const fs::path& folder, const std::string& config, std::string_view script) {
  fs::create_directories(folder / "1");
  write_text_file((folder / "config.pbtxt").string(), config);
  write_text_file((folder / "1" / "model.py").string(), script);
  fs::create_directory_symlink("../../tokenizer", folder / "1" / "tokenizer");
}

std::string docker_script(int64_t tp) {
  std::string script(kDockerScript);
  constexpr std::string_view kRanks = "\nTP=1\n";
  return script.replace(script.find(kRanks), kRanks.size(), cat("\nTP=", tp, "\n"));
}

}  // namespace

std::string_view tokenizer_script() { return kTokenizer; }

void write_triton_files(const std::string& root, const std::string& template_name, int64_t tp) {
  const fs::path folder(root), models = folder / "triton_models", repository = folder / "model_repository";
  const fs::path script = folder / "service_docker_up.sh";
  write_text_file(script.string(), docker_script(tp));
  fs::permissions(script, fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                  fs::perm_options::add);

  fs::create_directories(models / "interactive" / "1");
  write_text_file((models / "interactive" / "config.pbtxt").string(), inference_config(template_name, tp));
  write_placeholder(models / "interactive" / "1" / "placeholder");
  fs::create_directory_symlink("../../weights", models / "interactive" / "1" / "weights");
  write_python_model(models / "preprocessing",
                     python_config("preprocessing", field_list("input", kPreInputs) + "\n" +
                                                        field_list("output", kPreOutputs)),
                     kPreprocessing);
  write_python_model(models / "postprocessing",
                     python_config("postprocessing", field_list("input", kPostInputs) + "\n" +
                                                         field_list("output", kPostOutputs)),
                     kPostprocessing);

  fs::create_directories(repository);
  for (const auto& [name, target] :
       {std::pair{"turbomind", "interactive"}, std::pair{"preprocessing", "preprocessing"},
        std::pair{"postprocessing", "postprocessing"}})
    fs::create_directory_symlink(fs::path("../triton_models") / target, repository / name);
}

}  // namespace lmdeploy

"""Every documented signature: names, order where it is documented, and defaults."""
import ast
import dataclasses
import inspect
import pathlib

import pytest

import lmdeploy
from lmdeploy import _core, api, messages, model
from lmdeploy._engine_configs import PytorchLegacyEngineConfig, TurbomindLegacyEngineConfig
from lmdeploy.tokenizer import Tokenizer
from lmdeploy.turbomind import TurboMind, TurboMindInstance

SIGNATURES = {
    api.pipeline: "model_path, backend_config=None, chat_template_config=None, log_level='WARNING', max_log_len=None, "
                  "speculative_config=None, trust_remote_code=False, allowed_media_domains=None",
    lmdeploy.Pipeline.__call__: "prompts, gen_config=None, do_preprocess=True, adapter_name=None, use_tqdm=False",
    lmdeploy.Pipeline.infer: "prompts, gen_config=None, do_preprocess=True, adapter_name=None, use_tqdm=False, "
                             "request_output_len=None, top_k=None, top_p=None, temperature=None, "
                             "repetition_penalty=None, ignore_eos=None, chat_template_config=None",
    lmdeploy.Pipeline.stream_infer: "prompts, gen_config=None, do_preprocess=True, adapter_name=None, "
                                    "stream_response=True, sessions=None",
    lmdeploy.Pipeline.chat: "prompt, session=None, gen_config=None, stream_response=False, adapter_name=None, "
                            "do_preprocess=True",
    lmdeploy.Pipeline.session: "gen_config=None",
    lmdeploy.Pipeline.get_ppl: "input_ids",
    lmdeploy.Pipeline.get_reward_score: "input_ids",
    lmdeploy.Pipeline.close: "",
    lmdeploy.Pipeline.generate: "messages, session_id=None, gen_config=None, adapter_name=None, stream_response=True, "
                                "sequence_start=True, sequence_end=True, step=0, do_preprocess=True",
    lmdeploy.Pipeline.stop_session: "session_id",
    lmdeploy.Pipeline.end_session: "session_id",
    lmdeploy.Pipeline.get_generator: "stop, session_id",
    api.client: "api_server_url='http://0.0.0.0:23333', api_key=None",
    type(lmdeploy.serve).__call__: "model_path, model_name=None, backend='turbomind', backend_config=None, "
                                   "chat_template_config=None, server_name='0.0.0.0', server_port=23333, "
                                   "log_level='ERROR', api_keys=None, ssl=False",
    TurboMind.from_pretrained: "pretrained_model_name_or_path, engine_config=None, model_name=None, model_format=None, "
                               "group_size=None, tp=None, chat_template_config=None",
    TurboMind.create_instance: "cuda_stream_id=0",
    TurboMindInstance.stream_infer: "session_id, input_ids, sequence_start=True, sequence_end=False, step=0, "
                                    "stop=False, gen_config=None, stream_output=False, adapter_name=None, "
                                    "input_embeddings=None, input_embedding_ranges=None",
    TurboMindInstance.async_stream_infer: "session_id, input_ids, sequence_start=True, sequence_end=False, step=0, "
                                          "stop=False, gen_config=None, stream_output=False, adapter_name=None, "
                                          "input_embeddings=None, input_embedding_ranges=None",
    TurboMindInstance.decode: "input_ids, steps=None, sequence_start=True, sequence_end=True",
    TurboMindInstance.get_ppl: "input_ids",
    TurboMindInstance.end: "session_id",
    TurboMindInstance.cancel: "session_id",
    Tokenizer.encode: "s, add_bos=True, add_special_tokens=True, parse_special=None",
    Tokenizer.decode: "t, offset=None, skip_special_tokens=True",
    model.ChatTemplateConfig.to_json: "file_path=None",
    model.ChatTemplateConfig.from_json: "file_or_string",
    model.BaseChatTemplate.get_prompt: "prompt, sequence_start=True",
    model.BaseChatTemplate.messages2prompt: "messages, sequence_start=True",
    model.BaseChatTemplate.match: "model_path",
    messages.Response.extend: "other",
}

FIELDS = {
    lmdeploy.GenerationConfig: dict(
        n=1, max_new_tokens=512, do_sample=False, top_p=1.0, top_k=50, min_p=0.0, temperature=0.8,
        repetition_penalty=1.0, ignore_eos=False, random_seed=None, stop_words=None, bad_words=None,
        stop_token_ids=None, bad_token_ids=None, min_new_tokens=None, skip_special_tokens=True,
        spaces_between_special_tokens=True, logprobs=None, response_format=None, logits_processors=None,
        output_logits=None, output_last_hidden_state=None, include_stop_str_in_output=False, with_cache=False,
        preserve_cache=False, migration_request=None, return_routed_experts=False, repetition_ngram_size=0,
        repetition_ngram_threshold=0, return_ppl=False),
    lmdeploy.EngineGenerationConfig: dict(
        n=1, max_new_tokens=512, top_p=1.0, top_k=1, temperature=0.8, repetition_penalty=1.0, ignore_eos=False,
        random_seed=None, stop_words=None, bad_words=None, min_new_tokens=None, skip_special_tokens=True,
        logprobs=None),
    lmdeploy.TurbomindEngineConfig: dict(
        model_name=None, dtype="auto", model_format=None, tp=1, dp=1, cp=1, device_num=None, attn_tp_size=None,
        attn_cp_size=None, attn_dp_size=None, mlp_tp_size=None, mlp_dp_size=None, outer_dp_size=None, nnodes=1,
        node_rank=0, dist_init_addr=None, devices=None, session_len=None, max_batch_size=None,
        cache_max_entry_count=0.8, cache_chunk_size=-1, cache_block_seq_len=64, enable_prefix_caching=False,
        quant_policy=0, rope_scaling_factor=0.0, use_logn_attn=False, download_dir=None, revision=None,
        max_prefill_token_num=8192, num_tokens_per_iter=0, max_prefill_iters=1, async_=1, empty_init=False,
        communicator="nccl", hf_overrides=None, enable_metrics=True, ep=1, cache_checkpoint_interval=4096,
        cache_prompt="auto", cache_prompt_boundary_skip=1, cache_generation="auto", language_model_only=False,
        device_type="auto"),
    lmdeploy.PytorchEngineConfig: dict(
        model_name="", dtype="auto", tp=1, dp=1, dp_rank=0, ep=1, session_len=None, max_batch_size=None,
        attn_tp_size=None, mlp_tp_size=None, moe_tp_size=None, cache_max_entry_count=0.8, eviction_type="recompute",
        prefill_interval=16, block_size=64, num_cpu_blocks=0, num_gpu_blocks=0, adapters=None,
        max_prefill_token_num=4096, thread_safe=False, enable_prefix_caching=False, device_type="auto",
        eager_mode=False, custom_module_map=None, download_dir=None, revision=None, quant_policy=0,
        distributed_executor_backend=None, empty_init=False, enable_microbatch=False, enable_eplb=False,
        enable_mp_engine=False, mp_engine_backend="mp", model_format=None, enable_metrics=True, hf_overrides=None,
        disable_vision_encoder=False, language_model_only=False, logprobs_mode=None,
        enable_return_routed_experts=False,
        enable_transfer_obj_ref=False, dllm_block_length=None, dllm_unmasking_strategy="low_confidence_dynamic",
        dllm_denoising_steps=None, dllm_confidence_threshold=0.85, role="Hybrid", migration_backend="DLSlime",
        kernel_block_size=-1, cudagraph_capture_batch_sizes=None, prefix_cache_state_budget=0,
        prefix_cache_decode_state_interval=0),
    TurbomindLegacyEngineConfig: dict(
        model_name=None, model_format=None, group_size=128, tp=1, session_len=None, max_batch_size=128,
        max_context_token_num=1, cache_max_entry_count=0.5, cache_block_seq_len=128, cache_chunk_size=-1,
        num_tokens_per_iter=0, max_prefill_iters=1, use_context_fmha=1, quant_policy=0, rope_scaling_factor=0.0,
        use_dynamic_ntk=False, use_logn_attn=False, kv_bits=8),
    PytorchLegacyEngineConfig: dict(
        model_name="", tp=1, session_len=None, max_batch_size=128, eviction_type="recompute", prefill_interval=16,
        block_size=64, num_cpu_blocks=0, num_gpu_blocks=0),
    messages.SpeculativeConfig: dict(model="", num_speculative_tokens=1),
    messages.VisionConfig: dict(max_batch_size=1, thread_safe=False),
}


def documented(function):
    """The signature as text, without self and catch-alls."""
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}"
                     for p in parameters if p.name != "self" and p.kind not in kinds)


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda f: f.__qualname__)
def test_signature(function):
    assert documented(function) == SIGNATURES[function]


@pytest.mark.parametrize("cls", FIELDS, ids=lambda cls: cls.__name__)
def test_config_fields_and_defaults(cls):
    found = {field.name: field.default for field in dataclasses.fields(cls)}
    assert {name: found.get(name, "missing") for name in FIELDS[cls]} == FIELDS[cls]


def test_response_has_the_fields_of_all_versions():
    names = {field.name for field in dataclasses.fields(messages.Response)}
    assert names >= {"text", "generate_token_len", "input_token_len", "session_id", "finish_reason", "token_ids",
                     "logprobs", "logits", "last_hidden_state", "index", "routed_experts", "cached_tokens",
                     "error_code", "error_message"}


def test_pipeline_attributes():
    for name in ("tokenizer", "session_len", "model_name", "chat_template", "instance_num"):
        assert isinstance(getattr(lmdeploy.Pipeline, name), property)


def names_in_stub():
    stub = ast.parse((pathlib.Path(lmdeploy.__file__).parent / "_core.pyi").read_text())
    names = set()
    for node in stub.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            members = [m.name if isinstance(m, ast.FunctionDef) else m.targets[0].id for m in node.body
                       if isinstance(m, (ast.FunctionDef, ast.Assign))]
            names |= {f"{node.name}.{member}" for member in members if not member.startswith("__")}
    return names


def test_stub_describes_the_native_module():
    names = set()
    for name, value in vars(_core).items():
        if not name.startswith("__"):
            names.add(name)
            members = vars(value) if isinstance(value, type) else ()
            names |= {f"{name}.{member}" for member in members if not member.startswith(("__", "_"))}
    assert names == names_in_stub()


def test_public_names_have_docstrings():
    undocumented = [name for name in lmdeploy.__all__
                    if not name.startswith("__") and name != "version_info"
                    and not inspect.getdoc(getattr(lmdeploy, name))]
    members = [f"{cls.__name__}.{name}" for cls in (lmdeploy.Pipeline, lmdeploy.Session, Tokenizer, TurboMind,
                                                    TurboMindInstance, model.BaseChatTemplate, model.ChatTemplateConfig)
               for name, member in vars(cls).items()
               if not name.startswith("_") and callable(member) and not inspect.getdoc(member)]
    assert undocumented + members == []

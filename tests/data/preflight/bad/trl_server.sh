#!/bin/sh
vllm serve Qwen/Qwen3-4B --max-model-len 2048 --gpu-memory-utilization 0.9 --dtype float16 &
trl grpo --model_name_or_path Qwen/Qwen3-1.7B --use_vllm true --vllm_mode server --bf16 true \
    --temperature 0.85 \
    --vllm_importance_sampling_mode token_truncate \
    --vllm_importance_sampling_clip_max 2.0 --max_completion_length 4096

#!/bin/sh
CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model Qwen/Qwen3-1.7B --max-model-len 2048 \
    --gpu-memory-utilization 0.8 --dtype bfloat16 &
CUDA_VISIBLE_DEVICES=1 trl grpo --model_name_or_path Qwen/Qwen3-1.7B --use_vllm true --vllm_mode server \
    --bf16 true --temperature 0.85 --vllm_importance_sampling_mode sequence_truncate \
    --vllm_importance_sampling_clip_max 10.0 --max_completion_length 1024

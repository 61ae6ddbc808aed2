swift rlhf --rlhf_type grpo --model Qwen/Qwen3-8B --torch_dtype bfloat16 \
    --use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization 0.5 \
    --temperature 1.0 --top_p 1.0 --top_k -1 --max_completion_length 2048 \
    --rollout_importance_sampling_mode sequence_truncate --rollout_importance_sampling_threshold 10.0 \
    --log_rollout_offpolicy_metrics true

swift rlhf --rlhf_type grpo --model Qwen/Qwen3-30B-A3B --use_vllm true --vllm_mode colocate \
    --vllm_gpu_memory_utilization 0.92 \
    --temperature 0.9 --top_p 0.9 --top_k 50 --repetition_penalty 1.05 \
    --rollout_importance_sampling_threshhold 2.0

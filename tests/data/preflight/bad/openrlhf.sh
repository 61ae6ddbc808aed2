python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen3-8B \
    --enable_vllm_is_correction --vllm_is_truncated_threshold 2 \
    --temperature 0.8 --top_p 0.9 --colocate_all_models \
    --generate_max_len 8192

ray job submit -- python3 -m openrlhf.cli.train_ppo_ray \
    --actor.model_name_or_path Qwen/Qwen3-8B --rollout.temperature 1.0 --rollout.top_p 1.0 \
    --vllm.gpu_memory_utilization 0.6 --rollout.max_new_tokens 2048 \
    --algo.advantage.is_correction_enable --algo.advantage.is_correction_threshold 0.5 5.0 \
    --algo.advantage.is_correction_type tis

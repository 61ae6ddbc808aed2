vllm serve Qwen/Qwen3-8B --logprobs-mode processed_logprobs --generation-config vllm \
    --gpu-memory-utilization 0.8 --max-logprobs 20

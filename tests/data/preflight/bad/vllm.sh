vllm serve Qwen/Qwen3-8B --quantization fp8 --max-logprobs 0

export SGLANG_RETURN_ORIGINAL_LOGPROB=1
python -m sglang.launch_server --model-path Qwen/Qwen3-8B --mem-fraction-static 0.9 --kv-cache-dtype fp8_e5m2

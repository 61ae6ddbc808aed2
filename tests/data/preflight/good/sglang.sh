python -m sglang.launch_server --model-path Qwen/Qwen3-8B --mem-fraction-static 0.75 --enable-metrics

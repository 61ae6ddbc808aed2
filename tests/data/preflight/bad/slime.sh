SGLANG_RETURN_ORIGINAL_LOGPROB=1 python3 -m sglang.launch_server --model-path /models/Qwen3-30B-A3B --mem-fraction-static 0.9 &
python3 train.py --hf-checkpoint /models/Qwen3-30B-A3B --rollout-temperature 0.8 \
    --use-tis --tis-clip 0.9 --use-rollout-logprobs --distributed-timeout-minutes 2 \
    --sglang-mem-fraction-static 0.9

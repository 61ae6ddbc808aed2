python3 train.py --hf-checkpoint /models/Qwen3-4B --rollout-temperature 1.0 --rollout-top-p 1.0 \
    --rollout-max-response-len 8192 --use-tis --tis-clip 10.0 --tis-clip-low 0 \
    --sglang-mem-fraction-static 0.7 --get-mismatch-metrics

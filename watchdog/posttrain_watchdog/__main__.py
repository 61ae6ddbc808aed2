"""`python -m posttrain_watchdog` is the command `posttrain-watchdog`."""

from posttrain_watchdog.cli import main

main()

"""The entry point of the sweeper, `python -m scheduler.sweep`. The sweeper itself is `scheduler/sweeper/sweeper.py`."""

from scheduler.sweeper.sweeper import main

if __name__ == "__main__":
    main()

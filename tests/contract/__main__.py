"""Run the contract checks: `python -m tests.contract [--only client|fuzz] [--examples 20]`."""

import argparse
import sys

from tests.contract.fuzzing import fuzz
from tests.contract.generated_client import check_generated_client


def main() -> int:
    """Run the checks; return the exit status."""
    parser = argparse.ArgumentParser(description="Check the API by its OpenAPI document.")
    parser.add_argument("--only", choices=("client", "fuzz"), help="one of the two checks")
    parser.add_argument("--examples", type=int, default=20, help="requests of the fuzzer for each operation")
    parser.add_argument("--seed", type=int, default=1, help="of the fuzzer")
    options = parser.parse_args()
    is_well = True
    if options.only != "fuzz":
        is_well = check_generated_client() and is_well
    if options.only != "client":
        is_well = fuzz(options.examples, options.seed) and is_well
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())

"""The licences of all libraries in requirements.lock, as the installed distributions state them.

`python -m tests.licences` prints name, version and licence, and returns 1 if one is not accepted: neither permissive
(MIT, BSD, Apache and the like) nor MPL, nor LGPL, under which a library may be used unchanged. A test checks the same.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

ACCEPTED = re.compile(
    r"(?:MIT|MIT-CMU|MIT-0|(?:0|New |\d-Clause )?BSD(?:-\d-Clause)?"
    r"|Apache-2\.0|Apache(?: Software)?(?: License)?(?:,? (?:Version )?2\.0)?|ISC|ISCL|PSF-2\.0|PSFL"
    r"|Python Software Foundation|MPL[- ]2\.0|Mozilla Public License 2\.0|LGPL-[23]\.\d(?:-only|-or-later)?|EPL-2\.0"
    r"|Zlib|CC0-1\.0|CNRI-Python|Unlicense)(?: License)?(?: \(\w+(?: \d\.\d)?\))?"
)
REVIEWED = {  # text that is no name of a licence, read by hand
    "pypdfium2": "BSD-3-Clause, Apache-2.0, dependency licenses",  # PDFium and the libraries in it: BSD, MIT, Apache
    "peewee": "none stated",  # MIT, in its file LICENSE
    "protobuf-py-ext": "none stated",  # Apache-2.0, as protobuf-py, of whose repository it is a part
    "python-dateutil": "Dual License",  # Apache-2.0 or BSD-3-Clause
}


@dataclass(frozen=True, slots=True)
class Licence:
    """A distribution and the licence that its metadata states."""

    name: str
    version: str
    licence: str

    @property
    def is_accepted(self) -> bool:
        if REVIEWED.get(self.name) == self.licence:
            return True
        return any(map(_is_accepted, re.split(r"\s+OR\s+", self.licence)))


def _is_accepted(conjunction: str) -> bool:
    """Whether every licence of `A AND (B OR C)` is accepted."""
    parts = re.split(
        r"\s+AND\s+", conjunction.replace("(", "").replace(")", "") if " AND " in conjunction else conjunction
    )
    return all(ACCEPTED.fullmatch(part.strip()) for part in parts)


def locked_names(lock: str) -> Iterator[str]:
    """Yield the names of the distributions that a lock pins."""
    yield from re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE)


def installed_licences(names: Iterable[str]) -> Iterator[Licence]:
    """Yield the licences of distributions; one that is not installed here, as for another system, is left out."""
    for name in names:
        try:
            about = metadata(name)
        except PackageNotFoundError:
            continue
        yield Licence(name, about["Version"], _stated_licence(about))


def _stated_licence(about: PackageMetadata) -> str:
    """Return the expression, else the classifiers, else the first line of the free text."""
    if expression := about.get("License-Expression"):
        return expression
    classifiers = [each.rpartition(" :: ")[2] for each in about.get_all("Classifier") or () if "License ::" in each]
    classifiers = [each for each in classifiers if each not in ("OSI Approved", "DFSG approved")]
    return " OR ".join(classifiers) or (about.get("License") or "none stated").partition("\n")[0]


def main() -> int:
    """Print every licence; return 1 if one is not accepted."""
    found = list(installed_licences(locked_names((ROOT / "requirements.lock").read_text("utf-8"))))
    for each in found:
        sys.stdout.write(f"{'' if each.is_accepted else 'NOT ACCEPTED: '}{each.name} {each.version}: {each.licence}\n")
    return 0 if all(each.is_accepted for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Provides the fixture `wire` of `wire.py` to the tests of this folder."""

from tests.attacks.wire import wire as wire

"""Frames that several clients get in the same form are changed once, and only the latest are held."""

from api.events.shared_frames import SharedFrames


class Shout:
    """A change that notes what it has changed."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def __call__(self, frame: bytes) -> bytes:
        self.seen.append(frame)
        return frame.upper()


def test_frame_is_changed_once_for_all_clients_of_a_form() -> None:
    shared, shout, other = SharedFrames(), Shout(), Shout()

    with shared.share("a", shout) as first, shared.share("a", shout) as second, shared.share("b", other) as third:
        assert [first(b"x"), second(b"x"), third(b"x"), second(b"y"), first(b"y")] == [b"X", b"X", b"X", b"Y", b"Y"]

    assert (shout.seen, other.seen) == ([b"x", b"y"], [b"x"])


def test_last_client_that_leaves_takes_the_frames_along() -> None:
    shared, shout = SharedFrames(), Shout()

    with shared.share("a", shout) as first:
        first(b"x")
        with shared.share("a", shout):
            assert len(shared) == 1
        assert len(shared) == 1
    assert len(shared) == 0
    with shared.share("a", shout) as again:
        again(b"x")

    assert shout.seen == [b"x", b"x"]


def test_oldest_frames_are_dropped_and_changed_again_for_a_slow_client() -> None:
    shared, shout = SharedFrames(max_bytes=8), Shout()

    with shared.share("a", shout) as change:
        for frame in (b"aa", b"bb", b"cc", b"bb", b"aa", b"longer than all"):
            assert change(frame) == frame.upper()
        assert change(b"longer than all") == b"LONGER THAN ALL"

    assert shout.seen == [b"aa", b"bb", b"cc", b"aa", b"longer than all"]

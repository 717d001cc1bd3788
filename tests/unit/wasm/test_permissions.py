"""Does a plugin get what both its manifest and its policy name, and nothing else?"""

from __future__ import annotations

from executor.job import Mount
from executor.plugin_model import PermissionsSection
from executor.wasm.permissions import Permitted, permitted

WORKSPACE = Mount("/w", "/w", 1, 1, directory=True)
LOGS = Mount("/real/logs", "/var/logs", 1, 2, directory=True, writable=True)
FILE = Mount("/etc/one", "/etc/one", 1, 3, directory=False)


def ask(*mounts: Mount, **permissions: list[str]) -> Permitted:
    asked = PermissionsSection.model_validate(permissions)
    return permitted(asked, mounts, workspace="/w", policy="p")


def places(got: Permitted) -> list[tuple[str, str, str, bool]]:
    return [(one.path, one.source, one.below, one.writable) for one in got.directories]


def test_nothing_is_asked_nothing_is_given() -> None:
    assert ask(WORKSPACE, LOGS) == Permitted((), False, (), ())
    got = ask(WORKSPACE, filesystem_allowlist=["data"])
    assert got.directories == ()


def test_a_request_below_a_grant_is_given_as_asked() -> None:
    got = ask(WORKSPACE, required=["filesystem"], filesystem_allowlist=["data/*", "/w/more"])
    assert places(got) == [("/w/data", "/w", "data", False), ("/w/more", "/w", "more", False)]
    assert got.faults == ()


def test_a_request_above_a_grant_is_narrowed_to_the_grant() -> None:
    got = ask(LOGS, FILE, required=["filesystem-write"], filesystem_allowlist=["/var"])
    assert places(got) == [("/var/logs", "/real/logs", "", True)]


def test_reading_a_writable_grant_does_not_make_it_writable() -> None:
    got = ask(LOGS, required=["filesystem-read"], filesystem_allowlist=["/var/logs"])
    assert places(got) == [("/var/logs", "/real/logs", "", False)]


def test_a_read_only_grant_is_no_grant_to_write() -> None:
    got = ask(WORKSPACE, required=["filesystem-write"], filesystem_allowlist=["/w"])
    assert got.directories == ()
    assert got.faults == (
        (
            'asks for /w, which policy "p" does not grant: add it to filesystem.write of a policy, '
            "and bind the plugin to that"
        ),
    )


def test_what_is_optional_is_a_note_and_no_fault() -> None:
    got = ask(optional=["filesystem", "http-outbound"], filesystem_allowlist=["/etc"])
    assert got.faults == ()
    assert len(got.notes) == 2
    assert "not supported" in got.notes[0]


def test_http_is_refused_in_plain_words() -> None:
    (fault,) = ask(required=["http-outbound"]).faults
    assert fault == (
        'the permission "http-outbound" is not supported: a plugin has no network in this '
        "version, not even to an allow-list"
    )


def test_a_path_that_leaves_by_dots_is_not_below_the_grant() -> None:
    asked = PermissionsSection.model_construct(
        required=("filesystem",),
        optional=(),
        filesystem_allowlist=("/w/../etc",),
        http_allowlist=(),
    )
    assert permitted(asked, [WORKSPACE], workspace="/w", policy="p").directories == ()


def test_the_environment_is_given_when_asked_for() -> None:
    assert ask(optional=["env"]).environment
    assert not ask().environment

"""No acknowledged install is lost, by a kill or by many clients at the same time."""

from collections.abc import Callable
from pathlib import Path

from conftest import Server, create_demo
from torture.clients import (
    POST,
    POST_VERSION,
    Client,
    count_status,
    installs,
    installs_by_day,
    responses_to,
    running_clients,
    wait_for_responses,
)

ROUNDS = 20


def acknowledged_by(clients: list[Client]) -> int:
    return count_status(responses_to(clients, "POST"), 200)


def unknown_to(clients: list[Client]) -> int:
    return sum(client.unknown for client in clients)


def test_no_acknowledged_install_is_lost_when_the_service_is_killed(
    tmp_path: Path, figures: Callable[..., None]
) -> None:
    database = create_demo(tmp_path / "catalog.db")
    before = installs(database)
    acknowledged = unknown = of_version = unknown_of_version = 0
    requests = [*[[POST]] * 4, *[[POST_VERSION]] * 4]
    for number in range(ROUNDS):
        with Server(database) as server, running_clients(server.port, *requests) as clients:
            wait_for_responses(clients, 5 + number)
            server.process.kill()
        of_version += acknowledged_by(clients[4:])
        unknown_of_version += unknown_to(clients[4:])
        acknowledged += acknowledged_by(clients)
        unknown += unknown_to(clients)
        counted = installs(database) - before
        assert acknowledged <= counted <= acknowledged + unknown
        days, versions = installs_by_day(database)
        assert days == counted
        assert of_version <= versions <= of_version + unknown_of_version
    figures(
        "kill -9 under 8 clients that post",
        "every acknowledged install is there after the restart, in the total, the day and the"
        " version, and the file is intact",
        rounds=ROUNDS,
        acknowledged=acknowledged,
        lost=max(0, before + acknowledged - installs(database)),
    )
    assert acknowledged > ROUNDS * 8 * 5


def test_64_clients_install_the_same_widget(tmp_path: Path, figures: Callable[..., None]) -> None:
    database = create_demo(tmp_path / "catalog.db")
    before = installs(database)
    with Server(database) as server:
        with running_clients(server.port, *[[POST]] * 64) as clients:
            wait_for_responses(clients, 20)
        exit_code, errors = server.stop(), server.errors
    responses = responses_to(clients, "POST")
    acknowledged = count_status(responses, 200)
    figures(
        "64 clients that install the same widget",
        "every acknowledged install is counted, no request fails",
        requests=len(responses),
        acknowledged=acknowledged,
        failed=len(responses) - acknowledged,
        lost=before + acknowledged - installs(database),
    )
    assert (exit_code, errors) == (0, "")
    assert acknowledged == len(responses) >= 64 * 20
    assert installs(database) == before + acknowledged

"""Installs that were acknowledged are there, whatever becomes of the process or of the crowd."""

from collections.abc import Callable
from pathlib import Path

from tests.conftest import Server, create_demo
from tests.torture.clients import POST, answers_of, asking, counted, installs, wait_for_answers

ROUNDS = 20


def test_no_acknowledged_install_is_lost_when_the_service_is_killed(
    tmp_path: Path, figures: Callable[..., None]
) -> None:
    database = create_demo(tmp_path / "catalog.db")
    before = installs(database)
    acknowledged = unanswered = 0
    for number in range(ROUNDS):
        with Server(database) as server, asking(server.port, *[[POST]] * 8) as clients:
            wait_for_answers(clients, 5 + number)
            server.process.kill()
        acknowledged += counted(answers_of(clients, "POST"), 200)
        unanswered += sum(client.unanswered for client in clients)
        assert before + acknowledged <= installs(database) <= before + acknowledged + unanswered
    figures(
        "kill -9 under 8 clients that post",
        "every acknowledged install is there after the restart, and the file is in order",
        rounds=ROUNDS,
        acknowledged=acknowledged,
        lost=max(0, before + acknowledged - installs(database)),
    )
    assert acknowledged > ROUNDS * 8 * 5


def test_64_clients_install_the_same_widget(tmp_path: Path, figures: Callable[..., None]) -> None:
    database = create_demo(tmp_path / "catalog.db")
    before = installs(database)
    with Server(database) as server:
        with asking(server.port, *[[POST]] * 64) as clients:
            wait_for_answers(clients, 20)
        said = server.stop(), server.errors
    answers = answers_of(clients, "POST")
    acknowledged = counted(answers, 200)
    figures(
        "64 clients that install the same widget",
        "the count is what was acknowledged, no request fails",
        requests=len(answers),
        acknowledged=acknowledged,
        failed=len(answers) - acknowledged,
        lost=before + acknowledged - installs(database),
    )
    assert said == (0, "")
    assert acknowledged == len(answers) >= 64 * 20
    assert installs(database) == before + acknowledged

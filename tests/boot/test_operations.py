"""What operators met on machines that a real systemd boots: ports, logs, nginx, moves, mirrors."""

import base64
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from boot.machine import Machine
from boot.test_boot import CERTIFICATE, CLOCK, INSTALLATION, lines_of
from programs import find_program

HEALTH = "curl --silent --fail --retry 5 http://127.0.0.1:8080/api/health"
NGINX = "Put nginx in front"
THROUGH_NGINX = (
    "curl --silent --cacert /etc/letsencrypt/live/widgets.example/fullchain.pem"
    " --resolve widgets.example:443:127.0.0.1"
)
# Opens connections that send one byte of a handshake and then nothing, and prints the status of a
# request beside them. nginx would reuse connections that never sent anything.
SILENT_CLIENTS = """
import resource, socket, subprocess
resource.setrlimit(resource.RLIMIT_NOFILE, (11000, 11000))
silent = []
for _ in range(10000):
    silent.append(socket.create_connection(("127.0.0.1", 443)))
    silent[-1].send(b"\\x16")
command = '{command} --max-time 8 --output /dev/null --write-out %{{http_code}} https://widgets.example/api/version'
print(len(silent), subprocess.run(command.split(), capture_output=True, text=True).stdout)
"""
# Counts installs until the service no longer accepts connections.
LOAD = """
import http.client
acknowledged = 0
try:
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
        connection.request("POST", "/api/v1/widgets/acme/clock")
        acknowledged += connection.getresponse().status == 200
        connection.close()
        open("/run/acknowledged", "w").write(str(acknowledged))
except OSError:
    open("/run/ended", "w").close()
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine with the service, nginx and the demo catalog."""
    find_program("nginx")
    machine = Machine(CERTIFICATE)
    try:
        for heading in (*INSTALLATION, "Start the service"):
            machine.run(
                lines_of(heading).replace("widget-catalog init", "widget-catalog init --demo")
            )
        machine.run("systemctl start nginx")
        machine.run(lines_of(NGINX, 1))
        yield machine
    finally:
        machine.close()


def test_a_taken_port_is_reported_in_the_journal_of_the_service(machine: Machine) -> None:
    machine.run(
        "systemctl stop widget-catalog.socket widget-catalog.service\n"
        "systemd-run --quiet --unit taken python3 -m http.server --bind 127.0.0.1 8080\n"
        "until curl --silent --output /dev/null http://127.0.0.1:8080/; do sleep 0.1; done"
    )
    assert machine.try_run("systemctl start widget-catalog.service")[0] == 1
    line = "widget-catalog.socket failed: Cannot listen on 127.0.0.1:8080: "
    machine.run(
        f"until journalctl --no-pager --unit widget-catalog | grep '{line}'; do sleep 0.1; done"
    )
    machine.run(
        "systemctl stop taken\n"
        "systemctl reset-failed\n"
        "systemctl start widget-catalog.socket widget-catalog.service"
    )
    assert "ok" in machine.run(HEALTH)


def test_the_journal_keeps_every_line_of_the_access_log(machine: Machine) -> None:
    machine.run(
        "mkdir -p /etc/systemd/journald.conf.d\n"
        "printf '[Journal]\\nRateLimitIntervalSec=30s\\nRateLimitBurst=50\\n'"
        " > /etc/systemd/journald.conf.d/rate.conf\n"
        "systemctl restart systemd-journald widget-catalog"
    )
    machine.run("curl --silent --output /dev/null 'http://127.0.0.1:8080/api/version?[1-1000]'")
    lines = machine.run(
        "journalctl --sync\n"
        "journalctl --no-pager --output cat --unit widget-catalog | grep -c 'GET /api/version?'"
    )
    assert lines == "1000\n"


def test_nginx_serves_others_beside_10000_silent_connections(machine: Machine) -> None:
    script = SILENT_CLIENTS.format(command=THROUGH_NGINX)
    machine.run(f"cat > /run/silent.py << 'END'\n{script}\nEND")
    # A container may have a lower hard limit, and must not raise it.
    machine.run(
        'limit=$(ulimit -Hn); [ "$limit" = unlimited ] || [ "$limit" -ge 65536 ] ||'
        ' sed -i "s/65536/$limit/" /etc/nginx/modules-enabled/widget-catalog-limits.conf\n'
        "systemctl restart nginx"
    )
    assert machine.run("python3 /run/silent.py") == "10000 200\n"


def test_the_cache_and_private_reading_are_installed_as_guided(machine: Machine) -> None:
    machine.run(lines_of("Cache responses in nginx", 0, "proxies"))
    private = lines_of("Make reading private", 0, "proxies")
    machine.run(private.replace("openssl passwd -apr1", "openssl passwd -apr1 secret"))
    machine.run("sed -i 's/^    127.0.0.1 1;$//' /etc/nginx/conf.d/widget-catalog-private.conf")
    machine.run("systemctl reload nginx")
    search = "https://widgets.example/api/v1/widgets/search"
    code = "--output /dev/null --write-out %{http_code}"
    wait = f'until [ "$({THROUGH_NGINX} {code} {search})" = 401 ]; do sleep 0.1; done'
    machine.run(wait)
    answers = [
        machine.run(f"{THROUGH_NGINX} {code} --user anna:secret {search}"),
        machine.run(
            f"{THROUGH_NGINX} --output /dev/null --dump-header - --user anna:secret {search}"
        ),
    ]
    machine.run("rm /etc/nginx/conf.d/widget-catalog-[cp]* /etc/nginx/widget-catalog.d/*")
    machine.run("systemctl reload nginx")
    assert (answers[0], "x-cache-status" in answers[1].lower()) == ("200", True)


def test_larger_bundles_are_accepted_as_guided(machine: Machine) -> None:
    machine.run("cp -a /etc/widget-catalog.env /root/env")
    machine.run(lines_of("Accept larger bundles", 0, "proxies"))
    machine.run("grep 'client_max_body_size 65m;' /etc/nginx/conf.d/widget-catalog.conf")
    machine.run("cp -a /root/env /etc/widget-catalog.env && systemctl restart widget-catalog")


def test_the_timer_of_the_mirror_refreshes_what_was_mirrored(machine: Machine) -> None:
    # The upstream is another service on this machine.
    machine.run(
        "cd /run && CATALOG_DATABASE=/run/up.db /opt/widget-catalog/bin/widget-catalog init\n"
        'echo \'{"scope": "up", "name": "one", "version": "1.0.0", "displayName": "One",'
        ' "sdkVersion": "*"}\' > /run/one.json && echo 1 > /run/one.js\n'
        "CATALOG_DATABASE=/run/up.db /opt/widget-catalog/bin/widget-catalog publish"
        " /run/one.json /run/one.js --store\n"
        "systemd-run --quiet --unit upstream -E CATALOG_DATABASE=/run/up.db -E CATALOG_PORT=8099"
        " /opt/widget-catalog/bin/widget-catalog serve\n"
        "until curl --silent --fail http://127.0.0.1:8099/api/health; do sleep 0.1; done"
    )
    machine.run("widget-catalog mirror http://127.0.0.1:8099")
    machine.run("sed 's/1.0.0/1.1.0/' /run/one.json > /run/two.json")
    machine.run(
        "CATALOG_DATABASE=/run/up.db /opt/widget-catalog/bin/widget-catalog publish"
        " /run/two.json /run/one.js --store"
    )
    machine.run(lines_of("Refresh mirrors every hour"))
    assert "1.1.0" in machine.run("widget-catalog show up/one")
    assert machine.run("systemctl is-active widget-catalog-mirror.timer") == "active\n"
    machine.run("systemctl disable --now widget-catalog-mirror.timer && systemctl stop upstream")


def test_uninstall_keeps_settings_data_and_drop_ins_of_the_operator(machine: Machine) -> None:
    machine.run(
        "printf '[Service]\\nNice=1\\n' > /etc/systemd/system/widget-catalog.service.d/mine.conf\n"
        "sh /opt/widget-catalog/share/widget-catalog/uninstall"
    )
    left = machine.run("cd /etc/systemd/system && find . -path '*widget-catalog*' -type f | sort")
    kept = machine.run("ls /etc/widget-catalog.env /var/lib/widget-catalog/catalog.db")
    code, _ = machine.try_run("test -e /usr/local/bin/widget-catalog")
    machine.run(
        "sh /opt/widget-catalog/share/widget-catalog/install\n"
        "rm /etc/systemd/system/widget-catalog.service.d/mine.conf && systemctl daemon-reload"
    )
    assert left == "./widget-catalog.service.d/mine.conf\n"
    assert (kept.count("\n"), code) == (2, 1)
    assert "ok" in machine.run(HEALTH)


def test_a_move_under_load_loses_no_acknowledged_install(machine: Machine) -> None:
    move = "Move to a new machine"
    before = int(
        json.loads(machine.run(f"curl --silent --fail {CLOCK}"))["widget"]["downloadCount"]
    )
    machine.run(f"cat > /run/load.py << 'END'\n{LOAD}\nEND")
    machine.run(
        "systemd-run --quiet --unit load python3 /run/load.py\n"
        'until [ "$(cat /run/acknowledged)" -gt 50 ] 2> /dev/null; do sleep 0.1; done'
    )
    machine.run(lines_of(move, 0, "upgrade"))
    machine.run("until [ -e /run/ended ]; do sleep 0.1; done")
    acknowledged = int(machine.run("cat /run/acknowledged"))
    copied = lines_of(move, 1, "upgrade").split("|")[0].replace("ssh root@OLD ", "")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        archive = Path(folder) / "old.tar"
        archive.write_bytes(base64.b64decode(machine.run(f"{copied} | base64")))
        new = Machine("")
        try:
            for heading in INSTALLATION:
                new.run(lines_of(heading).replace("widget-catalog init", ""))
            # What SSH would print.
            new.run(
                lines_of(move, 1, "upgrade").replace(f"ssh root@OLD {copied}", f"cat {archive} ")
            )
            new.run(lines_of(move, 2, "upgrade"))
            new.run(lines_of("Start the service"))
            detail = json.loads(new.run(f"curl --silent --fail {CLOCK}"))
            owner = new.run(
                "stat --format %U:%G /etc/widget-catalog.env /var/backups/widget-catalog/*.db"
            )
        finally:
            new.close()
    assert int(detail["widget"]["downloadCount"]) == before + acknowledged
    assert set(owner.split()) == {"root:widget-catalog", "widget-catalog:widget-catalog"}

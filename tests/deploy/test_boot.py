"""The guide and the units of deploy/ on a machine that a real systemd boots."""

import re
from collections.abc import Iterator

import pytest
from conftest import ROOT
from deploy.machine import Machine
from programs import find_program
from rqlite_nodes import EMULATOR, RQLITED, require_rqlite

GUIDE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
# The file that certbot would create.
CERTIFICATE = """
directory="$root/etc/letsencrypt/live/widgets.example"
mkdir -p "$directory" "$root/var/www/html"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \\
    -subj /CN=widgets.example -addext subjectAltName=DNS:widgets.example \\
    -keyout "$directory/privkey.pem" -out "$directory/fullchain.pem" 2> /dev/null
"""
# A node of another machine, on this one.
OTHER_NODE = """
mkdir /run/nodeNUMBER
sed -e s/^NODE_ID=1/NODE_ID=NUMBER/ -e s/^NODE_ADDRESS=.*/NODE_ADDRESS=192.0.2.1NUMBER/ \\
    /etc/widget-catalog.env > /run/nodeNUMBER/env
sed -e s#/etc/widget-catalog.env#/run/nodeNUMBER/env# -e s#/var/lib/rqlite#/run/nodeNUMBER# \\
    -e /^StateDirectory/d -e /^User=/d -e /^Group=/d -e /^ProtectSystem/d \\
    /etc/systemd/system/rqlite.service > /etc/systemd/system/rqliteNUMBER.service
systemctl daemon-reload
systemctl start rqliteNUMBER
"""


def lines_of(heading: str, number: int = 0) -> str:
    """Return a block of lines of a section of the guide, except those that need a network."""
    (section,) = re.findall(rf"^## (?:\d\. )?{heading}.*?\n(.*?)(?=^## |\Z)", GUIDE, re.M | re.S)
    block = re.findall(r"```sh\n(.*?)```", section, re.S)[number].replace("\\\n", " ")
    needs_network = r"apt-get|sha256sum|python3 -m venv|\S+/pip |certbot"
    return re.sub(rf"^(?:{needs_network}).*\n", "", block, flags=re.M).replace(
        "\ncd -\n", "\ncd /\n"
    )


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine on which the first three steps of the guide were run."""
    find_program("nginx")
    machine = Machine(CERTIFICATE)
    try:
        for heading in ("Install", "Create", "Start"):
            machine.run(lines_of(heading))
        yield machine
    finally:
        machine.close()


def test_the_guide_leads_to_a_service_behind_nginx_with_metrics_and_a_backup(
    machine: Machine,
) -> None:
    assert '"name":"clock"' in machine.run(lines_of("Publish"))
    machine.run("systemctl start nginx")
    machine.run(lines_of("nginx", 1))
    url = "https://widgets.example/api/v1/widgets/acme/clock"
    options = "--cacert /etc/letsencrypt/live/widgets.example/fullchain.pem"
    resolve = "--resolve widgets.example:443:127.0.0.1"
    detail = machine.run(f"curl --silent --fail {options} {resolve} {url}")
    assert '"bundleUrl":"https://widgets.example/' in detail
    metrics = machine.run(lines_of("Metrics"))
    assert "\nwidget_catalog_last_backup_timestamp_seconds 0.0\n" in metrics
    listed = machine.run(lines_of("Nightly"))
    assert [listed.count(suffix) for suffix in (".db\n", ".pack\n")] == [1, 1]
    assert "is in order." in machine.run(lines_of("Nightly", 1))
    scrape = machine.run("curl --silent --fail http://127.0.0.1:9091/metrics")
    assert re.search(r"^widget_catalog_last_backup_timestamp_seconds 1\.\d+e\+09$", scrape, re.M)
    assert machine.run("stat --format '%a %G' /etc/widget-catalog.env") == "640 widget-catalog\n"
    assert machine.run("systemctl --failed --no-legend") == ""


def test_a_wrong_setting_fails_the_restart(machine: Machine) -> None:
    machine.run("cp -a /etc/widget-catalog.env /root/env")
    machine.run("echo CATALOG_MAX_CONNECTIONS=many >> /etc/widget-catalog.env")
    code, output = machine.try_run("systemctl restart widget-catalog")
    machine.run("cp -a /root/env /etc/widget-catalog.env")
    machine.run("systemctl restart widget-catalog")
    assert (code, "failed" in output) == (1, True)
    log = machine.run("journalctl --no-pager --unit widget-catalog")
    assert "CATALOG_MAX_CONNECTIONS must be a whole number" in log


def test_a_missing_catalog_is_not_created_and_no_backup_is_removed(machine: Machine) -> None:
    machine.run("widget-catalog backup --dir /var/backups/widget-catalog --keep 14")
    before = machine.run("ls /var/backups/widget-catalog")
    machine.run(
        "systemctl stop widget-catalog.socket widget-catalog.service\n"
        "mv /var/lib/widget-catalog/catalog.db /root/"
    )
    start = machine.try_run("systemctl start widget-catalog.service")
    backup = machine.try_run("systemctl start widget-catalog-backup.service")
    exists, _ = machine.try_run("test -e /var/lib/widget-catalog/catalog.db")
    after = machine.run("ls /var/backups/widget-catalog")
    machine.run(
        "mv /root/catalog.db /var/lib/widget-catalog/\n"
        "systemctl start widget-catalog.socket widget-catalog.service\n"
        "systemctl start widget-catalog-backup.service"
    )
    assert (start[0], backup[0], exists) == (1, 1, 1)
    assert after == before
    # The unit of OnFailure= is started after the backup has failed.
    machine.run(
        "until journalctl --no-pager --priority crit --identifier widget-catalog |"
        " grep 'widget-catalog-backup.service failed'; do sleep 0.1; done"
    )


def test_a_port_is_ignored_with_a_warning_and_sighup_stops_the_service_in_order(
    machine: Machine,
) -> None:
    machine.run("cp -a /etc/widget-catalog.env /root/env")
    machine.run("echo CATALOG_PORT=8090 >> /etc/widget-catalog.env")
    machine.run("systemctl restart widget-catalog && cp -a /root/env /etc/widget-catalog.env")
    machine.run("curl --silent --fail http://127.0.0.1:8080/api/health")
    log = machine.run("journalctl --no-pager --unit widget-catalog")
    assert "CATALOG_PORT is ignored: the socket unit of systemd has the address." in log
    machine.run("systemctl kill --signal HUP widget-catalog.service")
    # The next connection starts it again.
    machine.run("curl --silent --fail --retry 5 http://127.0.0.1:8080/api/health")
    log = machine.run("journalctl --no-pager --unit widget-catalog")
    assert "code=killed" not in log


def test_a_directory_that_the_unit_may_not_write_to_is_named(machine: Machine) -> None:
    machine.run(
        "cp -a /etc/widget-catalog.env /root/env\n"
        "install -d -o widget-catalog /srv/catalog\n"
        "widget-catalog --database /srv/catalog/catalog.db init\n"
        "echo CATALOG_DATABASE=/srv/catalog/catalog.db >> /etc/widget-catalog.env"
    )
    assert machine.try_run("systemctl restart widget-catalog")[0] == 1
    override = "/etc/systemd/system/widget-catalog.service.d/override.conf"
    machine.run(
        f"mkdir -p $(dirname {override})\n"
        f"printf '[Service]\\nReadWritePaths=/srv/catalog\\n' > {override}\n"
        "systemctl daemon-reload && systemctl restart widget-catalog"
    )
    machine.run(
        f"rm {override} && cp -a /root/env /etc/widget-catalog.env\n"
        "systemctl daemon-reload && systemctl restart widget-catalog"
    )
    log = machine.run("journalctl --no-pager --unit widget-catalog")
    assert "its file system is read-only (EROFS)" in log
    assert "ReadWritePaths=" in log


def test_an_upgrade_with_a_migration_is_rolled_back_twice_with_tokens_and_record(
    machine: Machine,
) -> None:
    machine.run("widget-catalog token create ci --scope acme")
    before = machine.run("widget-catalog log")
    newer, migration = "/opt/widget-catalog-1.2.0", 'connection.execute("PRAGMA user_version = 7")'
    machine.run(
        f"cp -a /opt/widget-catalog-1.1.0 {newer}\n"
        f"sed -i 's/1\\.1\\.0/1.2.0/' {newer}/bin/widget-catalog\n"
        f"cd {newer}/lib/python*/site-packages/catalog\n"
        f"sed -i 's/^SCHEMA_VERSION = 6/SCHEMA_VERSION = 7/' store/schema/schema.py\n"
        f"sed -i 's/^        rebuild_tables(.*/        {migration}/' store/schema/migrations.py\n"
    )
    for _ in range(2):
        machine.run(lines_of("Upgrade"))
        machine.run("curl --silent --fail http://127.0.0.1:8080/api/v1/widgets/search")
        machine.run("widget-catalog token list | grep ci")
        machine.run(lines_of("Rollback"))
        machine.run("curl --silent --fail http://127.0.0.1:8080/api/health")
        assert machine.run("widget-catalog token list").count("ci ") == 1
        assert before.strip() in machine.run("widget-catalog log")
    log = machine.run("journalctl --no-pager --unit widget-catalog")
    assert log.count("from schema version 6 to 7") == 2


@pytest.fixture(scope="module")
def node() -> Iterator[Machine]:
    """A machine with the three addresses of a cluster; the last two have only their nodes."""
    require_rqlite()
    find_program("ip", "systemd")
    if EMULATOR:
        pytest.skip("rqlite is for another processor")
    machine = Machine(f'cp {RQLITED[0]} "$root/usr/bin/rqlited"')
    try:
        for number in (1, 2, 3):
            machine.run(f"ip address add 192.0.2.1{number}/32 dev lo")
        machine.run(lines_of("Install"))
        machine.run(lines_of("Create").replace("widget-catalog init", ""))
        machine.run(lines_of("Three machines").replace("enable --now rqlite", "start rqlite"))
        for number in (2, 3):
            machine.run(OTHER_NODE.replace("NUMBER", str(number)))
        machine.run("until curl --silent --fail http://192.0.2.11:4001/readyz; do sleep 0.1; done")
        machine.run("widget-catalog init --demo")
        yield machine
    finally:
        machine.close()


def test_the_units_serve_and_back_up_a_cluster(node: Machine) -> None:
    node.run(lines_of("Start").replace("127.0.0.1", "192.0.2.11"))
    url = "http://192.0.2.11:8080/api/v1/widgets/acme/clock"
    node.run(f"curl --silent --fail --request POST {url}")
    node.run("widget-catalog unlist acme/weather")
    code, _ = node.try_run(
        "curl --silent --fail http://192.0.2.11:8080/api/v1/widgets/acme/weather"
    )
    assert code != 0
    assert "3 nodes, all in order." in node.run("widget-catalog cluster status")
    node.run("systemctl start widget-catalog-backup.service widget-catalog-check.service")
    assert ".db\n" in node.run("ls /var/backups/widget-catalog")
    # HAProxy has the port on the loopback address.
    node.run("python3 -c 'import socket; socket.create_server((\"127.0.0.1\", 8080))'")


def test_the_service_does_not_start_on_a_file_that_is_not_that_of_its_node(node: Machine) -> None:
    node.run(
        "cd /tmp && CATALOG_DATABASE=other.db /opt/widget-catalog/bin/widget-catalog init\n"
        "install -o widget-catalog other.db /var/lib/widget-catalog/catalog.db\n"
        "sed -i 's|^CATALOG_DATABASE=.*|CATALOG_DATABASE=/var/lib/widget-catalog/catalog.db|'"
        " /etc/widget-catalog.env"
    )
    assert node.try_run("systemctl restart widget-catalog.service")[0] == 1
    log = node.run("journalctl --no-pager --unit widget-catalog")
    assert (
        "/var/lib/widget-catalog/catalog.db is not the file of http://192.0.2.11:4001."
        " Set CATALOG_DATABASE to /var/lib/rqlite/db.sqlite."
    ) in log

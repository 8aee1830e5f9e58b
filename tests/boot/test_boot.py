"""The guide and the units of deploy/ on a machine that a real systemd boots."""

import json
import re
from collections.abc import Iterator
from textwrap import dedent

import pytest
from boot.machine import Machine, install_1_0_0, installed
from conftest import ROOT
from programs import find_program
from rqlite_nodes import EMULATOR, RQLITED, require_rqlite

from catalog.store.schema.schema import SCHEMA_VERSION

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
    -e "s#127.0.0.1:4001#127.0.0.NUMBER:4001 -http-adv-addr 127.0.0.1:4001#" \\
    -e /^StateDirectory/d -e /^User=/d -e /^Group=/d -e /^ProtectSystem/d \\
    /etc/systemd/system/rqlite.service > /etc/systemd/system/rqliteNUMBER.service
systemctl daemon-reload
systemctl start rqliteNUMBER
"""
# The program is for x86-64.
RQLITE = f"""
cp {RQLITED[-1]} "$root/opt/rqlited"
printf '#!/bin/sh\\nexec {" ".join(EMULATOR)} /opt/rqlited "$@"\\n' > "$root/usr/bin/rqlited"
chmod 755 "$root/usr/bin/rqlited"
"""


INSTALLATION = ("Install the wheel", "Create the user, the units and the catalog")
LITESTREAM = "Replicate continuously with Litestream"


def lines_of(heading: str, number: int = 0, page: str = "install") -> str:
    """Return a block of lines of a section of a page, except those that need a network."""
    text = (ROOT / "docs/operate" / f"{page}.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^##+ (?:\d\. )?{heading}\n(.*?)(?=^##|\Z)", text, re.M | re.S)
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", section, re.M | re.S)
    block = dedent(blocks[number]).replace("\\\n", " ")
    needs_network = r"apt-get|sha256sum|python3 -m venv|\S+/pip |certbot"
    return re.sub(rf"^(?:{needs_network}).*\n", "", block, flags=re.M)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine on which the first three steps of the guide were run."""
    find_program("nginx")
    litestream = f'cp {find_program("litestream")} "$root/opt/litestream/bin/"'
    machine = Machine(f'{CERTIFICATE}\nmkdir -p "$root/opt/litestream/bin"\n{litestream}')
    try:
        for heading in (*INSTALLATION, "Start the service"):
            machine.run(lines_of(heading))
        yield machine
    finally:
        machine.close()


def test_the_guide_leads_to_a_service_behind_nginx_with_a_backup_and_metrics(
    machine: Machine,
) -> None:
    machine.run("systemctl start nginx")
    machine.run(lines_of("Put nginx in front", 1))
    assert '"bundleUrl":"https://widgets.example/' in machine.run(
        lines_of("Publish the first widget")
    )
    url = "https://widgets.example/api/v1/widgets/acme/clock"
    options = "--cacert /etc/letsencrypt/live/widgets.example/fullchain.pem"
    resolve = "--resolve widgets.example:443:127.0.0.1"
    detail = machine.run(f"curl --silent --fail {options} {resolve} {url}")
    assert '"bundleUrl":"https://widgets.example/' in detail
    drill = machine.run(lines_of("Enable backups and checks"))
    assert re.search(r"\.db with \S+\.pack is in order: 1 widget, 1 version, 1 bundle\.", drill)
    assert machine.run("ls -A /var/backups/widget-catalog | sed 's/.*Z//'") == ".db\n.pack\n"
    metrics = machine.run(f"mkdir -p /etc/prometheus\n{lines_of('Turn on metrics', 0, 'metrics')}")
    name = "widget_catalog_last_backup_timestamp_seconds"
    for kind in ("database", "pack"):
        assert re.search(rf'^{name}{{kind="{kind}"}} 1\.\d+e\+09$', metrics, re.M)
    assert machine.run("stat --format '%a %G' /etc/widget-catalog.env") == "640 widget-catalog\n"
    assert machine.run("systemctl --failed --no-legend") == ""


def test_another_public_url_replaces_the_first(machine: Machine) -> None:
    before = "grep ^CATALOG_PUBLIC_URL= /etc/widget-catalog.env"
    assert machine.run(before) == "CATALOG_PUBLIC_URL=https://widgets.example\n"
    machine.run("cp -a /etc/letsencrypt/live/widgets.example /etc/letsencrypt/live/new.example")
    lines = lines_of("Put nginx in front", 1).replace("name=widgets.example", "name=new.example")
    machine.run(lines)
    detail = machine.run("curl --silent --fail http://127.0.0.1:8080/api/v1/widgets/acme/clock")
    assert '"bundleUrl":"https://new.example/' in detail
    machine.run(lines_of("Put nginx in front", 1))


def test_installing_again_keeps_settings_and_the_catalog(machine: Machine) -> None:
    machine.run("cp /etc/widget-catalog.env /root/before")
    machine.run("sh /opt/widget-catalog/share/widget-catalog/install")
    machine.run("cmp /root/before /etc/widget-catalog.env")
    machine.run("systemctl restart widget-catalog && widget-catalog list | grep acme/clock")


def test_the_newest_database_is_restored_with_the_bundles_of_an_older_pack(
    machine: Machine,
) -> None:
    machine.run("systemctl start widget-catalog-backup.service")
    # Published after the pack: only the database of the next backup has it.
    machine.run(
        "cd /tmp && echo 'export default 2' > /tmp/later.js\n"
        'echo \'{"scope": "acme", "name": "later", "version": "1.0.0", "displayName": "Later",\n'
        '"sdkVersion": "*"}\' > /tmp/later.json\n'
        "widget-catalog publish /tmp/later.json /tmp/later.js --bundle-url https://cdn.example/l.js\n"
        "widget-catalog backup --dir /var/backups/widget-catalog"
    )
    record = machine.run("widget-catalog log")
    machine.run("rm -r /var/lib/widget-catalog/catalog.db*")
    newest = "$(basename $(ls /var/backups/widget-catalog/catalog-*%s | tail -n 1))"
    lines = lines_of("Restore", 0, "backups")
    for suffix in (".db", ".pack"):
        lines = re.sub(rf"catalog-\d+T\d+Z\{suffix}", newest % suffix, lines)
    output = machine.run(lines)
    assert "is in order" in output
    machine.run("systemctl restart widget-catalog")
    for name, path in (("clock", "acme/clock/1.0.0/bundle.js"), ("later", "acme/later")):
        url = f"http://127.0.0.1:8080/api/v1/widgets/{path}"
        assert machine.run(f"curl --silent --fail --retry 5 {url}"), name
    assert record.strip() in machine.run("widget-catalog log")


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
    assert "CATALOG_PORT is ignored: the systemd socket unit sets the address." in log
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


def test_litestream_is_restored_from_twice_and_goes_on(machine: Machine) -> None:
    machine.run(lines_of(LITESTREAM, 0, "backups"))
    sync = "/opt/litestream/bin/litestream sync -wait -socket /run/litestream/litestream.sock"
    for _ in range(2):
        machine.run("widget-catalog describe acme/clock --icon mdi:bell")
        synced = f"{sync} /var/lib/widget-catalog/catalog.db"
        machine.run(f"until {synced}; do sleep 0.1; done")
        machine.run("widget-catalog describe acme/clock --icon mdi:clock")
        machine.run(f"{synced}\n{lines_of(LITESTREAM, 1, 'backups')}")
        assert "mdi:clock" in machine.run("widget-catalog show acme/clock")
        machine.run("systemctl is-active widget-catalog-litestream")
    machine.run("systemctl disable --now widget-catalog-litestream")


def test_an_upgrade_with_a_migration_is_rolled_back_twice_with_tokens_record_and_units(
    machine: Machine,
) -> None:
    machine.run("widget-catalog token create ci --scope acme")
    before = machine.run("widget-catalog log")
    settings = machine.run("cat /etc/widget-catalog.env")
    newer, next_version = "/opt/widget-catalog-1.2.0", SCHEMA_VERSION + 1
    migration = f'connection.execute("PRAGMA user_version = {next_version}")'
    machine.run(
        f"cp -a /opt/widget-catalog-1.1.0 {newer}\n"
        f"sed -i 's/1\\.1\\.0/1.2.0/' {newer}/bin/widget-catalog\n"
        f"sed -i 's/^Description=.*/Description=Newer/' {newer}/share/widget-catalog/*.service\n"
        f"cd {newer}/lib/python*/site-packages/widget_catalog\n"
        f"sed -i -e 's/^SCHEMA_VERSION = .*/SCHEMA_VERSION = {next_version}/'"
        f" -e 's/^OLD_SCHEMA_VERSION = .*/OLD_SCHEMA_VERSION = {SCHEMA_VERSION}/'"
        " store/schema/schema.py\n"
        f"sed -i 's/^\\( *\\)rebuild_tables(connection)$/\\1{migration}/'"
        " $(grep -rlx ' *rebuild_tables(connection)' store)\n"
    )
    description = "systemctl show --property Description --value widget-catalog.service"
    for _ in range(2):
        machine.run(lines_of("Upgrade", 0, "upgrade"))
        assert machine.run(description) == "Newer\n"
        machine.run("curl --silent --fail http://127.0.0.1:8080/api/v1/widgets/search")
        machine.run("widget-catalog token list | grep ci")
        machine.run(lines_of("Roll back a migration", 0, "upgrade"))
        assert machine.run(description) == "Widget Catalog\n"
        machine.run("curl --silent --fail http://127.0.0.1:8080/api/health")
        assert machine.run("widget-catalog token list").count("ci ") == 1
        assert before.strip() in machine.run("widget-catalog log")
    log = machine.run("journalctl --no-pager --unit widget-catalog")
    assert log.count(f"from schema version {SCHEMA_VERSION} to {next_version}") == 2
    assert machine.run("cat /etc/widget-catalog.env") == settings
    machine.run(lines_of("Roll back", 0, "upgrade"))
    machine.run("curl --silent --fail http://127.0.0.1:8080/api/health")


# How the guide of 1.0.0 runs a command.
FLASK = (
    "systemd-run --quiet --pipe --wait -p DynamicUser=yes -p User=widget-catalog"
    " -p StateDirectory=widget-catalog -p WorkingDirectory=/opt/widget-catalog"
    " -E CATALOG_DATABASE=/var/lib/widget-catalog/catalog.db"
    " -E CATALOG_PUBLIC_URL=https://old.example /opt/widget-catalog/.venv/bin/flask"
)
CLOCK = "http://127.0.0.1:8080/api/v1/widgets/acme/clock"


@pytest.fixture(scope="module")
def older() -> Iterator[Machine]:
    """A machine with release 1.0.0, the demo catalog, a stored bundle and a setting of its own."""
    release = installed(install_1_0_0, "widget-catalog")
    find_program("nginx")
    machine = Machine(f'{CERTIFICATE}\ncp -a {release} "$root/opt/"')
    try:
        # The block of its guide, at a host name of its own.
        machine.run(
            "sed -n '/^```nginx$/,/^```$/p' /opt/widget-catalog/docs/deployment.md | grep -v '^```'"
            " | sed -e 's#/catalog/#/#' -e '/X-Forwarded-Prefix/d'"
            " > /etc/nginx/conf.d/old.conf && nginx -t && systemctl start nginx"
        )
        machine.run(
            "mv /opt/widget-catalog/widget-catalog.service /etc/systemd/system/\n"
            "sed -i '/^DynamicUser/i Environment=CATALOG_PUBLIC_URL=https://old.example'"
            " /etc/systemd/system/widget-catalog.service\n"
            "systemctl daemon-reload\n"
            f"{FLASK} init --demo\n"
            "echo 'export default 1' > /srv/own.js\n"
            'echo \'{"scope": "acme", "name": "own", "version": "1.0.0", "displayName": "Own",'
            ' "sdkVersion": "*"}\' > /srv/own.json\n'
            f"{FLASK} publish /srv/own.json /srv/own.js --store\n"
            "systemctl enable --now widget-catalog\n"
            f"curl --silent --fail --retry 20 --retry-connrefused --request POST {CLOCK}"
        )
        yield machine
    finally:
        machine.close()


def count(machine: Machine) -> int:
    """Return the installs of a widget."""
    detail = machine.run(f"curl --silent --fail --retry 20 --retry-connrefused {CLOCK}")
    return int(json.loads(detail)["widget"]["downloadCount"])


def publish_with_token(machine: Machine) -> str:
    """Publish a bundle of 100 kB through nginx, and return the status."""
    return machine.run(
        "widget-catalog token revoke ci > /dev/null 2>&1 || true\n"
        "token=$(widget-catalog token create ci-$(date +%s%N) --scope acme 2> /dev/null)\n"
        "head -c 100000 /dev/zero | tr '\\0' ' ' > /run/large.js\n"
        'echo \'{"scope": "acme", "name": "large", "version": "1.0.0", "displayName": "Large",'
        ' "sdkVersion": "*"}\' > /run/large.json\n'
        "curl --silent --output /dev/null --write-out '%{http_code}' --request PUT"
        " --cacert /etc/letsencrypt/live/widgets.example/fullchain.pem"
        " --resolve widgets.example:443:127.0.0.1"
        ' --header "Authorization: Bearer $token"'
        " --form 'manifest=@/run/large.json;type=application/json'"
        " --form 'bundle=@/run/large.js;type=text/javascript'"
        " https://widgets.example/api/widgets/acme/large/1.0.0"
    )


def test_an_upgrade_from_1_0_0_keeps_everything_and_is_rolled_back(older: Machine) -> None:
    installs = count(older)
    own = f"{CLOCK.removesuffix('clock')}own"
    older.run(lines_of("Install the wheel").replace("ln -sfn", "true"))
    older.run(lines_of("Upgrade from 1.0.0", 0, "upgrade"))
    assert json.loads(older.run("curl --silent http://127.0.0.1:8080/api/version")) == {
        "version": "1.1.0"
    }
    assert count(older) == installs
    assert '"bundleUrl":"https://old.example/' in older.run(f"curl --silent --fail {own}")
    older.run(f"curl --silent --fail {own}/1.0.0/bundle.js | cmp - /srv/own.js")
    assert "is in order" in older.run("widget-catalog check")
    assert "is in order" in older.run(lines_of("Enable backups and checks"))
    older.run("test -e /var/lib/widget-catalog/before-1.1.0.db")
    # Publishing through the file of 1.0.0 fails, and through that of this release works.
    assert publish_with_token(older) == "413"
    found = older.run(lines_of("Upgrade from 1.0.0", 1, "upgrade"))
    assert found == "/etc/nginx/conf.d/old.conf\n"
    older.run(f"rm {found}\n{lines_of('Put nginx in front', 1)}")
    assert publish_with_token(older) == "201"
    older.run(
        "printf '[Service]\\nNice=1\\n' > /etc/systemd/system/widget-catalog.service.d/mine.conf"
    )
    assert older.run("systemctl --failed --no-legend") == ""
    older.run(f"curl --silent --fail --request POST {CLOCK}")
    older.run(lines_of("Roll back to 1.0.0", 0, "upgrade"))
    # Only the drop-in of the operator is left.
    left = older.run("cd /etc/systemd/system && find . -path '*widget-catalog*' -type f | sort")
    assert left == "./widget-catalog.service\n./widget-catalog.service.d/mine.conf\n"
    assert count(older) == installs
    assert json.loads(older.run("curl --silent http://127.0.0.1:8080/api/version")) == {
        "version": "1.0.0"
    }
    older.run(f"curl --silent --fail {own}/1.0.0/bundle.js | cmp - /srv/own.js")
    older.run(f"curl --silent --fail --request POST {CLOCK}")
    assert older.run("systemctl --failed --no-legend") == ""


@pytest.fixture(scope="module")
def node() -> Iterator[Machine]:
    """A machine with the three addresses of a cluster; the last two have only their nodes."""
    require_rqlite()
    find_program("ip", "systemd")
    machine = Machine(RQLITE)
    try:
        for number in (1, 2, 3):
            machine.run(f"ip address add 192.0.2.1{number}/32 dev lo")
        machine.run(lines_of("Install the wheel"))
        machine.run(lines_of(INSTALLATION[1]).replace("widget-catalog init", ""))
        machine.run(lines_of("Set up a machine", 0, "cluster"))
        machine.run(lines_of("Set up a machine", 1, "cluster"))
        machine.run("systemctl start rqlite")
        for number in (2, 3):
            machine.run(OTHER_NODE.replace("NUMBER", str(number)))
        machine.run(f"until {ASK}/readyz; do sleep 0.1; done")
        machine.run("widget-catalog init --demo")
        yield machine
    finally:
        machine.close()


ASK = 'curl --silent --fail --user "$(cat /etc/widget-catalog.rqlite)" http://127.0.0.1:4001'


def wait_for_nodes(machine: Machine, count: int) -> None:
    """Wait until the cluster has this number of nodes, and all of them respond."""
    status = "widget-catalog cluster status 2>&1"
    machine.run(f"until {status} | grep '^{count} nodes, all in order'; do sleep 0.1; done")


def test_the_units_serve_and_back_up_a_cluster(node: Machine) -> None:
    node.run(lines_of("Start the service").replace("127.0.0.1", "192.0.2.11"))
    url = "http://192.0.2.11:8080/api/v1/widgets/acme"
    node.run(f"curl --silent --fail --request POST {url}/clock")
    node.run("widget-catalog unlist acme/weather")
    assert node.try_run(f"curl --silent --fail {url}/weather")[0] != 0
    wait_for_nodes(node, 3)
    node.run("systemctl start widget-catalog-backup.service widget-catalog-check.service")
    assert " is in order: " in node.run("widget-catalog drill")
    # HAProxy has the port on the loopback address.
    node.run("python3 -c 'import socket; socket.create_server((\"127.0.0.1\", 8080))'")


def test_the_user_has_the_same_id_on_every_machine(node: Machine) -> None:
    assert node.run("id --user widget-catalog && id --group widget-catalog") == "887\n887\n"


def test_cluster_status_shows_addresses_that_other_machines_can_reach(node: Machine) -> None:
    status = node.run("until widget-catalog cluster status --json; do sleep 0.1; done")
    addresses = set(re.findall(r'"address": "([^"]+)"', status))
    assert addresses == {f"192.0.2.1{number}:4002" for number in (1, 2, 3)}


def test_a_lost_node_is_replaced_by_a_new_one(node: Machine) -> None:
    node.run("systemctl stop rqlite3 && find /run/node3 -mindepth 1 ! -name env -delete")
    node.run(lines_of("Replace a machine", 0, "cluster"))
    wait_for_nodes(node, 2)
    node.run("systemctl start rqlite3")
    wait_for_nodes(node, 3)
    # The new node has the catalog.
    node.run("until [ -s /run/node3/db.sqlite ]; do sleep 0.1; done")


def test_nobody_reads_or_writes_a_node_without_the_password(node: Machine) -> None:
    for path in ("db/query?q=SELECT%201", "db/load", "nodes", "status", "db/backup"):
        code = "curl --silent --output /dev/null --write-out '%{http_code}'"
        assert node.run(f"{code} http://127.0.0.1:4001/{path}") == "401", path
    assert node.try_run("curl --silent http://192.0.2.11:4001/readyz")[0] != 0
    for path in ("/etc/rqlite-auth.json", "/etc/widget-catalog.rqlite"):
        assert node.run(f"stat --format '%a %U' {path}") == "600 widget-catalog\n"


def test_a_missing_mount_of_the_bundles_is_reported(node: Machine) -> None:
    node.run("mv /srv/bundles/* /root/")
    health = node.run("curl --silent http://192.0.2.11:8080/api/health")
    node.run("mv /root/[0-9a-f]* /srv/bundles/")
    assert json.loads(health)["status"] == "incomplete"
    assert "ok" in node.run("curl --silent --fail http://192.0.2.11:8080/api/health")


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
        "/var/lib/widget-catalog/catalog.db is not the file of http://127.0.0.1:4001."
        " Set CATALOG_DATABASE to /var/lib/rqlite/db.sqlite."
    ) in log

"""POST /api/session: which id tokens get a short-lived token, and why others are refused."""

import base64
import json
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from builders import document
from conftest import ROOT, run, run_line
from flask import Flask
from hypothesis import given, settings
from hypothesis import strategies as st
from issuers import AUDIENCE, CLAIMS, DISCOVERY, Issuer, encode_segment, make_key, public_jwk
from jwt.algorithms import RSAAlgorithm
from publishers import bearer, manifest
from reverse_proxies import make_certificate
from werkzeug.test import TestResponse

from catalog.api.internal.authentication import MAX_FAILURES
from catalog.system.issuer_keys import IssuerKeys

AppWith = Callable[..., Flask]
TRUST = "trust add ci --issuer {} --claim repository=acme/clock --scope acme --can publish"
PUBLISHED = {**manifest(), "bundleUrl": "https://c.example/1.js", "bundleSize": 1}
PUBLISHED["sha256Hash"] = "0" * 64


class Clock:
    """A clock that tests set."""

    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    running = Issuer()
    yield running
    running.close()


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with(document("acme/weather"), PUBLIC_URL=AUDIENCE)


@pytest.fixture
def clock(app: Flask) -> Clock:
    """The clock of the cached keys."""
    clock = Clock()
    app.extensions["issuer_keys"] = IssuerKeys(clock)
    return clock


@pytest.fixture
def trusting(app: Flask, issuer: Issuer) -> Flask:
    """A service that trusts the jobs of acme/clock."""
    return trust(app, TRUST.format(issuer.url))


def trust(app: Flask, line: str) -> Flask:
    result = run_line(app, line)
    assert result.exit_code == 0, result.stderr
    return app


def exchange(app: Flask, id_token: object) -> TestResponse:
    return app.test_client().post("/api/session", json={"idToken": id_token})


def refusal(app: Flask, id_token: object) -> str:
    response = exchange(app, id_token)
    assert response.status_code == 403, response.text
    return str(response.json["error"])


def short_token(app: Flask, id_token: str) -> str:
    response = exchange(app, id_token)
    assert response.status_code == 200, response.text
    return str(response.json["token"])


def test_an_id_token_gets_a_token_that_lives_fifteen_minutes(
    trusting: Flask, issuer: Issuer
) -> None:
    response = exchange(trusting, issuer.sign())
    assert response.status_code == 200
    assert response.json.keys() == {"token", "expiresAt"}
    assert response.headers["Cache-Control"] == "no-store"
    session = trusting.test_client().get("/api/session", headers=bearer(response.json["token"]))
    assert session.json["expiresAt"] == response.json["expiresAt"]
    with closing(sqlite3.connect(trusting.config["DATABASE"])) as connection:
        begin, end = connection.execute("SELECT created_at, expires_at FROM short_token").fetchone()
    assert (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds() == 900


def test_a_short_token_has_the_permissions_of_its_trust(trusting: Flask, issuer: Issuer) -> None:
    client, header = trusting.test_client(), bearer(short_token(trusting, issuer.sign()))
    published = client.put("/api/widgets/acme/clock/1.0.0", json=PUBLISHED, headers=header)
    assert published.status_code == 201
    yanked = client.post("/api/widgets/acme/clock/1.0.0/yank", headers=header)
    assert (yanked.status_code, yanked.json) == (
        403,
        {"error": "The trust ci does not have the yank permission."},
    )
    other = {**PUBLISHED, "scope": "ops"}
    refused = client.put("/api/widgets/ops/clock/1.0.0", json=other, headers=header)
    assert refused.json == {"error": "The trust ci is not valid for the scope 'ops'."}


def test_the_audit_log_names_the_trust_and_the_subject(trusting: Flask, issuer: Issuer) -> None:
    header = bearer(short_token(trusting, issuer.sign()))
    trusting.test_client().put("/api/widgets/acme/clock/1.0.0", json=PUBLISHED, headers=header)
    (entry,) = json.loads(run(trusting, "log", "acme/clock", "--json").stdout)
    assert (entry["kind"], entry["actor"]) == ("trust", f"ci ({CLAIMS['sub']})")
    line = run(trusting, "log", "acme/clock").stdout
    assert f"  trust ci ({CLAIMS['sub']})  publish  acme/clock@1.0.0" in line


def test_the_session_shows_the_trust_and_all_claims(trusting: Flask, issuer: Issuer) -> None:
    text = short_token(trusting, issuer.sign(actor="alice", aud=AUDIENCE))
    session = trusting.test_client().get("/api/session", headers=bearer(text)).json
    assert (session["trust"], session["subject"]) == ("ci", CLAIMS["sub"])
    assert session["claims"]["actor"] == "alice"
    assert session["scopes"] == ["acme"]
    assert session["permissions"] == ["publish"]


def test_an_id_token_is_accepted_once(trusting: Flask, issuer: Issuer) -> None:
    id_token = issuer.sign()
    assert exchange(trusting, id_token).status_code == 200
    assert refusal(trusting, id_token) == "The id token was already used; it is accepted only once."
    assert exchange(trusting, issuer.sign()).status_code == 200


def test_an_id_token_with_another_valid_signature_is_accepted_once(
    app: Flask, issuer: Issuer
) -> None:
    issuer.keys = {"one": make_key("EC")}
    trust(app, TRUST.format(issuer.url))
    signed, _, signature = issuer.sign().rpartition(".")
    content = base64.urlsafe_b64decode(signature + "==")
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    other = (order - int.from_bytes(content[32:])).to_bytes(32)
    assert exchange(app, f"{signed}.{signature}").status_code == 200
    assert "was already used" in refusal(app, f"{signed}.{encode_segment(content[:32] + other)}")


def test_removing_a_trust_ends_its_tokens(trusting: Flask, issuer: Issuer) -> None:
    client, header = trusting.test_client(), bearer(short_token(trusting, issuer.sign()))
    used = issuer.sign()
    short_token(trusting, used)
    assert client.get("/api/session", headers=header).status_code == 200
    trust(trusting, "trust remove ci")
    response = client.get("/api/session", headers=header)
    assert (response.status_code, response.json) == (401, {"error": "The trust ci was removed."})
    trust(trusting, TRUST.format(issuer.url))
    assert client.get("/api/session", headers=header).status_code == 401
    assert "was already used" in refusal(trusting, used)


def test_expired_rows_go_with_the_next_token(trusting: Flask, issuer: Issuer) -> None:
    short_token(trusting, issuer.sign())
    with closing(sqlite3.connect(trusting.config["DATABASE"])) as connection:
        connection.execute("UPDATE short_token SET expires_at = '2026-01-01', id_token_end = ''")
        connection.commit()
        short_token(trusting, issuer.sign())
        assert connection.execute("SELECT count(*) FROM short_token").fetchone() == (1,)


def test_a_row_stays_as_long_as_its_id_token_is_valid(trusting: Flask, issuer: Issuer) -> None:
    id_token = issuer.sign()
    short_token(trusting, id_token)
    with closing(sqlite3.connect(trusting.config["DATABASE"])) as connection:
        connection.execute("UPDATE short_token SET expires_at = '2026-01-01'")
        connection.commit()
    short_token(trusting, issuer.sign())
    assert "was already used" in refusal(trusting, id_token)


# As the documentation of each CI system describes the claims of its id tokens.
GITHUB = {
    "sub": "repo:acme/clock:environment:release",
    "environment": "release",
    "repository": "acme/clock",
    "repository_id": "74",
    "repository_owner": "acme",
    "repository_owner_id": "65",
    "repository_visibility": "private",
    "actor": "octocat",
    "ref": "refs/tags/v1.0.0",
    "ref_type": "tag",
    "ref_protected": "true",
    "event_name": "push",
    "job_workflow_ref": "acme/automation/.github/workflows/oidc.yml@refs/heads/main",
    "workflow_ref": "acme/clock/.github/workflows/publish.yml@refs/tags/v1.0.0",
    "runner_environment": "github-hosted",
    "run_id": "2536",
    "run_attempt": "1",
}
GITLAB = {
    "sub": "project_path:acme/clock:ref_type:branch:ref:main",
    "namespace_id": "72",
    "namespace_path": "acme",
    "project_id": "20",
    "project_path": "acme/clock",
    "user_id": "1",
    "user_login": "sample-user",
    "user_identities": [{"provider": "github", "extern_uid": "2435223452345"}],
    "pipeline_id": "574",
    "pipeline_source": "push",
    "job_id": "302",
    "ref": "main",
    "ref_type": "branch",
    "ref_path": "refs/heads/main",
    "ref_protected": "true",
    "groups_direct": ["acme", "acme/widgets"],
    "runner_id": 1,
    "runner_environment": "self-hosted",
    "environment": "release",
    "environment_protected": "false",
    "deployment_tier": "testing",
}
FORGEJO = {
    "sub": "repo:acme/clock:ref:refs/heads/main",
    "actor": "alice",
    "base_ref": "",
    "event_name": "push",
    "head_ref": "",
    "ref": "refs/heads/main",
    "ref_protected": "false",
    "ref_type": "branch",
    "repository": "acme/clock",
    "repository_owner": "acme",
    "run_attempt": "1",
    "run_id": "9",
    "run_number": "4",
    "sha": "32d7ba16ecd2fcee5adf4c7df4e9ca5af9ddbb14",
    "workflow": "publish.yml",
    "workflow_ref": "acme/clock/.forgejo/workflows/publish.yml@refs/heads/main",
}
KUBERNETES = {
    "sub": "system:serviceaccount:build:publisher",
    "aud": [AUDIENCE],
    "kubernetes.io": {
        "namespace": "build",
        "pod": {"name": "publish-7k2", "uid": "4bb2a8f0"},
        "serviceaccount": {"name": "publisher", "uid": "a3d9f6cc"},
    },
}


@pytest.mark.parametrize(
    ("claims", "options", "differs", "message"),
    [
        (
            GITHUB,
            "--claim repository=acme/clock --claim environment=release --claim ref=refs/tags/v*",
            {"ref": "refs/heads/main"},
            "ref is 'refs/heads/main', not 'refs/tags/v*'",
        ),
        (
            GITHUB,
            "--claim repository=acme/clock --claim environment=release",
            {"environment": None},
            "it has no environment, which must be 'release'",
        ),
        (
            GITLAB,
            "--claim project_path=acme/clock --claim ref_path=refs/heads/* --claim runner_id=1",
            {"project_path": "acme/clock-fork"},
            "project_path is 'acme/clock-fork', not 'acme/clock'",
        ),
        (
            GITLAB,
            "--claim project_id=20 --claim ref_protected=true",
            {"ref_protected": False},
            "ref_protected is false, not 'true'",
        ),
        (
            FORGEJO,
            "--claim sub=repo:acme/clock:ref:refs/heads/main",
            {"sub": "repo:acme/clock:pull_request"},
            "sub is 'repo:acme/clock:pull_request', not 'repo:acme/clock:ref:refs/heads/main'",
        ),
        (
            KUBERNETES,
            "--claim sub=system:serviceaccount:build:publisher",
            {"sub": "system:serviceaccount:web:publisher"},
            "sub is 'system:serviceaccount:web:publisher', not "
            "'system:serviceaccount:build:publisher'",
        ),
    ],
    ids=["github", "github-environment", "gitlab", "gitlab-protected", "forgejo", "kubernetes"],
)
def test_jobs_are_told_which_claim_differs(
    app: Flask, issuer: Issuer, claims: Any, options: str, differs: Any, message: str
) -> None:
    trust(app, f"trust add ci --issuer {issuer.url} {options} --scope acme")
    assert exchange(app, issuer.sign(claims)).status_code == 200
    error = refusal(app, issuer.sign({**claims, **differs}))
    assert error == f"The id token does not match the trust ci: {message}."


def test_the_nearest_trust_explains_a_refusal(app: Flask, issuer: Issuer) -> None:
    add = f"trust add {{}} --issuer {issuer.url} --scope acme --claim"
    trust(app, f"{add.format('a')} repository=acme/other --claim ref=main --claim actor=bob")
    trust(app, f"{add.format('b')} repository=acme/clock --claim ref=main --claim actor=bob")
    assert refusal(app, issuer.sign(ref="main", actor="eve")) == (
        "The id token does not match the trust b: actor is 'eve', not 'bob'."
    )


def test_the_trust_with_the_most_claims_is_used(app: Flask, issuer: Issuer) -> None:
    add = f"trust add {{}} --issuer {issuer.url} --claim repository=acme/clock"
    trust(app, f"{add.format('all')} --scope acme")
    trust(app, f"{add.format('tags')} --claim ref=refs/tags/* --scope acme --can publish,yank")
    for ref, name in (("refs/tags/v1", "tags"), ("refs/heads/main", "all")):
        text = short_token(app, issuer.sign(ref=ref))
        session = app.test_client().get("/api/session", headers=bearer(text)).json
        assert session["trust"] == name


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        (
            {"iss": "https://x.org"},
            "There is no trust for the issuer 'https://x.org' of the id token.",
        ),
        ({"iss": 7}, "There is no trust for the issuer 7 of the id token."),
        (
            {"aud": "https://other.example"},
            "The id token is for the audience 'https://other.example', not "
            "'https://widgets.example'.",
        ),
        (
            {"aud": f"{AUDIENCE}/"},
            "The id token is for the audience 'https://widgets.example/', not "
            "'https://widgets.example'.",
        ),
        ({"aud": None}, "The id token has no aud claim."),
        ({"sub": None}, "The id token has no sub claim."),
        ({"exp": None}, "The id token has no exp claim."),
        ({"exp": 1700000000}, "The id token expired at 2023-11-14T22:13:20.000Z."),
        ({"exp": -(10**300)}, None),
        ({"exp": "soon"}, None),
        ({"exp": 10**30, "iat": "x"}, None),
        ({"sub": 7}, "The id token is not valid: Subject must be a string."),
        ({"aud": 7}, "The id token is for the audience 7, not 'https://widgets.example'."),
        ({"nbf": 4102444800}, "The id token is not valid before 2100-01-01T00:00:00.000Z."),
        ({"iat": 4102444800}, "The id token is not valid before 2100-01-01T00:00:00.000Z."),
    ],
)  # fmt: skip
def test_each_reason_for_a_refusal_has_its_sentence(
    trusting: Flask, issuer: Issuer, claims: Any, message: str | None
) -> None:
    token = [encode_segment(each) for each in ({"alg": "RS256", "kid": "one"}, {})]
    if claims.get("iss") == 7:
        token[1] = encode_segment({**CLAIMS, **claims})
        error = refusal(trusting, ".".join([*token, "AAAA"]))
    else:
        error = refusal(trusting, issuer.sign(claims))
    assert message is None or error == message


def test_a_null_time_beside_one_in_the_future_is_refused(trusting: Flask, issuer: Issuer) -> None:
    claims = {**CLAIMS, "iss": issuer.url, "aud": AUDIENCE, "exp": 4102444900}
    signed = ".".join(
        map(encode_segment, ({"alg": "RS256", "kid": "one"}, claims | {"nbf": None, "iat": 4e9}))
    )
    signature = RSAAlgorithm(RSAAlgorithm.SHA256).sign(signed.encode(), issuer.keys["one"])
    error = refusal(trusting, f"{signed}.{encode_segment(signature)}")
    assert error == "The id token is not valid before 2096-10-02T07:06:40.000Z."


def test_an_id_token_is_accepted_for_a_minute_after_its_end(
    trusting: Flask, issuer: Issuer
) -> None:
    now = int(time.time())
    assert exchange(trusting, issuer.sign(exp=now - 5)).status_code == 200
    assert "expired" in refusal(trusting, issuer.sign(exp=now - 61))
    assert exchange(trusting, issuer.sign(nbf=now + 40, iat=now + 40)).status_code == 200


def test_a_service_without_a_public_url_accepts_no_id_token(
    app_with: AppWith, issuer: Issuer
) -> None:
    app = trust(app_with(), TRUST.format(issuer.url))
    response = app.test_client().post(
        "/api/session", json={"idToken": issuer.sign()}, headers={"Host": "widgets.example"}
    )
    assert response.status_code == 403
    assert "CATALOG_PUBLIC_URL, their audience, is unset" in response.json["error"]


def forge(header: Any, claims: Any, signature: bytes = b"x" * 256) -> str:
    return ".".join(map(encode_segment, (header, claims, signature)))


@pytest.mark.parametrize("algorithm", ["none", "HS256", "RS384", "PS256", "ES384", "EdDSA", "", 7])
def test_other_algorithms_are_refused(trusting: Flask, issuer: Issuer, algorithm: object) -> None:
    claims = {**CLAIMS, "iss": issuer.url, "aud": AUDIENCE, "exp": int(time.time()) + 300}
    error = refusal(trusting, forge({"alg": algorithm, "kid": "one"}, claims))
    assert error.endswith("; it must be signed with RS256 or ES256.")


def test_a_public_key_is_never_the_secret_of_an_hmac(trusting: Flask, issuer: Issuer) -> None:
    import hmac

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = issuer.keys["one"].public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = {**CLAIMS, "iss": issuer.url, "aud": AUDIENCE, "exp": int(time.time()) + 300}
    signed = ".".join(map(encode_segment, ({"alg": "HS256", "kid": "one"}, claims)))
    digest = hmac.digest(pem, signed.encode(), "sha256")
    assert "'HS256'" in refusal(trusting, f"{signed}.{encode_segment(digest)}")


@pytest.mark.parametrize(
    "id_token",
    [None, 7, {}, [], "", "x", "a.b", "a.b.c", "..", "a.b.c.d", forge([], {}), forge({}, []),
     forge({}, b"\xff"), forge({}, b'{"sub": NaN}'), forge({}, b'{"sub": "\\ud800"}'),
     forge({}, b"[" * 5000), "é.é.é"],
)  # fmt: skip
def test_what_is_not_a_token_is_refused(trusting: Flask, id_token: object) -> None:
    assert refusal(trusting, id_token) == "The id token is not a signed JSON Web Token."


@pytest.mark.parametrize("body", [b"", b"x", b"[]", b"7", b'{"token": "x"}', b"\xff"])
def test_what_is_not_a_session_request_is_400_or_403(trusting: Flask, body: bytes) -> None:
    response = trusting.test_client().post("/api/session", data=body)
    assert response.status_code == (403 if not body else 400)


def test_an_id_token_of_100_kilobytes_is_413(trusting: Flask, issuer: Issuer) -> None:
    response = exchange(trusting, issuer.sign(padding="x" * 100_000))
    assert response.status_code == 413
    assert response.json == {"error": "The body is too large: it must not exceed 16384 bytes."}


def test_an_id_token_with_a_thousand_claims_is_accepted(trusting: Flask, issuer: Issuer) -> None:
    text = short_token(trusting, issuer.sign({f"c{number}": 1 for number in range(1000)}))
    session = trusting.test_client().get("/api/session", headers=bearer(text)).json
    assert session["claims"]["c999"] == 1


@pytest.mark.parametrize("name", ["jku", "x5u", "jwk"])
def test_a_token_cannot_name_its_own_keys(trusting: Flask, issuer: Issuer, name: str) -> None:
    with closing(Issuer()) as other:
        other.keys = {"one": make_key(number=2)}
        jwk = public_jwk(other.keys["one"], "one")
        header = {name: jwk if name == "jwk" else f"{other.url}/keys"}
        other_url, other.url = other.url, issuer.url
        forged = other.sign(header=header)
        assert other_url != issuer.url
        assert refusal(trusting, forged).startswith("The signature of the id token does not match")
        assert other.requests == []
        assert exchange(trusting, issuer.sign(header=header)).status_code == 200


def test_two_keys_may_have_one_id(app: Flask, issuer: Issuer) -> None:
    issuer.extra_keys = [
        public_jwk(make_key(number=2), "one"),
        public_jwk(make_key("EC"), "one"),
        public_jwk(make_key("P-384"), "one"),
        {"kid": "one", "kty": "RSA", "n": "!", "e": "AQAB"},
        {"kid": "one"},
    ]
    trust(app, TRUST.format(issuer.url))
    assert exchange(app, issuer.sign()).status_code == 200
    issuer.keys = {"one": make_key("EC", 2)}
    app.extensions["issuer_keys"] = IssuerKeys()
    assert exchange(app, issuer.sign()).status_code == 200


@pytest.mark.parametrize("more", [{"use": "enc"}, {"alg": "RS512"}])
def test_a_key_for_another_use_is_ignored(app: Flask, issuer: Issuer, more: Any) -> None:
    trust(app, TRUST.format(issuer.url))
    id_token = issuer.sign()
    issuer.extra_keys, issuer.keys = [public_jwk(make_key(), "one", **more)], {}
    assert "The signature of the id token does not match" in refusal(app, id_token)


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits long")
def test_a_key_below_2048_bits_is_refused(app: Flask, issuer: Issuer) -> None:
    issuer.keys = {"small": make_key(bits=1024)}
    trust(app, TRUST.format(issuer.url))
    assert refusal(app, issuer.sign()) == (
        "The key 'small' of the issuer has 1024 bits; it must have 2048 to 8192."
    )


def test_a_new_key_is_fetched_when_a_token_uses_it(
    clock: Clock, trusting: Flask, issuer: Issuer
) -> None:
    assert exchange(trusting, issuer.sign()).status_code == 200
    issuer.keys = {"two": make_key(number=2)}
    # Never more than once a minute.
    assert "match the key 'two'" in refusal(trusting, issuer.sign())
    clock.seconds += 60
    assert exchange(trusting, issuer.sign()).status_code == 200
    assert issuer.requests == [DISCOVERY, "/keys"] * 2
    # The old key is gone.
    issuer.keys["one"] = make_key()
    forged = issuer.sign(key="one")
    del issuer.keys["one"]
    assert "match the key 'one'" in refusal(trusting, forged)


def test_unknown_key_ids_cause_one_fetch_in_a_minute(
    clock: Clock, trusting: Flask, issuer: Issuer
) -> None:
    for number in range(5):
        refusal(trusting, issuer.sign(header={"kid": f"unknown {number}"}))
    assert issuer.requests == [DISCOVERY, "/keys"]
    clock.seconds += 60
    refusal(trusting, issuer.sign(header={"kid": "unknown"}))
    assert issuer.requests == [DISCOVERY, "/keys"] * 2


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 300),
        ("no-store", 300),
        ("max-age=1", 300),
        ("public, max-age=4000", 4000),
        ("max-age=999999", 86400),
    ],
)
def test_keys_are_cached_as_their_header_says(
    clock: Clock, trusting: Flask, issuer: Issuer, header: str | None, seconds: int
) -> None:
    issuer.headers = {"Cache-Control": header} if header else {}
    assert exchange(trusting, issuer.sign()).status_code == 200
    clock.seconds += seconds - 0.5
    assert exchange(trusting, issuer.sign()).status_code == 200
    assert issuer.requests.count("/keys") == 1
    clock.seconds += 0.5
    assert exchange(trusting, issuer.sign()).status_code == 200
    assert issuer.requests.count("/keys") == 2


def test_the_last_keys_serve_while_the_issuer_is_down(
    clock: Clock, trusting: Flask, issuer: Issuer
) -> None:
    assert exchange(trusting, issuer.sign()).status_code == 200
    issuer.faults["/keys"] = (500, {}, b"")
    clock.seconds += 299
    refusal(trusting, issuer.sign(header={"kid": "unknown"}))
    assert exchange(trusting, issuer.sign()).status_code == 200
    clock.seconds += 61
    response = exchange(trusting, issuer.sign())
    assert response.status_code == 503
    assert response.json == {"error": f"{issuer.url}/keys responded 500."}
    assert response.headers["Retry-After"] == "10"
    issuer.faults.clear()
    clock.seconds += 60
    assert exchange(trusting, issuer.sign()).status_code == 200


def test_an_issuer_may_have_a_path(app: Flask) -> None:
    with closing(Issuer("/realms/ci")) as issuer:
        trust(app, TRUST.format(issuer.url))
        assert exchange(app, issuer.sign()).status_code == 200
        assert issuer.requests == [f"/realms/ci{DISCOVERY}", "/realms/ci/keys"]


def test_a_redirect_within_the_origin_is_followed(trusting: Flask, issuer: Issuer) -> None:
    document = json.dumps({"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"}).encode()
    issuer.faults[DISCOVERY] = (302, {"Location": "/moved"}, b"")
    issuer.faults["/moved"] = (200, {}, document)
    assert exchange(trusting, issuer.sign()).status_code == 200


@pytest.mark.parametrize(
    ("path", "fault", "message"),
    [
        (DISCOVERY, (302, {"Location": "http://127.0.0.1:9/x"}, b""), "redirects to another origin, 'http://127.0.0.1:9/x'."),
        (DISCOVERY, (302, {"Location": DISCOVERY}, b""), "redirects more than 3 times."),
        (DISCOVERY, (404, {}, b""), "responded 404."),
        (DISCOVERY, (200, {}, b"["), "is not the discovery document of"),
        (DISCOVERY, (200, {}, b'{"issuer": "https://x.example"}'), "is not the discovery document"),
        ("/keys", (302, {"Location": "https://ci.example/"}, b""), "redirects to another origin"),
        ("/keys", (200, {}, b"x"), "is not a JSON Web Key Set."),
        ("/keys", (200, {}, b'{"keys": []}'), "is not a JSON Web Key Set."),
        ("/keys", (200, {}, b'{"keys": "x"}'), "is not a JSON Web Key Set."),
        ("/keys", (200, {}, b'{"keys": [' + b"{}," * 101 + b"{}]}"), "is not a JSON Web Key Set."),
        ("/keys", (200, {}, b"[" * 100_000), "is not a JSON Web Key Set."),
        ("/keys", (200, {}, b" " * 10_000_000), "sent a response of more than 524288 bytes."),
    ],
)  # fmt: skip
def test_documents_of_an_issuer_that_cannot_be_used_are_503(
    trusting: Flask, issuer: Issuer, path: str, fault: Any, message: str
) -> None:
    issuer.faults[path] = fault
    response = exchange(trusting, issuer.sign())
    assert response.status_code == 503
    assert message in response.json["error"]


def test_keys_are_never_fetched_over_http_from_another_machine(
    trusting: Flask, issuer: Issuer
) -> None:
    document = {"issuer": issuer.url, "jwks_uri": "http://keys.example/"}
    issuer.faults[DISCOVERY] = (200, {}, json.dumps(document).encode())
    response = exchange(trusting, issuer.sign())
    assert response.status_code == 503
    assert "'http://keys.example/', which is not an https URL." in response.json["error"]


def test_keys_in_a_file_need_no_network(app: Flask, issuer: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(issuer.jwks())
    trust(app, f"{TRUST.format(issuer.url)} --jwks {file}")
    file.unlink()
    assert exchange(app, issuer.sign()).status_code == 200
    assert issuer.requests == []


def test_a_private_authority_is_trusted_for_its_issuer(app: Flask, tmp_path: Path) -> None:
    make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "fullchain.pem", tmp_path / "privkey.pem")
    with closing(Issuer(tls=context)) as issuer:
        trust(app, TRUST.format(issuer.url))
        response = exchange(app, issuer.sign())
        assert response.status_code == 503
        assert "its certificate is not valid" in response.json["error"]
        trust(app, "trust remove ci")
        trust(app, f"{TRUST.format(issuer.url)} --ca {tmp_path / 'fullchain.pem'}")
        (tmp_path / "fullchain.pem").unlink()
        assert exchange(app, issuer.sign()).status_code == 200


def test_failed_attempts_count_for_the_limit_of_wrong_tokens(
    trusting: Flask, issuer: Issuer
) -> None:
    client = trusting.test_client()
    for _ in range(MAX_FAILURES):
        assert exchange(trusting, "x").status_code == 403
    response = exchange(trusting, "x")
    assert response.status_code == 429
    assert 0 < int(response.headers["Retry-After"]) <= 61
    assert client.get("/api/session", headers=bearer("x")).status_code == 429
    assert exchange(trusting, issuer.sign()).status_code == 200


def test_pyjwt_is_imported_only_if_a_trust_exists(tmp_path: Path) -> None:
    code = f"""
import sys
from app import create_app
from catalog.store.connection.database import Database
Database({str(tmp_path / "a.db")!r}).create()
app = create_app({{"DATABASE": {str(tmp_path / "a.db")!r}, "PUBLIC_URL": "https://w.example"}})
response = app.test_client().post("/api/session", json={{"idToken": "e30.e30.AA"}})
print(response.status_code, "jwt" in sys.modules, "cryptography" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "403 False False\n"


@pytest.mark.parametrize("kind", ["RSA", "EC"])
def test_a_changed_byte_anywhere_in_an_id_token_is_refused(
    app: Flask, issuer: Issuer, tmp_path: Path, kind: str
) -> None:
    issuer.keys = {"one": make_key(kind)}
    file = tmp_path / "keys.json"
    file.write_text(issuer.jwks())
    trust(app, f"{TRUST.format(issuer.url)} --jwks {file}")
    id_token = issuer.sign()
    letters = st.characters(min_codepoint=32, max_codepoint=126)

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(st.integers(0, len(id_token) - 1), letters)
    def check(position: int, letter: str) -> None:
        changed = f"{id_token[:position]}{letter}{id_token[position + 1 :]}"
        if changed != id_token:
            assert exchange(app, changed).status_code in (403, 429)

    check()
    # The last character of a signature has bits that base64 ignores.
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/":
        if letter != id_token[-1]:
            assert exchange(app, id_token[:-1] + letter).status_code in (403, 429)
    assert exchange(app, id_token).status_code == 200

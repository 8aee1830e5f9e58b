-- The schema of a catalog. The widget, version and about tables contain the catalog. The token, trust and short_token
-- tables define who may change it, and the audit table contains the audit log. The other tables are derived from the
-- first three, count installs, or record where widgets were copied from and which versions were deleted.
--
-- catalog/domain/documents.py validates all values before they are written. The schema has only the CHECKs that
-- statements rely on. Timestamps are UTC strings in the format of JavaScript's toISOString, so they sort by time.

-- The application id "Wcat" distinguishes our files from other SQLite files.
PRAGMA application_id = 0x57636174;

CREATE TABLE widget (
    -- The ids of deleted widgets are not reused.
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    scope          TEXT    NOT NULL CHECK (scope <> '' AND instr(scope, '/') = 0),
    name           TEXT    NOT NULL CHECK (name <> '' AND instr(name, '/') = 0),
    display_name   TEXT    NOT NULL,
    description    TEXT,
    icon           TEXT,
    is_official    INTEGER CHECK (is_official IN (0, 1)),
    download_count INTEGER CHECK (download_count >= 0),
    created_at     TEXT    NOT NULL,
    listed         INTEGER NOT NULL CHECK (listed IN (0, 1)),
    -- The day and the version of the last install; the widget_installed trigger counts it. The version is empty if the
    -- client did not name one.
    installed_day     INTEGER,
    installed_version TEXT,
    -- The search columns, folded by fold() in catalog/domain/folding.py: display_name, and display_name with
    -- description.
    folded_name    TEXT    NOT NULL,
    folded_text    TEXT    NOT NULL,
    -- The scope/name that pages search, folded and without hyphens.
    folded_path    TEXT    NOT NULL DEFAULT '',
    UNIQUE (scope, name)
) STRICT;

-- The distinct npm ranges in version.sdk_version. The SDKs that satisfy a range are stored as intervals of keys: low is
-- inclusive, high is exclusive. The keys sort like versions (catalog/domain/sdk_intervals.py). A range that no SDK
-- satisfies has no interval.
CREATE TABLE sdk_range (
    id    INTEGER PRIMARY KEY,
    range TEXT    NOT NULL UNIQUE
) STRICT;

CREATE TABLE sdk_interval (
    range_id INTEGER NOT NULL REFERENCES sdk_range (id) ON DELETE CASCADE,
    low      TEXT    NOT NULL,
    high     TEXT    NOT NULL CHECK (low < high),
    PRIMARY KEY (range_id, low)
) STRICT, WITHOUT ROWID;

CREATE TABLE version (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    widget_id           INTEGER NOT NULL REFERENCES widget (id) ON DELETE CASCADE,
    version             TEXT    NOT NULL,
    -- A key that sorts by SemVer precedence (catalog/domain/semver_ranges.py).
    precedence          TEXT    NOT NULL,
    bundle_url          TEXT    NOT NULL,
    bundle_size         INTEGER NOT NULL,
    sha256_hash         TEXT    NOT NULL,
    published_at        TEXT    NOT NULL,
    yanked              INTEGER NOT NULL CHECK (yanked IN (0, 1)),
    yanked_reason       TEXT,
    deprecation_message TEXT,
    release_notes       TEXT,
    -- If the display name, description or icon is null, the widget's own value is used.
    display_name        TEXT,
    description         TEXT,
    icon                TEXT,
    min_w               INTEGER NOT NULL,
    min_h               INTEGER NOT NULL,
    max_w               INTEGER NOT NULL,
    max_h               INTEGER NOT NULL,
    sdk_version         TEXT    NOT NULL REFERENCES sdk_range (range),
    -- A whole number, or a fractional number as a string: SQLite would keep only 15 of its digits.
    config_version      ANY
        CHECK (typeof(config_version) IN ('integer', 'null') OR json_type(config_version) = 'real'),
    -- A JSON array of strings.
    permissions         TEXT    NOT NULL CHECK (json_valid(permissions)),
    license             TEXT,
    -- The URL path of a stored bundle, which this service serves itself; null if it stores none.
    bundle_path         TEXT CHECK (bundle_path LIKE '/_%'),
    UNIQUE (widget_id, version)
) STRICT;

-- This index sorts the versions of a widget from newest to oldest. It also contains yanked, sdk_version, permissions
-- and license, so that SQLite finds the newest version for an SDK, with its permissions and licence, without reading
-- the table.
CREATE INDEX version_newest
    ON version (
        widget_id, published_at DESC, precedence DESC, version DESC, yanked, sdk_version, permissions, license);

-- This index finds ranges that no version uses.
CREATE INDEX version_range ON version (sdk_version);

-- This index is for the feed of new releases, and for searches that sort by the newest version before a given time.
CREATE INDEX version_published ON version (published_at DESC, widget_id, precedence, version, yanked)
    WHERE yanked = 0;

-- The JSON of each version as the API returns it (VersionEntry): fields that the version omits are taken from the
-- widget. The URL of a stored bundle is only a path, so that the JSON is the same for every host name;
-- with_bundle_urls() in catalog/store/read/json_sql.py inserts the host.
CREATE VIEW version_entry AS
SELECT version.id, widget_id, published_at, precedence, version, yanked, json_object(
    'scope', widget.scope, 'name', widget.name,
    'version', version.version, 'bundleUrl', coalesce(version.bundle_path, version.bundle_url),
    'bundleSize', version.bundle_size, 'sha256Hash', version.sha256_hash,
    'publishedAt', version.published_at, 'yanked', json(iif(version.yanked, 'true', 'false')),
    'yankedReason', version.yanked_reason, 'deprecationMessage', version.deprecation_message,
    'releaseNotes', version.release_notes,
    'displayName', coalesce(version.display_name, widget.display_name),
    'description', coalesce(version.description, widget.description),
    'icon', coalesce(version.icon, widget.icon),
    'minSize', json_object('w', version.min_w, 'h', version.min_h),
    'maxSize', json_object('w', version.max_w, 'h', version.max_h),
    'sdkVersion', version.sdk_version, 'configVersion', json(version.config_version),
    'permissions', json(version.permissions), 'license', version.license
) AS entry
FROM version CROSS JOIN widget ON widget.id = version.widget_id;

-- The "about" of a widget: readme, links, keywords and picture. The responses that the specification defines do not
-- contain it.
CREATE TABLE about (
    widget_id  INTEGER PRIMARY KEY REFERENCES widget (id) ON DELETE CASCADE,
    -- The readme is Markdown.
    readme     TEXT,
    homepage   TEXT,
    repository TEXT,
    issues     TEXT,
    -- A JSON array of strings; null if there are none.
    keywords   TEXT CHECK (keywords IS NULL OR json_valid(keywords)),
    -- A JSON array of the keywords as pages search them, folded and without hyphens.
    folded_keywords TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(folded_keywords)),
    -- A JSON object: type, size, width, height and sha256Hash. The picture is shown only while its file is stored.
    picture    TEXT CHECK (picture IS NULL OR json_valid(picture))
) STRICT;

-- The upstream of each copied widget, for the next refresh of the mirror. No response contains this table.
CREATE TABLE mirrored (
    widget_id      INTEGER PRIMARY KEY REFERENCES widget (id) ON DELETE CASCADE,
    -- The base URL of the upstream.
    source         TEXT    NOT NULL,
    -- The ETag of the widget's detail at the upstream.
    etag           TEXT,
    -- The downloadCount at the upstream during the last refresh.
    upstream_count INTEGER CHECK (upstream_count >= 0),
    -- 1 if the mirror has unlisted the copy because the upstream no longer shows the widget.
    gone           INTEGER NOT NULL DEFAULT 0 CHECK (gone IN (0, 1))
) STRICT;

-- The upstreams of a mirror, for the next refresh.
CREATE TABLE upstream (
    -- The base URL.
    source       TEXT PRIMARY KEY,
    -- The options of the mirror: the fields of MirrorOptions in catalog/mirror/options.py.
    options      TEXT NOT NULL CHECK (json_valid(options)),
    -- The token for the next request to /api/v1/widgets/changes at the upstream. Every copy from the upstream is at
    -- least as recent as this token.
    token        TEXT,
    -- When the last run without a failed widget ended.
    refreshed_at TEXT,
    -- The last run's error; null if the run succeeded.
    last_error   TEXT,
    -- A JSON object with the publication time of each version that is too new to be copied, by scope/name@version.
    held_back    TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(held_back))
) STRICT, WITHOUT ROWID;

-- The hashes of deleted versions. Clients cache a bundle for a year without revalidation, so the same version must not
-- be published with different bytes. Triggers fill the table on every delete.
CREATE TABLE deleted_version (
    scope       TEXT NOT NULL,
    name        TEXT NOT NULL,
    version     TEXT NOT NULL,
    sha256_hash TEXT NOT NULL,
    PRIMARY KEY (scope, name, version, sha256_hash)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER version_deleted AFTER DELETE ON version BEGIN
    INSERT INTO deleted_version
        SELECT scope, name, old.version, old.sha256_hash FROM widget WHERE id = old.widget_id
        ON CONFLICT DO NOTHING;
END;

-- When a widget is deleted, its row is gone before version_deleted runs for its versions.
CREATE TRIGGER widget_deleted BEFORE DELETE ON widget BEGIN
    INSERT INTO deleted_version
        SELECT old.scope, old.name, version, sha256_hash FROM version WHERE widget_id = old.id
        ON CONFLICT DO NOTHING;
END;

-- Derived rows. Each listed widget has rows in four tables: listing and listing_keyword for filters and sorting,
-- listing_text for finding words, and summary for its JSON. The change table contains the last change to each widget
-- that was ever listed. The rendered_... views define the expected rows.
--
-- The following nine triggers note which widgets a transaction touches. Before the transaction commits, the statements
-- in catalog/store/schema/derived.py rewrite the derived rows of these widgets and empty the touched table. After a
-- change by another program, such as the sqlite3 shell, the next transaction does so.

CREATE TABLE touched (widget_id INTEGER PRIMARY KEY) STRICT;

CREATE TRIGGER widget_added AFTER INSERT ON widget BEGIN
    INSERT INTO touched VALUES (new.id) ON CONFLICT DO NOTHING;
END;

-- Installs change other columns: see widget_downloaded and widget_installed.
CREATE TRIGGER widget_changed AFTER UPDATE OF
    display_name, description, icon, is_official, created_at, listed, folded_name, folded_text, folded_path
ON widget BEGIN
    INSERT INTO touched VALUES (new.id) ON CONFLICT DO NOTHING;
END;

CREATE TRIGGER widget_removed AFTER DELETE ON widget BEGIN
    INSERT INTO touched VALUES (old.id) ON CONFLICT DO NOTHING;
END;

CREATE TRIGGER version_added AFTER INSERT ON version BEGIN
    INSERT INTO touched VALUES (new.widget_id) ON CONFLICT DO NOTHING;
END;

CREATE TRIGGER version_changed AFTER UPDATE ON version BEGIN
    INSERT INTO touched VALUES (new.widget_id) ON CONFLICT DO NOTHING;
END;

CREATE TRIGGER version_removed AFTER DELETE ON version BEGIN
    INSERT INTO touched VALUES (old.widget_id) ON CONFLICT DO NOTHING;
END;

CREATE TRIGGER about_added AFTER INSERT ON about BEGIN
    INSERT INTO touched VALUES (new.widget_id) ON CONFLICT DO NOTHING;
END;

CREATE TRIGGER about_changed AFTER UPDATE ON about BEGIN
    INSERT INTO touched VALUES (new.widget_id) ON CONFLICT DO NOTHING;
END;

CREATE TRIGGER about_removed AFTER DELETE ON about BEGIN
    INSERT INTO touched VALUES (old.widget_id) ON CONFLICT DO NOTHING;
END;

-- Every transaction empties the touched table, so this trigger checks each touched widget and rejects it if it is too
-- large. Widgets with up to 16 versions are not checked: the limits on the fields keep each version below 1 MiB, so
-- together they never exceed 16 MiB. Before SQLite 3.47, RAISE does not accept an expression. Instead, the trigger uses
-- an invalid JSON path: the error message contains the path, and catalog/store/schema/derived.py parses it.
CREATE TRIGGER widget_too_large BEFORE DELETE ON touched
WHEN (SELECT count(*) FROM version WHERE widget_id = old.widget_id) > 16 BEGIN
    SELECT json_extract('{}', 'too large: ' || versions || ' ' || size || ' ' || scope || '/' || name)
    FROM widget, (
        SELECT count(*) AS versions, sum(length(CAST(entry AS BLOB))) AS size
        FROM version_entry WHERE widget_id = old.widget_id)
    WHERE id = old.widget_id AND (versions > 10000 OR size > 16777216);
END;

-- Widgets keep their names, and versions keep their widgets, because clients refer to them by these names.
CREATE TRIGGER widget_renamed BEFORE UPDATE OF id, scope, name ON widget
WHEN (old.id, old.scope, old.name) IS NOT (new.id, new.scope, new.name) BEGIN
    SELECT RAISE (ABORT, 'a widget cannot be renamed');
END;

CREATE TRIGGER version_moved BEFORE UPDATE OF id, widget_id ON version
WHEN (old.id, old.widget_id) IS NOT (new.id, new.widget_id) BEGIN
    SELECT RAISE (ABORT, 'a version cannot be moved to another widget');
END;

CREATE TABLE listing (
    widget_id   INTEGER PRIMARY KEY,
    scope       TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    -- 0 if is_official is null.
    official    INTEGER NOT NULL,
    -- -1 if download_count is null, so that the widget sorts last.
    downloads   INTEGER NOT NULL,
    created     TEXT    NOT NULL,
    -- The published_at of the latest version; empty if there is none, so that the widget sorts last.
    updated     TEXT    NOT NULL,
    -- The permissions (JSON) and the licence of the latest version, for filters. Without a version, permissions is
    -- 'null'; without a licence, license is empty.
    permissions TEXT    NOT NULL,
    license     TEXT    NOT NULL,
    -- The same three columns for the latest version that is not a prerelease.
    stable_updated     TEXT NOT NULL,
    stable_permissions TEXT NOT NULL,
    stable_license     TEXT NOT NULL,
    folded_name TEXT    NOT NULL,
    folded_text TEXT    NOT NULL,
    -- The text that pages search in addition to folded_text; see listed_text.
    page_text   TEXT    NOT NULL
) STRICT;

-- These indexes contain official, so that a search that filters by it skips other widgets without reading the table.
CREATE INDEX listing_order ON listing (downloads DESC, scope, name, official);
CREATE INDEX listing_order_in_scope ON listing (scope, downloads DESC, name, official);
-- These indexes are for the other sort orders of a search; installs do not change them.
CREATE INDEX listing_updated ON listing (updated DESC, scope, name, official);
CREATE INDEX listing_created ON listing (created DESC, scope, name, official);
CREATE INDEX listing_name ON listing (folded_name, scope, name, official);
-- This index counts official widgets; installs do not change it.
CREATE INDEX listing_official ON listing (official);
-- This index contains the listing columns that filter a search, to count the widgets for each value.
CREATE INDEX listing_filters ON listing (permissions, license, scope, official, updated);
-- These indexes replace listing_updated and listing_filters in searches that ignore prereleases.
CREATE INDEX listing_stable_updated ON listing (stable_updated DESC, scope, name, official);
CREATE INDEX listing_stable_filters
    ON listing (stable_permissions, stable_license, scope, official, stable_updated);

-- The folded keywords of each listed widget.
CREATE TABLE listing_keyword (
    widget_id INTEGER NOT NULL,
    keyword   TEXT    NOT NULL,
    PRIMARY KEY (widget_id, keyword)
) STRICT, WITHOUT ROWID;

CREATE INDEX listing_keyword_widgets ON listing_keyword (keyword, widget_id);

-- The searchable text of each listed widget. The API searches only folded_text. Pages also search page_text:
-- scope/name, the keywords, and folded_text without hyphens if it has any.
CREATE VIEW listed_text AS
SELECT id, folded_text,
    folded_path || char(10) || coalesce(nullif(folded_keywords, '[]'), '')
        || iif(instr(folded_text, '-'), char(10) || replace(folded_text, '-', ''), '') AS page_text
FROM widget LEFT JOIN about ON widget_id = id
WHERE listed;

-- The index stores which trigrams a value contains, but not where (detail = none): positions would triple its size, and
-- search looks for the words in the columns of listing anyway.
CREATE VIRTUAL TABLE listing_text USING fts5 (
    folded_text, page_text, content = 'listed_text', content_rowid = 'id', columnsize = 0, detail = none,
    tokenize = 'trigram case_sensitive 1'
);

-- The JSON of each listed widget in search results (WidgetSummary). It is split around the download count, so that an
-- install does not change it: head is the part before the count, and latest is the JSON of the latest version or null.
-- sdk_range_id is the SDK range of the latest version, and published_at is its publication time. stable is the JSON of
-- the latest version that is not a prerelease, or null if that is the latest version; stable_at is its publication
-- time. Writes render the JSON, because rendering takes longer than finding the widgets on a page. The table is
-- separate from listing: with wide rows, searches that scan listing took 150 instead of 87 ms at 100,000 widgets.
CREATE TABLE summary (
    widget_id    INTEGER PRIMARY KEY,
    head         TEXT NOT NULL,
    latest       TEXT NOT NULL,
    sdk_range_id INTEGER,
    published_at TEXT,
    stable       TEXT,
    stable_at    TEXT
) STRICT;

-- The latest version of each widget, and its latest version that is not a prerelease. A precedence key contains a
-- hyphen only if its version is a prerelease.
CREATE VIEW latest_version AS
SELECT id AS widget_id,
    (
        SELECT id FROM version WHERE widget_id = widget.id AND yanked = 0
        ORDER BY published_at DESC, precedence DESC, version DESC LIMIT 1
    ) AS latest_id,
    (
        SELECT id FROM version WHERE widget_id = widget.id AND yanked = 0 AND instr(precedence, '-') = 0
        ORDER BY published_at DESC, precedence DESC, version DESC LIMIT 1
    ) AS stable_id
FROM widget;

-- The expected rows of the summary table. rtrim() removes only the closing brace: the last value is not an object.
CREATE VIEW rendered_summary AS
SELECT widget.id AS widget_id,
    rtrim(json_object(
        'scope', widget.scope, 'name', widget.name, 'displayName', widget.display_name,
        'description', widget.description, 'icon', widget.icon,
        'isOfficial', json(CASE widget.is_official WHEN 1 THEN 'true' WHEN 0 THEN 'false' ELSE 'null' END)
    ), '}') || ',"downloadCount":' AS head,
    coalesce((SELECT entry FROM version_entry WHERE id = latest.id), 'null') AS latest,
    (SELECT id FROM sdk_range WHERE range = latest.sdk_version) AS sdk_range_id,
    latest.published_at,
    iif(stable.id IS latest.id, NULL,
        coalesce((SELECT entry FROM version_entry WHERE id = stable.id), 'null')) AS stable,
    stable.published_at AS stable_at
FROM widget JOIN latest_version ON latest_version.widget_id = widget.id
LEFT JOIN version AS latest ON latest.id = latest_id
LEFT JOIN version AS stable ON stable.id = stable_id
WHERE widget.listed;

-- The expected rows of the listing table.
CREATE VIEW rendered_listing AS
SELECT widget.id AS widget_id, scope, name, coalesce(is_official, 0) AS official,
    coalesce(download_count, -1) AS downloads, created_at AS created,
    coalesce(latest.published_at, '') AS updated,
    coalesce(latest.permissions, 'null') AS permissions, coalesce(latest.license, '') AS license,
    coalesce(stable.published_at, '') AS stable_updated,
    coalesce(stable.permissions, 'null') AS stable_permissions, coalesce(stable.license, '') AS stable_license,
    folded_name, widget.folded_text, page_text
FROM widget JOIN listed_text USING (id) JOIN latest_version ON latest_version.widget_id = widget.id
LEFT JOIN version AS latest ON latest.id = latest_id
LEFT JOIN version AS stable ON stable.id = stable_id;

-- The expected rows of the listing_keyword table.
CREATE VIEW rendered_keyword AS
SELECT widget_id, value AS keyword
FROM about JOIN widget ON widget.id = widget_id CROSS JOIN json_each(folded_keywords)
WHERE listed;

-- The last public change to each widget that is or was listed, for /api/v1/widgets/changes. Installs do not count as
-- changes, nor do changes to a widget while it is unlisted. Only public changes get a sequence number, so gaps in the
-- sequence do not reveal other changes. A widget that was never listed has no row.
CREATE TABLE change (
    scope    TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    sequence INTEGER NOT NULL UNIQUE,
    -- 0 if the widget was unlisted or deleted.
    listed   INTEGER NOT NULL CHECK (listed IN (0, 1)),
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;

-- content counts the transactions that changed any response, and downloads counts the installs. A response that was
-- rendered at a revision is valid while the revision is current, regardless of which process writes. history is a
-- random name that changes with every restore: the numbers in the change table are comparable only within one history.

CREATE TABLE revision (
    -- On a cluster, a write deliberately violates this CHECK if the catalog has changed since it was read.
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    content   INTEGER NOT NULL,
    downloads INTEGER NOT NULL,
    history   TEXT    NOT NULL
) STRICT;

INSERT INTO revision VALUES (1, 0, 0, lower(hex(randomblob(8))));

-- A ring buffer with the last hundred installs. A cached page that shows none of their widgets stays valid. Otherwise
-- every install would invalidate every cached search: a mix of 97% reads and 3% installs took 769 instead of 517 µs of
-- CPU time per request. The revision column contains the value of revision.downloads after the install.
CREATE TABLE recent_install (
    slot      INTEGER PRIMARY KEY,
    revision  INTEGER NOT NULL,
    widget_id INTEGER NOT NULL
) STRICT;

INSERT INTO recent_install
WITH slots (slot) AS (SELECT 0 UNION ALL SELECT slot + 1 FROM slots WHERE slot < 99)
SELECT slot, 0, 0 FROM slots;

-- Installs have their own trigger, so that they change only numbers and not the text index. Any change other than an
-- increment by one can move a widget backward in the results, so it counts as a content change. An install of a widget
-- whose count is at its limit changes nothing.
CREATE TRIGGER widget_downloaded AFTER UPDATE OF download_count ON widget BEGIN
    UPDATE revision SET downloads = downloads + 1,
        content = content + (new.download_count IS NOT old.download_count
            AND new.download_count IS NOT coalesce(old.download_count, 0) + 1) WHERE id = 1;
    UPDATE listing SET downloads = coalesce(new.download_count, -1) WHERE widget_id = new.id;
    UPDATE recent_install SET (revision, widget_id) = (SELECT downloads, new.id FROM revision WHERE id = 1)
        WHERE slot = (SELECT downloads % 100 FROM revision WHERE id = 1);
END;

-- The installs of each widget by day, and by version. Days are in UTC and are numbered from 1970-01-01. The newest 800
-- days with installs are kept, regardless of their age: with a limit on age, a future day from a wrong clock would
-- delete recent days.
CREATE TABLE install_day (
    widget_id INTEGER NOT NULL REFERENCES widget (id) ON DELETE CASCADE,
    day       INTEGER NOT NULL,
    installs  INTEGER NOT NULL CHECK (installs > 0),
    PRIMARY KEY (widget_id, day)
) STRICT, WITHOUT ROWID;

-- Only installs whose client named a version are counted here.
CREATE TABLE install_version (
    widget_id INTEGER NOT NULL REFERENCES widget (id) ON DELETE CASCADE,
    -- The version number, even if the version was deleted later.
    version   TEXT    NOT NULL,
    installs  INTEGER NOT NULL CHECK (installs > 0),
    PRIMARY KEY (widget_id, version)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER widget_installed AFTER UPDATE OF installed_day ON widget BEGIN
    INSERT INTO install_day VALUES (new.id, new.installed_day, 1)
        ON CONFLICT DO UPDATE SET installs = installs + 1;
    INSERT INTO install_version SELECT new.id, new.installed_version, 1 WHERE new.installed_version <> ''
        ON CONFLICT DO UPDATE SET installs = installs + 1;
    -- Only the first install of each day deletes the counts of expired days.
    DELETE FROM install_day WHERE new.installed_day IS NOT old.installed_day AND widget_id = new.id AND day < (
        SELECT day FROM install_day WHERE widget_id = new.id ORDER BY day DESC LIMIT 1 OFFSET 799);
END;

-- Access tokens for publishing over HTTP. A token is shown once, when it is created; the table contains only its
-- SHA-256. The row of a revoked token is kept, so that its name in the audit table never refers to another token.
CREATE TABLE token (
    -- The eight characters after the token's prefix. They are not secret.
    id            TEXT PRIMARY KEY,
    name          TEXT NOT NULL UNIQUE CHECK (name <> ''),
    sha256_hash   TEXT NOT NULL CHECK (length(sha256_hash) = 64 AND sha256_hash NOT GLOB '*[^0-9a-f]*'),
    -- JSON arrays: the token's permissions, and the scopes and single widgets (scope/name) that they apply to. The
    -- admin permission applies to every widget.
    permissions   TEXT NOT NULL CHECK (json_valid(permissions) AND json_type(permissions) = 'array'),
    scopes        TEXT NOT NULL CHECK (json_valid(scopes) AND json_type(scopes) = 'array'),
    widgets       TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(widgets) AND json_type(widgets) = 'array'),
    created_at    TEXT NOT NULL,
    -- Null if the token does not expire.
    expires_at    TEXT,
    revoked_at    TEXT,
    -- The day of the last use, in UTC.
    last_used_day TEXT,
    -- The secret before the last rotation, while it stays valid: its id, its SHA-256 and its expiry.
    previous_id         TEXT UNIQUE,
    previous_hash       TEXT CHECK (length(previous_hash) = 64),
    previous_expires_at TEXT
) STRICT;

-- Issuers of id tokens, such as CI systems, and the jobs that get short-lived tokens. The row of a removed trust is kept, so
-- that no restore makes it valid again.
CREATE TABLE trust (
    -- The id is a random string.
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL CHECK (name <> ''),
    issuer      TEXT NOT NULL,
    -- A JSON object with the claims that an id token must have, and their values.
    claims      TEXT NOT NULL CHECK (json_valid(claims) AND json_type(claims) = 'object'),
    -- These three columns have the same meaning as in the token table.
    permissions TEXT NOT NULL CHECK (json_valid(permissions) AND json_type(permissions) = 'array'),
    scopes      TEXT NOT NULL CHECK (json_valid(scopes) AND json_type(scopes) = 'array'),
    widgets     TEXT NOT NULL CHECK (json_valid(widgets) AND json_type(widgets) = 'array'),
    -- How long a short-lived token is valid.
    minutes     INTEGER NOT NULL CHECK (minutes > 0),
    -- The issuer's keys as a JSON Web Key Set; null if the service fetches them.
    jwks        TEXT,
    -- PEM certificates for the connection to the issuer.
    ca          TEXT,
    created_at  TEXT NOT NULL,
    removed_at  TEXT
) STRICT;

CREATE UNIQUE INDEX trust_name ON trust (name) WHERE removed_at IS NULL;

-- Short tokens, which the service issues for id tokens. A row is kept until both tokens have expired, because an id
-- token is accepted only once.
CREATE TABLE short_token (
    id            TEXT PRIMARY KEY,
    sha256_hash   TEXT NOT NULL CHECK (length(sha256_hash) = 64),
    trust_id      TEXT NOT NULL,
    subject       TEXT NOT NULL,
    -- A JSON object with all claims in the id token.
    claims        TEXT NOT NULL,
    created_at    TEXT NOT NULL,
    expires_at    TEXT NOT NULL,
    -- The SHA-256 of the signed part of the id token, and the time when the service begins to reject the id token as
    -- expired.
    id_token_hash TEXT NOT NULL UNIQUE,
    id_token_end  TEXT NOT NULL
) STRICT;

-- The audit log: who changed what. Entries are written in the same transaction as the change. Installs are not
-- recorded. The table is append-only.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      TEXT    NOT NULL,
    -- If kind is local, actor is the operating-system user who ran a command; if token, the name of a token; if trust,
    -- the name of a trust and the subject of the id token.
    kind    TEXT    NOT NULL CHECK (kind IN ('local', 'token', 'trust')),
    actor   TEXT    NOT NULL,
    action  TEXT    NOT NULL,
    -- The target of the change; null if the whole catalog, a token or a trust was changed.
    scope   TEXT,
    name    TEXT,
    version TEXT,
    -- JSON objects with the affected values; null if the target did not exist before or does not exist afterwards.
    before  TEXT CHECK (before IS NULL OR json_valid(before)),
    after   TEXT CHECK (after IS NULL OR json_valid(after))
) STRICT;

CREATE INDEX audit_widget ON audit (scope, name, id) WHERE scope IS NOT NULL;

CREATE TRIGGER audit_row_changed BEFORE UPDATE ON audit BEGIN
    SELECT RAISE (ABORT, 'audit is append-only');
END;

CREATE TRIGGER audit_row_removed BEFORE DELETE ON audit BEGIN
    SELECT RAISE (ABORT, 'audit is append-only');
END;

-- INSERT OR REPLACE deletes the old row without running the trigger above.
CREATE TRIGGER audit_row_replaced BEFORE INSERT ON audit
WHEN EXISTS (SELECT 1 FROM audit WHERE id = new.id) BEGIN
    SELECT RAISE (ABORT, 'audit is append-only');
END;

PRAGMA user_version = 7;

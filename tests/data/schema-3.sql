-- The schema of a catalog. The tables widget and version hold the catalog; token holds the access tokens and
-- audit the record of changes; all others are derived from the first two or record where widgets were copied
-- from and which versions were deleted.
--
-- Timestamps are UTC text in the form of JavaScript's toISOString, so that text order is time order.
-- In the CHECKs, '+0 days' normalises the date, so 30 February differs from its text and fails.

-- "Wcat" distinguishes our files from other SQLite files.
PRAGMA application_id = 0x57636174;

CREATE TABLE widget (
    -- The id of a deleted widget is not used again.
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    scope          TEXT    NOT NULL CHECK (scope <> '' AND instr(scope, '/') = 0),
    name           TEXT    NOT NULL CHECK (name <> '' AND instr(name, '/') = 0),
    display_name   TEXT    NOT NULL CHECK (display_name <> ''),
    description    TEXT,
    icon           TEXT,
    is_official    INTEGER CHECK (is_official IN (0, 1)),
    download_count INTEGER CHECK (download_count >= 0),
    created_at     TEXT    NOT NULL CHECK (strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '+0 days') IS created_at),
    listed         INTEGER NOT NULL CHECK (listed IN (0, 1)),
    -- For search, folded by fold() in catalog/text.py: display_name, and display_name with description.
    folded_name    TEXT    NOT NULL,
    folded_text    TEXT    NOT NULL,
    UNIQUE (scope, name)
) STRICT;

CREATE TABLE version (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    widget_id           INTEGER NOT NULL REFERENCES widget (id) ON DELETE CASCADE,
    version             TEXT    NOT NULL CHECK (version <> ''),
    -- A key whose text order is the precedence of SemVer (catalog/semver_ranges.py).
    precedence          TEXT    NOT NULL,
    bundle_url          TEXT    NOT NULL CHECK (bundle_url LIKE 'http://_%' OR bundle_url LIKE 'https://_%'),
    bundle_size         INTEGER NOT NULL CHECK (bundle_size >= 0),
    sha256_hash         TEXT    NOT NULL CHECK (length(sha256_hash) = 64 AND sha256_hash NOT GLOB '*[^0-9a-f]*'),
    published_at        TEXT    NOT NULL CHECK (strftime('%Y-%m-%dT%H:%M:%fZ', published_at, '+0 days') IS published_at),
    yanked              INTEGER NOT NULL CHECK (yanked IN (0, 1)),
    yanked_reason       TEXT,
    deprecation_message TEXT,
    release_notes       TEXT,
    -- If one of these three is null, the widget's own value is used.
    display_name        TEXT CHECK (display_name <> ''),
    description         TEXT,
    icon                TEXT,
    min_w               INTEGER NOT NULL CHECK (min_w >= 0),
    min_h               INTEGER NOT NULL CHECK (min_h >= 0),
    max_w               INTEGER NOT NULL CHECK (max_w >= min_w),
    max_h               INTEGER NOT NULL CHECK (max_h >= min_h),
    sdk_version         TEXT    NOT NULL,
    config_version      ANY CHECK (typeof(config_version) IN ('integer', 'real', 'null')),
    permissions         TEXT    NOT NULL CHECK (json_valid(permissions) AND json_type(permissions) = 'array'),
    license             TEXT,
    -- The URL path of a held bundle, which this service serves itself; null if it holds none.
    bundle_path         TEXT CHECK (bundle_path LIKE '/_%'),
    UNIQUE (widget_id, version)
) STRICT;

CREATE INDEX version_newest ON version (widget_id, published_at DESC, precedence DESC, version DESC);
-- Covers sdk_version and yanked, so that the newest version for an SDK is found in the index alone.
CREATE INDEX version_newest_available
    ON version (widget_id, published_at DESC, precedence DESC, version DESC, sdk_version, yanked)
    WHERE yanked = 0;

-- For the feed of new releases.
CREATE INDEX version_published ON version (published_at) WHERE yanked = 0;

-- The JSON of each version as the API returns it (VersionEntry): fields that the version does not have
-- are taken from the widget. The URL of a held bundle is only a path, so that the text is the same for
-- every host name; with_bundle_urls() in catalog/store/json_sql.py inserts the host.
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
    'sdkVersion', version.sdk_version, 'configVersion', version.config_version,
    'permissions', json(version.permissions), 'license', version.license
) AS entry
FROM version CROSS JOIN widget ON widget.id = version.widget_id;

-- The distinct npm ranges in version.sdk_version, with the SDKs that each admits as intervals of keys: low
-- is included, high is not. The keys sort like versions (catalog/store/sdk_intervals.py). A range that
-- admits no SDK has no interval. The column intervals is JSON, [[low, high], ...], so that one statement
-- adds a range.
CREATE TABLE sdk_range (
    id        INTEGER PRIMARY KEY,
    range     TEXT    NOT NULL UNIQUE,
    intervals TEXT    NOT NULL CHECK (json_valid(intervals))
) STRICT;

-- The same intervals as rows, for search.
CREATE TABLE sdk_interval (
    range_id INTEGER NOT NULL REFERENCES sdk_range (id) ON DELETE CASCADE,
    low      TEXT    NOT NULL,
    high     TEXT    NOT NULL CHECK (low < high),
    PRIMARY KEY (range_id, low)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER sdk_range_added AFTER INSERT ON sdk_range BEGIN
    INSERT INTO sdk_interval
        SELECT new.id, json_extract(value, '$[0]'), json_extract(value, '$[1]')
        FROM json_each(new.intervals);
END;

-- Not a foreign key, which SQLite checks only in connections that enable foreign keys. The trigger
-- version_added checks the ranges of new versions.
CREATE TRIGGER version_changed_without_range BEFORE UPDATE OF sdk_version ON version
WHEN NOT EXISTS (SELECT 1 FROM sdk_range WHERE range = new.sdk_version) BEGIN
    SELECT RAISE (ABORT, 'version.sdk_version is not in sdk_range');
END;

-- Where a widget was copied from, for the next refresh of the mirror. No response contains it.
CREATE TABLE mirrored (
    widget_id      INTEGER PRIMARY KEY REFERENCES widget (id) ON DELETE CASCADE,
    -- The base URL of the upstream.
    source         TEXT    NOT NULL,
    -- The ETag of the widget's detail at the upstream.
    etag           TEXT,
    -- The downloadCount at the upstream, at the last refresh.
    upstream_count INTEGER CHECK (upstream_count >= 0)
) STRICT;

-- How far the changes of an upstream were read: the token for its /api/v1/widgets/changes. Every copy from
-- there is at least as recent, or has no etag and is fetched by the next refresh.
CREATE TABLE mirror_position (
    source TEXT NOT NULL,
    -- The scopes that are mirrored, sorted, as a JSON array; empty for all of them.
    scopes TEXT NOT NULL CHECK (json_valid(scopes)),
    token  TEXT NOT NULL,
    PRIMARY KEY (source, scopes)
) STRICT, WITHOUT ROWID;

-- The hashes of deleted versions. Clients cache a bundle for a year without revalidation, so flask publish
-- must not publish the same version with other bytes. Triggers fill the table on every delete.
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

-- The tables that search reads, with one row for each listed widget: listing to filter and sort by,
-- listing_text to find words in, summary for the JSON. Only triggers write them.

CREATE TABLE listing (
    widget_id   INTEGER PRIMARY KEY,
    scope       TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    -- 0 if is_official is null.
    official    INTEGER NOT NULL,
    -- -1 if download_count is null, so that it sorts last.
    downloads   INTEGER NOT NULL,
    created     TEXT    NOT NULL,
    -- published_at of the latest version; empty if there is none, so that it sorts last.
    updated     TEXT    NOT NULL,
    -- Of the latest version, for the filters of the browse page; '[]' and '' if it has none.
    permissions TEXT    NOT NULL,
    license     TEXT    NOT NULL,
    folded_name TEXT    NOT NULL,
    folded_text TEXT    NOT NULL,
    -- In sdk_support; null from a change of the versions to the end of the transaction.
    support_id  INTEGER
) STRICT;

-- The indexes cover official and support_id, so that a search skips other widgets in the index alone.
CREATE INDEX listing_order ON listing (downloads DESC, scope, name, official, support_id);
CREATE INDEX listing_order_in_scope ON listing (scope, downloads DESC, name, official, support_id);
-- The other orders that a search may have, in indexes that installs do not change.
CREATE INDEX listing_updated ON listing (updated DESC, scope, name, official, support_id);
CREATE INDEX listing_created ON listing (created DESC, scope, name, official, support_id);
CREATE INDEX listing_name ON listing (folded_name, scope, name, official, support_id);
-- To count official widgets, in an index that installs do not change.
CREATE INDEX listing_official ON listing (official, support_id);
-- Covers all filters of the browse page, to count the widgets for each of their values.
CREATE INDEX listing_filters ON listing (permissions, license, scope, official, support_id);
-- To find a widget by the name that someone typed.
CREATE INDEX listing_typed_name ON listing (name COLLATE NOCASE);
CREATE INDEX listing_without_support ON listing (widget_id) WHERE support_id IS NULL;

-- The distinct sets of SDKs that listed widgets run on: a set is the union of the ranges of all available
-- versions of a widget, as intervals. A search with compatible=true decides once for each set. Widgets
-- have many combinations of ranges but few unions: 142 among the 10,000 widgets of the benchmark.
-- Triggers set listing.support_id to null when versions change, and Database.write() ends with one
-- statement that sets it: in a trigger, the union takes about five times as long. While it
-- is null, search reads the versions.
CREATE TABLE sdk_support (
    id        INTEGER PRIMARY KEY,
    -- As in sdk_range.
    intervals TEXT    NOT NULL UNIQUE,
    -- The number of listed widgets with this set, so that no search counts them.
    widgets   INTEGER NOT NULL
) STRICT;

CREATE TABLE sdk_support_interval (
    support_id INTEGER NOT NULL,
    low        TEXT    NOT NULL,
    high       TEXT    NOT NULL,
    PRIMARY KEY (support_id, low)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER support_added AFTER INSERT ON sdk_support BEGIN
    INSERT INTO sdk_support_interval
        SELECT new.id, json_extract(value, '$[0]'), json_extract(value, '$[1]')
        FROM json_each(new.intervals);
END;

CREATE TRIGGER support_removed AFTER DELETE ON sdk_support BEGIN
    DELETE FROM sdk_support_interval WHERE support_id = old.id;
END;

CREATE TRIGGER support_listing_added AFTER INSERT ON listing WHEN new.support_id IS NOT NULL BEGIN
    UPDATE sdk_support SET widgets = widgets + 1 WHERE id = new.support_id;
END;

CREATE TRIGGER support_listing_removed AFTER DELETE ON listing WHEN old.support_id IS NOT NULL BEGIN
    UPDATE sdk_support SET widgets = widgets - 1 WHERE id = old.support_id;
    DELETE FROM sdk_support WHERE id = old.support_id AND widgets = 0;
END;

CREATE TRIGGER support_listing_changed AFTER UPDATE OF support_id ON listing
WHEN old.support_id IS NOT new.support_id BEGIN
    UPDATE sdk_support SET widgets = widgets + 1 WHERE id = new.support_id;
    UPDATE sdk_support SET widgets = widgets - 1 WHERE id = old.support_id;
    DELETE FROM sdk_support WHERE id = old.support_id AND widgets = 0;
END;

CREATE VIEW listed_text AS SELECT id, folded_text FROM widget WHERE listed;

-- Stores which trigrams a text contains, but not where (detail = none): positions would triple its size,
-- and search looks for the words in listing.folded_text anyway.
CREATE VIRTUAL TABLE listing_text USING fts5 (
    folded_text, content = 'listed_text', content_rowid = 'id', columnsize = 0, detail = none,
    tokenize = 'trigram case_sensitive 1'
);

-- The JSON of each listed widget in search results (WidgetSummary), in two parts around the download
-- count, so that an install does not change it: head, and latest, the JSON of the latest version or null.
-- sdk_range_id is the range of the latest version.
-- Rendering takes longer than finding the widgets of a page, so writes render, not searches.
-- It is not part of listing: with wide rows, searches that scan it took 150 instead of 87 ms at 100,000
-- widgets.
CREATE TABLE summary (
    widget_id    INTEGER PRIMARY KEY,
    head         TEXT NOT NULL,
    latest       TEXT NOT NULL,
    sdk_range_id INTEGER
) STRICT;

-- The rows that summary must have. rtrim() removes only the closing brace: the last value is no object.
CREATE VIEW rendered_summary AS
SELECT widget.id AS widget_id,
    rtrim(json_object(
        'scope', widget.scope, 'name', widget.name, 'displayName', widget.display_name,
        'description', widget.description, 'icon', widget.icon,
        'isOfficial', json(CASE widget.is_official WHEN 1 THEN 'true' WHEN 0 THEN 'false' ELSE 'null' END)
    ), '}') || ',"downloadCount":' AS head,
    coalesce((
        SELECT entry FROM version_entry WHERE widget_id = widget.id AND yanked = 0
        ORDER BY published_at DESC, precedence DESC, version DESC LIMIT 1
    ), 'null') AS latest,
    (
        SELECT sdk_range.id FROM version CROSS JOIN sdk_range ON range = sdk_version
        WHERE widget_id = widget.id AND yanked = 0
        ORDER BY published_at DESC, precedence DESC, version DESC LIMIT 1
    ) AS sdk_range_id
FROM widget WHERE widget.listed;

-- The rows that listing must have, without support_id.
CREATE VIEW rendered_listing AS
SELECT widget.id AS widget_id, scope, name, coalesce(is_official, 0) AS official,
    coalesce(download_count, -1) AS downloads, created_at AS created,
    coalesce(published_at, '') AS updated,
    coalesce(permissions, '[]') AS permissions, coalesce(license, '') AS license,
    folded_name, folded_text
FROM widget LEFT JOIN version ON version.id = (
    SELECT id FROM version WHERE widget_id = widget.id AND yanked = 0
    ORDER BY published_at DESC, precedence DESC, version DESC LIMIT 1
)
WHERE listed;

-- The intervals that support_id must have. The intervals of all ranges are merged where they overlap or
-- touch: one that begins after the end of all before it remains.
CREATE VIEW rendered_support AS
SELECT id AS widget_id, (
    SELECT json_group_array(json_array(low, high)) FROM (
        SELECT min(low) AS low, max(high) AS high FROM (
            SELECT low, high, sum(is_first) OVER (ORDER BY low, high ROWS UNBOUNDED PRECEDING) AS number
            FROM (
                SELECT low, high, coalesce(low > max(high) OVER (
                    ORDER BY low, high ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ), 1) AS is_first
                FROM sdk_interval WHERE range_id IN (
                    SELECT sdk_range.id FROM version CROSS JOIN sdk_range ON range = sdk_version
                    WHERE widget_id = widget.id AND yanked = 0
                )
            )
        )
        GROUP BY number ORDER BY number
    )
) AS intervals
FROM widget WHERE listed;

CREATE TRIGGER support_rendered INSTEAD OF INSERT ON rendered_support BEGIN
    INSERT INTO sdk_support (intervals, widgets) VALUES (new.intervals, 0) ON CONFLICT DO NOTHING;
    UPDATE listing SET support_id = (SELECT id FROM sdk_support WHERE intervals = new.intervals)
        WHERE widget_id = new.widget_id;
END;

CREATE TRIGGER summary_widget_added AFTER INSERT ON widget WHEN new.listed BEGIN
    INSERT INTO summary SELECT * FROM rendered_summary WHERE widget_id = new.id;
END;

CREATE TRIGGER summary_widget_removed AFTER DELETE ON widget WHEN old.listed BEGIN
    DELETE FROM summary WHERE widget_id = old.id;
END;

CREATE TRIGGER summary_widget_changed AFTER UPDATE OF
    id, scope, name, display_name, description, icon, is_official, listed
ON widget BEGIN
    DELETE FROM summary WHERE widget_id = old.id;
    INSERT INTO summary SELECT * FROM rendered_summary WHERE widget_id = new.id;
END;

CREATE TRIGGER summary_version_removed AFTER DELETE ON version BEGIN
    UPDATE summary SET latest = rendered.latest, sdk_range_id = rendered.sdk_range_id
    FROM rendered_summary AS rendered
    WHERE summary.widget_id = old.widget_id AND rendered.widget_id = old.widget_id;
END;

CREATE TRIGGER summary_version_changed AFTER UPDATE ON version BEGIN
    UPDATE summary SET latest = rendered.latest, sdk_range_id = rendered.sdk_range_id
    FROM rendered_summary AS rendered
    WHERE summary.widget_id IN (old.widget_id, new.widget_id)
        AND rendered.widget_id = summary.widget_id;
END;

CREATE TRIGGER listing_version_removed AFTER DELETE ON version WHEN old.yanked = 0 BEGIN
    UPDATE listing
    SET updated = rendered.updated, permissions = rendered.permissions, license = rendered.license,
        support_id = NULL
    FROM rendered_listing AS rendered
    WHERE listing.widget_id = old.widget_id AND rendered.widget_id = old.widget_id;
END;

-- A separate trigger, because many changes of a version do not change the listing.
CREATE TRIGGER listing_version_changed AFTER UPDATE OF
    widget_id, published_at, yanked, sdk_version, permissions, license
ON version
WHEN (old.widget_id, old.published_at, old.yanked, old.sdk_version, old.permissions, old.license)
    IS NOT (new.widget_id, new.published_at, new.yanked, new.sdk_version, new.permissions, new.license)
BEGIN
    UPDATE listing
    SET updated = rendered.updated, permissions = rendered.permissions, license = rendered.license,
        support_id = NULL
    FROM rendered_listing AS rendered
    WHERE listing.widget_id IN (old.widget_id, new.widget_id)
        AND rendered.widget_id = listing.widget_id;
END;

CREATE TRIGGER widget_added AFTER INSERT ON widget WHEN new.listed BEGIN
    INSERT INTO listing SELECT *, NULL FROM rendered_listing WHERE widget_id = new.id;
    INSERT INTO listing_text (rowid, folded_text) VALUES (new.id, new.folded_text);
END;

CREATE TRIGGER widget_removed AFTER DELETE ON widget WHEN old.listed BEGIN
    DELETE FROM listing WHERE widget_id = old.id;
    INSERT INTO listing_text (listing_text, rowid, folded_text) VALUES ('delete', old.id, old.folded_text);
END;

CREATE TRIGGER widget_changed AFTER UPDATE OF
    id, scope, name, is_official, created_at, listed, folded_name, folded_text
ON widget BEGIN
    DELETE FROM listing WHERE widget_id = old.id AND (new.id <> old.id OR NOT new.listed);
    INSERT INTO listing_text (listing_text, rowid, folded_text)
        SELECT 'delete', old.id, old.folded_text WHERE old.listed;
    INSERT INTO listing SELECT *, NULL FROM rendered_listing WHERE widget_id = new.id
        ON CONFLICT DO UPDATE SET
            scope = excluded.scope, name = excluded.name, official = excluded.official,
            created = excluded.created, folded_name = excluded.folded_name,
            folded_text = excluded.folded_text;
    INSERT INTO listing_text (rowid, folded_text)
        SELECT new.id, new.folded_text WHERE new.listed;
END;

-- Counts the changes of the catalog (content) and of its counters (downloads). A response that was rendered
-- at a revision is valid while the revision is current, whichever process writes. The column history is a
-- random name, new after every restore: the numbers in change are comparable within one history only.

CREATE TABLE revision (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    content   INTEGER NOT NULL,
    downloads INTEGER NOT NULL,
    history   TEXT    NOT NULL
) STRICT;

INSERT INTO revision VALUES (1, 0, 0, lower(hex(randomblob(8))));

-- The last public change of each widget that is or was listed, for /api/v1/widgets/changes. Installs are no
-- change, nor is anything about a widget while it is unlisted: sequence numbers public changes only, so its
-- gaps tell nothing else. A widget that was never listed has no row. Only triggers write the table: those
-- below, and those of revision for versions, since three triggers more made an import 9 % slower.
CREATE TABLE change (
    widget_id INTEGER PRIMARY KEY,
    sequence  INTEGER NOT NULL UNIQUE,
    -- As in widget; 0 if the widget was deleted.
    listed    INTEGER NOT NULL CHECK (listed IN (0, 1)),
    -- Of a deleted widget; otherwise they are null, and those of the widget count.
    scope     TEXT,
    name      TEXT,
    CHECK ((scope IS NULL) = (name IS NULL))
) STRICT;

CREATE UNIQUE INDEX change_deleted ON change (scope, name) WHERE scope IS NOT NULL;

-- A new widget may have the name of a deleted one. That row is deleted last, since it may have the highest
-- number, which must not be used again.
CREATE TRIGGER change_widget_added AFTER INSERT ON widget WHEN new.listed BEGIN
    INSERT INTO change (widget_id, sequence, listed)
        SELECT new.id, coalesce(max(sequence), 0) + 1, 1 FROM change;
    DELETE FROM change WHERE scope = new.scope AND name = new.name;
END;

CREATE TRIGGER change_widget_removed AFTER DELETE ON widget BEGIN
    UPDATE change
    SET listed = 0, scope = old.scope, name = old.name,
        sequence = iif(old.listed, (SELECT max(sequence) + 1 FROM change), sequence)
    WHERE widget_id = old.id;
END;

-- The values are compared, because an import sets every column, also to the same value.
CREATE TRIGGER change_widget_changed AFTER UPDATE OF
    display_name, description, icon, is_official, created_at, listed
ON widget WHEN (old.listed OR new.listed)
    AND (old.id, old.scope, old.name) IS (new.id, new.scope, new.name)
    AND (old.display_name, old.description, old.icon, old.is_official, old.created_at, old.listed)
        IS NOT (new.display_name, new.description, new.icon, new.is_official, new.created_at, new.listed)
BEGIN
    INSERT INTO change (widget_id, sequence, listed)
        SELECT new.id, coalesce(max(sequence), 0) + 1, new.listed FROM change WHERE true
        ON CONFLICT (widget_id) DO UPDATE SET sequence = excluded.sequence, listed = excluded.listed;
    DELETE FROM change WHERE scope = new.scope AND name = new.name;
END;

-- No command renames a widget. After a rename no row would say that the old name is gone, so a new history
-- begins, in which the old name does not occur.
CREATE TRIGGER change_widget_renamed AFTER UPDATE OF id, scope, name ON widget
WHEN (old.id, old.scope, old.name) IS NOT (new.id, new.scope, new.name) BEGIN
    UPDATE revision SET history = lower(hex(randomblob(8)));
    DELETE FROM change
        WHERE widget_id IN (old.id, new.id) OR new.listed AND scope = new.scope AND name = new.name;
    INSERT INTO change (widget_id, sequence, listed)
        SELECT new.id, coalesce(max(sequence), 0) + 1, 1 FROM change HAVING new.listed;
END;

CREATE TRIGGER content_widget_added AFTER INSERT ON widget BEGIN
    UPDATE revision SET content = content + 1;
END;

CREATE TRIGGER content_widget_removed AFTER DELETE ON widget BEGIN
    UPDATE revision SET content = content + 1;
END;

CREATE TRIGGER content_widget_changed AFTER UPDATE OF
    id, scope, name, display_name, description, icon, is_official, created_at, listed
ON widget BEGIN
    UPDATE revision SET content = content + 1;
END;

-- An import adds many versions to widgets that it lists afterwards, and each trigger costs, even if its condition
-- is false. So only one is for all versions, and one for those of listed widgets: with four, an import took
-- 6 % longer.
CREATE TRIGGER version_added AFTER INSERT ON version BEGIN
    SELECT RAISE (ABORT, 'version.sdk_version is not in sdk_range')
        WHERE NOT EXISTS (SELECT 1 FROM sdk_range WHERE range = new.sdk_version);
    UPDATE revision SET content = content + 1;
END;

CREATE TRIGGER listed_version_added AFTER INSERT ON version
WHEN EXISTS (SELECT 1 FROM summary WHERE widget_id = new.widget_id) BEGIN
    -- Only for the latest version.
    UPDATE summary
    SET latest = (SELECT entry FROM version_entry WHERE id = new.id),
        sdk_range_id = (SELECT id FROM sdk_range WHERE range = new.sdk_version)
    WHERE widget_id = new.widget_id AND new.id = (
        SELECT id FROM version WHERE widget_id = new.widget_id AND yanked = 0
        ORDER BY published_at DESC, precedence DESC, version DESC LIMIT 1
    );
    UPDATE listing
    SET updated = rendered.updated, permissions = rendered.permissions, license = rendered.license,
        support_id = NULL
    FROM rendered_listing AS rendered
    WHERE listing.widget_id = new.widget_id AND rendered.widget_id = new.widget_id AND new.yanked = 0;
    UPDATE change SET sequence = (SELECT max(sequence) + 1 FROM change)
        WHERE widget_id = new.widget_id AND listed;
END;

CREATE TRIGGER content_version_removed AFTER DELETE ON version BEGIN
    UPDATE revision SET content = content + 1;
    UPDATE change SET sequence = (SELECT max(sequence) + 1 FROM change)
        WHERE widget_id = old.widget_id AND listed;
END;

CREATE TRIGGER content_version_changed AFTER UPDATE ON version BEGIN
    UPDATE revision SET content = content + 1;
    UPDATE change SET sequence = (SELECT max(sequence) + 1 FROM change)
        WHERE widget_id = new.widget_id AND listed;
    UPDATE change SET sequence = (SELECT max(sequence) + 1 FROM change)
        WHERE widget_id = old.widget_id AND listed AND old.widget_id <> new.widget_id;
END;

-- The last hundred installs, a ring buffer. A cached page that shows none of their widgets stays valid;
-- otherwise every install would invalidate every cached search, and a mix of 97 % reads and 3 % installs
-- took 769 instead of 517 µs of CPU time per request. The column revision is revision.downloads after
-- the install.
CREATE TABLE recent_install (
    slot      INTEGER PRIMARY KEY,
    revision  INTEGER NOT NULL,
    widget_id INTEGER NOT NULL
) STRICT;

INSERT INTO recent_install
WITH slots (slot) AS (SELECT 0 UNION ALL SELECT slot + 1 FROM slots WHERE slot < 99)
SELECT slot, 0, 0 FROM slots;

-- A separate trigger, so that an install changes only numbers and not the text index. A change other than
-- plus one can move a widget backward in the results, so it counts as a change of content.
CREATE TRIGGER widget_downloaded AFTER UPDATE OF download_count ON widget BEGIN
    UPDATE revision SET downloads = downloads + 1,
        content = content + (new.download_count IS NOT coalesce(old.download_count, 0) + 1);
    UPDATE listing SET downloads = coalesce(new.download_count, -1) WHERE widget_id = new.id;
    UPDATE recent_install SET revision = r.downloads, widget_id = new.id FROM revision AS r
        WHERE slot = r.downloads % 100;
END;

-- Access tokens for publishing over HTTP. A token is shown once, when it is created; here is only its SHA-256.
-- A revoked token stays, so that its name in audit never means another one.
CREATE TABLE token (
    -- The part of the token after its prefix. It is no secret.
    id            TEXT PRIMARY KEY,
    name          TEXT NOT NULL UNIQUE CHECK (name <> ''),
    sha256_hash   TEXT NOT NULL CHECK (length(sha256_hash) = 64 AND sha256_hash NOT GLOB '*[^0-9a-f]*'),
    -- JSON arrays. A token with the permission admin is for every scope.
    scopes        TEXT NOT NULL CHECK (json_valid(scopes) AND json_type(scopes) = 'array'),
    permissions   TEXT NOT NULL CHECK (json_valid(permissions) AND json_type(permissions) = 'array'),
    created_at    TEXT NOT NULL,
    -- Null if the token does not expire.
    expires_at    TEXT,
    revoked_at    TEXT,
    -- The day of the last use, in UTC.
    last_used_day TEXT
) STRICT;

-- A write to a cluster waits until the local file has its revision: a new token is valid there at once, and a
-- revoked one is refused. The day of the last use is no such change.
CREATE TRIGGER content_token_added AFTER INSERT ON token BEGIN
    UPDATE revision SET content = content + 1;
END;

CREATE TRIGGER content_token_changed AFTER UPDATE OF id, revoked_at ON token BEGIN
    UPDATE revision SET content = content + 1;
END;

-- Who changed what, in the same transaction as the change. Installs are not recorded. The table is append-only.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      TEXT    NOT NULL,
    -- local: actor is the operating-system user of a command; token: the name of a token.
    kind    TEXT    NOT NULL CHECK (kind IN ('local', 'token')),
    actor   TEXT    NOT NULL,
    action  TEXT    NOT NULL,
    -- What was changed; null for a change of the whole catalog, or of a token.
    scope   TEXT,
    name    TEXT,
    version TEXT,
    -- JSON objects of what the change is about; null for what does not exist.
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

-- INSERT OR REPLACE would delete a row without the trigger above.
CREATE TRIGGER audit_row_replaced BEFORE INSERT ON audit
WHEN EXISTS (SELECT 1 FROM audit WHERE id = new.id) BEGIN
    SELECT RAISE (ABORT, 'audit is append-only');
END;

PRAGMA user_version = 3;

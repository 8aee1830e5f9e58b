-- The whole catalog: two tables that hold it, one of where it came from, and an index of what
-- search may show.
-- Times are UTC text in the form of JavaScript's toISOString, so that text order is time order;
-- adding no days to one makes SQLite count it out, so that 30 February is not itself.

PRAGMA application_id = 0x57636174;  -- "Wcat": tells our files from other SQLite files

CREATE TABLE widget (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,  -- never that of a widget that is gone
    scope          TEXT    NOT NULL CHECK (scope <> '' AND instr(scope, '/') = 0),
    name           TEXT    NOT NULL CHECK (name <> '' AND instr(name, '/') = 0),
    display_name   TEXT    NOT NULL CHECK (display_name <> ''),
    description    TEXT,
    icon           TEXT,
    is_official    INTEGER CHECK (is_official IN (0, 1)),
    download_count INTEGER CHECK (download_count >= 0),
    created_at     TEXT    NOT NULL CHECK (strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '+0 days') IS created_at),
    listed         INTEGER NOT NULL CHECK (listed IN (0, 1)),
    -- display_name, and display_name with description, as search compares them (catalog/folding.py)
    folded_name    TEXT    NOT NULL,
    folded_text    TEXT    NOT NULL,
    UNIQUE (scope, name)
) STRICT;

CREATE TABLE version (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    widget_id           INTEGER NOT NULL REFERENCES widget (id) ON DELETE CASCADE,
    version             TEXT    NOT NULL CHECK (version <> ''),
    precedence          TEXT    NOT NULL,  -- sorts as SemVer does (catalog/semver_ranges.py)
    bundle_url          TEXT    NOT NULL CHECK (bundle_url LIKE 'http://_%' OR bundle_url LIKE 'https://_%'),
    bundle_size         INTEGER NOT NULL CHECK (bundle_size >= 0),
    sha256_hash         TEXT    NOT NULL CHECK (length(sha256_hash) = 64 AND sha256_hash NOT GLOB '*[^0-9a-f]*'),
    published_at        TEXT    NOT NULL CHECK (strftime('%Y-%m-%dT%H:%M:%fZ', published_at, '+0 days') IS published_at),
    yanked              INTEGER NOT NULL CHECK (yanked IN (0, 1)),
    yanked_reason       TEXT,
    deprecation_message TEXT,
    release_notes       TEXT,
    display_name        TEXT CHECK (display_name <> ''),  -- null: the widget's own, as in the next two
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
    -- where this service serves the bundle that it holds, as in a URL; null: bundle_url alone has it
    bundle_path         TEXT CHECK (bundle_path LIKE '/_%'),
    UNIQUE (widget_id, version)
) STRICT;

CREATE INDEX version_newest ON version (widget_id, published_at DESC, precedence DESC, version DESC);
CREATE INDEX version_newest_offered ON version (widget_id, published_at DESC, precedence DESC, version DESC)
    WHERE yanked = 0;

-- Where a widget was copied from, for the next refresh; no answer shows it.
CREATE TABLE mirrored (
    widget_id      INTEGER PRIMARY KEY REFERENCES widget (id) ON DELETE CASCADE,
    source         TEXT    NOT NULL,  -- the base URL of the upstream
    etag           TEXT,              -- of its detail there
    upstream_count INTEGER CHECK (upstream_count >= 0)  -- its downloadCount there, when last seen
) STRICT;

-- What search reads: a narrow row for each listed widget, and the trigrams of its text.
-- Triggers alone write them, so that no write can forget to.

CREATE TABLE listing (
    widget_id   INTEGER PRIMARY KEY,
    scope       TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    official    INTEGER NOT NULL,  -- 0 also where nothing was said
    downloads   INTEGER NOT NULL,  -- -1 where nothing was said, to sort last
    folded_name TEXT    NOT NULL,
    folded_text TEXT    NOT NULL
) STRICT;

CREATE INDEX listing_order ON listing (downloads DESC, scope, name, official);
CREATE INDEX listing_order_in_scope ON listing (scope, downloads DESC, name, official);
CREATE INDEX listing_official ON listing (official);  -- to count them; without the counter, which changes often

CREATE VIEW listed_text AS SELECT id, folded_text FROM widget WHERE listed;

-- Which trigrams a text has, not where: that would be three times as much, and a text that has those
-- of a word is at hand to be searched for it.
CREATE VIRTUAL TABLE listing_text USING fts5 (
    folded_text, content = 'listed_text', content_rowid = 'id', columnsize = 0, detail = none,
    tokenize = 'trigram case_sensitive 1'
);

CREATE TRIGGER widget_added AFTER INSERT ON widget WHEN new.listed BEGIN
    INSERT INTO listing VALUES (
        new.id, new.scope, new.name, coalesce(new.is_official, 0), coalesce(new.download_count, -1),
        new.folded_name, new.folded_text
    );
    INSERT INTO listing_text (rowid, folded_text) VALUES (new.id, new.folded_text);
END;

CREATE TRIGGER widget_removed AFTER DELETE ON widget WHEN old.listed BEGIN
    DELETE FROM listing WHERE widget_id = old.id;
    INSERT INTO listing_text (listing_text, rowid, folded_text) VALUES ('delete', old.id, old.folded_text);
END;

CREATE TRIGGER widget_changed AFTER UPDATE OF id, scope, name, is_official, listed, folded_name, folded_text
ON widget BEGIN
    DELETE FROM listing WHERE widget_id = old.id;
    INSERT INTO listing_text (listing_text, rowid, folded_text)
        SELECT 'delete', old.id, old.folded_text WHERE old.listed;
    INSERT INTO listing
        SELECT new.id, new.scope, new.name, coalesce(new.is_official, 0), coalesce(new.download_count, -1),
               new.folded_name, new.folded_text
        WHERE new.listed;
    INSERT INTO listing_text (rowid, folded_text)
        SELECT new.id, new.folded_text WHERE new.listed;
END;

-- How often the catalog and its counters have changed. An answer that was made at a revision is right
-- for as long as the revision stays, whichever process writes.

CREATE TABLE revision (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    content   INTEGER NOT NULL,
    downloads INTEGER NOT NULL
) STRICT;

INSERT INTO revision VALUES (1, 0, 0);

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

CREATE TRIGGER content_version_added AFTER INSERT ON version BEGIN
    UPDATE revision SET content = content + 1;
END;

CREATE TRIGGER content_version_removed AFTER DELETE ON version BEGIN
    UPDATE revision SET content = content + 1;
END;

CREATE TRIGGER content_version_changed AFTER UPDATE ON version BEGIN
    UPDATE revision SET content = content + 1;
END;

-- The widgets that were installed last, so that a page without any of them need not be made anew.
CREATE TABLE installed (
    slot      INTEGER PRIMARY KEY,  -- one of a hundred, used in turn
    revision  INTEGER NOT NULL,     -- of downloads, that the install made
    widget_id INTEGER NOT NULL
) STRICT;

INSERT INTO installed
WITH slots (slot) AS (SELECT 0 UNION ALL SELECT slot + 1 FROM slots WHERE slot < 99)
SELECT slot, 0, 0 FROM slots;

-- Kept apart: an install touches one number, never the text index. A count that anything but an
-- install has changed can make a widget fall behind others, as only a change of content may.
CREATE TRIGGER widget_downloaded AFTER UPDATE OF download_count ON widget BEGIN
    UPDATE revision SET downloads = downloads + 1,
        content = content + (new.download_count IS NOT coalesce(old.download_count, 0) + 1);
    UPDATE listing SET downloads = coalesce(new.download_count, -1) WHERE widget_id = new.id;
    UPDATE installed SET revision = r.downloads, widget_id = new.id FROM revision AS r
        WHERE slot = r.downloads % 100;
END;

PRAGMA user_version = 2;

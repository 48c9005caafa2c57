-- Format 1 of a Pagefile store. Numbers first, words in the views at the end:
-- open the file in any SQLite shell and `SELECT * FROM entries`.

CREATE TABLE tenants (
    id         INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    logs       INTEGER NOT NULL,  -- living logs
    documents  INTEGER NOT NULL,  -- living documents
    last_erase INTEGER NOT NULL,  -- last position that pruned or erased content
    keys_from  INTEGER NOT NULL   -- idempotency keys below this position have expired
) STRICT;

-- One row per user who has records; user NULL is the bucket of records without one.
-- AUTOINCREMENT: the number of a user who was erased never comes to mean another.
CREATE TABLE partitions (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant INTEGER NOT NULL,
    user   TEXT
) STRICT;
CREATE UNIQUE INDEX partitions_by_user ON partitions (tenant, ifnull(user, ''));

-- A log or a document. `oid` counts a tenant's streams; `id` counts the file's.
CREATE TABLE streams (
    id      INTEGER PRIMARY KEY,
    tenant  INTEGER NOT NULL,
    oid     INTEGER NOT NULL,
    kind    TEXT    NOT NULL CHECK (kind IN ('log', 'document')),
    name    TEXT    NOT NULL,  -- '' once erased
    base    INTEGER NOT NULL,  -- oid of the log this one forks, or 0
    base_at INTEGER NOT NULL,  -- how many entries it shares with its base
    created INTEGER NOT NULL,  -- position
    dropped INTEGER NOT NULL,  -- position, or 0 while it lives
    pruned  INTEGER NOT NULL,  -- numbers below are let go
    salt    BLOB
) STRICT;
CREATE UNIQUE INDEX streams_by_oid ON streams (tenant, oid);
CREATE INDEX streams_by_name ON streams (tenant, kind, name, created);
CREATE INDEX streams_by_base ON streams (tenant, base) WHERE base <> 0;

-- Every entry, every version and every commit. A commit and its first record are
-- one row, so that the commonest commit is one insert: its id is tenant id * 2^40 +
-- position. Further records of the same commit count up from the same less 2^62.
CREATE TABLE records (
    id          INTEGER PRIMARY KEY,
    stream      INTEGER,           -- this and `number`: NULL where a commit has no record, or no more
    number      INTEGER,
    position    INTEGER NOT NULL,
    ordinal     INTEGER NOT NULL,  -- which operation of its commit
    time_us     INTEGER NOT NULL,
    action      INTEGER NOT NULL,  -- 1 append, 2 put, 3 delete, 0 none
    key         TEXT,              -- this and the next two: the commit, in its first row
    manifest    BLOB,              -- MessagePack: [[action, oid, number, digest], …]
    digest      BLOB,              -- chains it to the commit before
    partition   INTEGER,           -- this and all below: NULL once erased
    kind        TEXT,
    actor       TEXT,
    sources     TEXT,              -- JSON array, NULL for none
    keys        BLOB,              -- JSON object, NULL for none
    tenant_keys BLOB,
    notes       BLOB,              -- JSON object, NULL for none
    type        TEXT,
    salt        BLOB,
    body        BLOB               -- canonical JSON; last, so that the rest is read without it
) STRICT;
CREATE UNIQUE INDEX places ON records (stream, number) WHERE stream IS NOT NULL;

-- Idempotency keys that callers gave; those the store makes need no index.
CREATE TABLE used_keys (
    tenant   INTEGER NOT NULL,
    key      TEXT    NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

-- Secondary keys of what is current. space = 4 * stream id for a log's entries,
-- 4 * partition id + 1 for a user's documents, 4 * tenant id + 2 for tenant keys.
CREATE TABLE keys (
    space    INTEGER NOT NULL,
    field    TEXT    NOT NULL,
    value    BLOB    NOT NULL,
    position INTEGER NOT NULL,
    ordinal  INTEGER NOT NULL,
    record   INTEGER NOT NULL,
    PRIMARY KEY (space, field, value, position, ordinal)
) STRICT, WITHOUT ROWID;

-- Secondary keys of documents' older versions, for reads at a position. Apart,
-- so that looking up what is current never walks over history.
CREATE TABLE past_keys (
    space    INTEGER NOT NULL,
    field    TEXT    NOT NULL,
    value    BLOB    NOT NULL,
    until    INTEGER NOT NULL,  -- the position that replaced it
    position INTEGER NOT NULL,
    ordinal  INTEGER NOT NULL,
    record   INTEGER NOT NULL,
    PRIMARY KEY (space, field, value, until, position, ordinal)
) STRICT, WITHOUT ROWID;

-- Which streams hold records of which user: forgetting a user starts here.
CREATE TABLE holdings (
    partition INTEGER NOT NULL,
    stream    INTEGER NOT NULL,
    PRIMARY KEY (partition, stream)
) STRICT, WITHOUT ROWID;

CREATE VIEW entries AS
SELECT t.name AS tenant, s.name AS log, r.number AS "index", p.user, r.kind, r.actor,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.time_us / 1e6, 'unixepoch') AS time, r.type,
       CAST(r.body AS TEXT) AS body, CAST(r.keys AS TEXT) AS keys, r.sources, r.position,
       r.salt IS NULL AS erased
FROM streams s
JOIN records r ON r.stream = s.id
JOIN tenants t ON t.id = s.tenant
LEFT JOIN partitions p ON p.id = r.partition
WHERE s.kind = 'log';

CREATE VIEW versions AS
SELECT t.name AS tenant, s.name AS document, r.number AS version, p.user, r.kind, r.actor,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.time_us / 1e6, 'unixepoch') AS time, r.type,
       CAST(r.body AS TEXT) AS body, CAST(r.keys AS TEXT) AS keys, r.sources, r.position,
       r.action = 3 AS deleted, r.salt IS NULL AS erased
FROM streams s
JOIN records r ON r.stream = s.id
JOIN tenants t ON t.id = s.tenant
LEFT JOIN partitions p ON p.id = r.partition
WHERE s.kind = 'document';

CREATE VIEW documents AS
SELECT * FROM versions v
WHERE NOT deleted AND version = (
    SELECT max(r.number)
    FROM streams s
    JOIN tenants t ON t.id = s.tenant AND t.name = v.tenant
    JOIN records r ON r.stream = s.id
    WHERE s.kind = 'document' AND s.name = v.document AND s.dropped = 0
);

CREATE VIEW commit_log AS
SELECT t.name AS tenant, c.position,
       strftime('%Y-%m-%dT%H:%M:%fZ', c.time_us / 1e6, 'unixepoch') AS time, c.key,
       hex(c.digest) AS digest, length(c.manifest) AS manifest_bytes
FROM records c
JOIN tenants t ON t.id = c.id >> 40
WHERE c.id > 0;

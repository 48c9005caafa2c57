-- Format 1 of a Pagefile store in PostgreSQL. Runs inside one transaction, in the store's schema.
-- Every table begins with `tenant`: one index range per tenant, and one wall (see the end).
-- Names are bytewise (COLLATE "C"), whatever the database's own order of letters is.

CREATE TABLE format (
    number integer NOT NULL
);
COMMENT ON TABLE format IS 'Pagefile store: which migrations have run';

CREATE TABLE tenants (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text COLLATE "C" NOT NULL UNIQUE,
    logs       bigint NOT NULL,  -- living logs
    documents  bigint NOT NULL,  -- living documents
    last_erase bigint NOT NULL,  -- last position that pruned or erased content
    keys_from  bigint NOT NULL,  -- idempotency keys below this position have expired
    last_user  bigint NOT NULL   -- numbers of users given out; one that was erased never comes again
);

-- One row per user who has records; name '' is the bucket of records without a user.
CREATE TABLE users (
    tenant bigint NOT NULL,
    id     bigint NOT NULL,
    name   text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX users_by_name ON users (tenant, name);

-- A log or a document. `oid` counts a tenant's streams.
CREATE TABLE streams (
    tenant  bigint NOT NULL,
    oid     bigint NOT NULL,
    kind    text COLLATE "C" NOT NULL CHECK (kind IN ('log', 'document')),
    name    text COLLATE "C" NOT NULL,  -- '' once erased
    base    bigint NOT NULL,            -- oid of the log this one forks, or 0
    base_at bigint NOT NULL,            -- how many entries it shares with its base
    created bigint NOT NULL,            -- position
    dropped bigint NOT NULL,            -- position, or 0 while it lives
    pruned  bigint NOT NULL,            -- numbers below are let go
    salt    bytea NOT NULL,
    PRIMARY KEY (tenant, oid)
);
CREATE INDEX streams_by_name ON streams (tenant, kind, name, created);
CREATE INDEX streams_by_base ON streams (tenant, base) WHERE base <> 0;

-- Every entry, every version and every commit. A commit and its first record are one
-- row, slot 0, so that the commonest commit is one insert. The primary key is what makes
-- positions gapless: of two writers who both take the next one, the second fails.
CREATE TABLE records (
    tenant      bigint NOT NULL,
    position    bigint NOT NULL,
    slot        integer NOT NULL,
    ordinal     integer NOT NULL,  -- which operation of its commit
    oid         bigint,            -- this and `number`: NULL where a commit has no record, or no more
    number      bigint,
    time_us     bigint NOT NULL,
    action      smallint NOT NULL, -- 1 append, 2 put, 3 delete, 0 none
    key         text COLLATE "C",  -- this and the next two: the commit, in slot 0
    manifest    bytea,             -- MessagePack: [[action, oid, number, digest], …]
    digest      bytea,             -- chains it to the commit before
    usr         text COLLATE "C",  -- the user, or NULL for none; this and all below: NULL once erased
    kind        text COLLATE "C",
    actor       text COLLATE "C",
    sources     text COLLATE "C",  -- JSON array, '' for none
    keys        bytea,             -- JSON object, '' for none
    tenant_keys bytea,
    notes       bytea,             -- JSON object, '' for none
    type        text COLLATE "C",
    salt        bytea,
    body        bytea,             -- canonical JSON
    PRIMARY KEY (tenant, position, slot)
);
CREATE UNIQUE INDEX places ON records (tenant, oid, number) WHERE oid IS NOT NULL;

-- Idempotency keys that callers gave; those the store makes need no index.
CREATE TABLE used_keys (
    tenant   bigint NOT NULL,
    key      text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    PRIMARY KEY (tenant, key)
);

-- Secondary keys of what is current. space = 4 * oid for a log's entries,
-- 4 * user id + 1 for a user's documents, 2 for keys of the whole tenant.
CREATE TABLE keys (
    tenant   bigint NOT NULL,
    space    bigint NOT NULL,
    field    text COLLATE "C" NOT NULL,
    value    bytea NOT NULL,
    position bigint NOT NULL,
    ordinal  integer NOT NULL,
    oid      bigint NOT NULL,
    number   bigint NOT NULL,
    PRIMARY KEY (tenant, space, field, value, position, ordinal)
);

-- Secondary keys of documents' older versions, for reads at a position. Apart,
-- so that looking up what is current never walks over history.
CREATE TABLE past_keys (
    tenant   bigint NOT NULL,
    space    bigint NOT NULL,
    field    text COLLATE "C" NOT NULL,
    value    bytea NOT NULL,
    until    bigint NOT NULL,  -- the position that replaced it
    position bigint NOT NULL,
    ordinal  integer NOT NULL,
    oid      bigint NOT NULL,
    number   bigint NOT NULL,
    PRIMARY KEY (tenant, space, field, value, until, position, ordinal)
);

-- Which streams hold records of which user: forgetting a user starts here.
CREATE TABLE holdings (
    tenant bigint NOT NULL,
    usr    bigint NOT NULL,
    oid    bigint NOT NULL,
    PRIMARY KEY (tenant, usr, oid)
);

-- The second wall. A session sees the tenant it has named, and without a name no row at all,
-- whatever its SQL says; the owner of the tables too. Only superusers and roles with
-- BYPASSRLS walk around it.
ALTER TABLE tenants ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenants FORCE ROW LEVEL SECURITY;
CREATE POLICY one_tenant ON tenants USING (name = current_setting('pagefile.tenant', true));
-- Names only, for the handle of operators.
CREATE POLICY operators ON tenants FOR SELECT USING (current_setting('pagefile.admin', true) = 'on');

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['users', 'streams', 'records', 'used_keys', 'keys', 'past_keys', 'holdings'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY one_tenant ON %I USING (tenant = (SELECT t.id FROM tenants t '
            'WHERE t.name = current_setting(''pagefile.tenant'', true)))', name);
    END LOOP;
END $$;

-- For people with a psql prompt: SET pagefile.tenant = 'default'; SELECT * FROM pagefile.entries;
CREATE VIEW entries WITH (security_invoker = true) AS
SELECT s.name AS log, r.number AS index, r.usr AS "user", r.kind, r.actor,
       to_timestamp(r.time_us / 1e6) AS time, r.type, convert_from(r.body, 'UTF8') AS body,
       r.position, r.salt IS NULL AS erased
FROM streams s JOIN records r ON r.tenant = s.tenant AND r.oid = s.oid
WHERE s.kind = 'log';

CREATE VIEW versions WITH (security_invoker = true) AS
SELECT s.name AS document, r.number AS version, r.usr AS "user", r.kind, r.actor,
       to_timestamp(r.time_us / 1e6) AS time, r.type, convert_from(r.body, 'UTF8') AS body,
       r.position, r.action = 3 AS deleted, r.salt IS NULL AS erased
FROM streams s JOIN records r ON r.tenant = s.tenant AND r.oid = s.oid
WHERE s.kind = 'document';

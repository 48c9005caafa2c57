-- Vectors kept with the data: made beside a store when somebody asks for it and pgvector is there.
-- {pgvector} is the schema of that extension. Runs inside one transaction, in the store's schema.

CREATE TABLE vector_format (
    number integer NOT NULL
);
COMMENT ON TABLE vector_format IS 'Pagefile vectors: which migrations have run';

-- The vector of an entry. A user's index is a log of its own, so that the primary key leads to one
-- user's vectors and to nobody else's; the log's name says which model they are of.
CREATE TABLE vectors (
    tenant    bigint NOT NULL,
    oid       bigint NOT NULL,  -- the log
    number    bigint NOT NULL,  -- its entry
    slot      bytea NOT NULL,   -- what the entry is about: a later one of the same replaces it
    embedding {pgvector}.vector NOT NULL,
    PRIMARY KEY (tenant, oid, number)
);
-- The slot first: so that a user's vectors are read by the primary key, in the order they lie in.
CREATE UNIQUE INDEX vectors_by_slot ON vectors (slot, oid, tenant);
-- Samples are copies, and would outlive an erasure.
ALTER TABLE vectors ALTER slot SET STATISTICS 0, ALTER embedding SET STATISTICS 0;

ALTER TABLE vectors ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectors FORCE ROW LEVEL SECURITY;
CREATE POLICY one_tenant ON vectors USING (tenant = (
    SELECT t.id FROM tenants t WHERE t.name = current_setting('pagefile.tenant', true)));

-- A vector goes with its entry, in the same transaction, whoever lets the entry go: also a process
-- that was started before there were vectors here, or that has no rights on this table.
DO $make$
DECLARE
    place text := quote_ident(current_schema());
BEGIN
    EXECUTE 'CREATE FUNCTION forget_vector() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER '
        'SET search_path = pg_catalog, pg_temp AS $body$ BEGIN '
        'DELETE FROM ' || place || '.vectors v '
        'WHERE v.tenant = OLD.tenant AND v.oid = OLD.oid AND v.number = OLD.number; '
        'RETURN NULL; END $body$';
    EXECUTE 'CREATE FUNCTION forget_vectors() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER '
        'SET search_path = pg_catalog, pg_temp AS $body$ BEGIN '
        'DELETE FROM ' || place || '.vectors v WHERE v.tenant = OLD.tenant AND v.oid = OLD.oid; '
        'RETURN NULL; END $body$';
END $make$;

CREATE TRIGGER forget_vector AFTER UPDATE OF salt ON records FOR EACH ROW
    WHEN (OLD.salt IS NOT NULL AND NEW.salt IS NULL) EXECUTE FUNCTION forget_vector();
CREATE TRIGGER forget_vector_too AFTER DELETE ON records FOR EACH ROW
    WHEN (OLD.salt IS NOT NULL) EXECUTE FUNCTION forget_vector();
CREATE TRIGGER forget_vectors AFTER UPDATE OF dropped ON streams FOR EACH ROW
    WHEN (OLD.dropped = 0 AND NEW.dropped <> 0) EXECUTE FUNCTION forget_vectors();

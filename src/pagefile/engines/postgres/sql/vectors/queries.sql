-- Named queries about vectors that are kept with the data. {pgvector} is the schema of that
-- extension, which no session has in its path. $1 is the tenant's number unless said otherwise.

-- :remove_slots Before new ones come: what these slots of a log held.
DELETE FROM vectors WHERE tenant = $1 AND oid = $2 AND slot = ANY($3::bytea[])

-- :add_vector The vector of an entry.
INSERT INTO vectors (tenant, oid, number, slot, embedding)
VALUES ($1::bigint, $2::bigint, $3::bigint, $4::bytea, $5::{pgvector}.vector)

-- :nearest_vectors Numbers and cosines of the nearest, packed; $2 is the log's name. Every vector of
-- the log is compared: a graph over all users, filtered, would leave a small one with nothing.
SELECT string_agg(int8send(f.number) || float8send(-f.distance), ''::bytea) FROM (
    SELECT v.number, v.embedding OPERATOR({pgvector}.<#>) $3::{pgvector}.vector AS distance FROM vectors v
    WHERE v.tenant = $1 AND v.oid = (SELECT s.oid FROM streams s
          WHERE s.tenant = $1 AND s.kind = 'log' AND s.name = $2 AND s.dropped = 0)
    ORDER BY distance, v.number LIMIT $4) f

-- :named_vectors The same of these entries, in no order.
SELECT string_agg(int8send(v.number)
       || float8send(-(v.embedding OPERATOR({pgvector}.<#>) $3::{pgvector}.vector)), ''::bytea) FROM vectors v
WHERE v.tenant = $1 AND v.number = ANY($4::bigint[]) AND v.oid = (SELECT s.oid FROM streams s
      WHERE s.tenant = $1 AND s.kind = 'log' AND s.name = $2 AND s.dropped = 0)

-- :vector_numbers Which entries of a log have a vector, packed; $2 is its name.
SELECT string_agg(int8send(v.number), ''::bytea) FROM vectors v
WHERE v.tenant = $1 AND v.number >= $3 AND v.oid = (SELECT s.oid FROM streams s
      WHERE s.tenant = $1 AND s.kind = 'log' AND s.name = $2 AND s.dropped = 0)

-- :fill_vector The vector of an entry that came without, if it is still there; $2 is its log's name.
INSERT INTO vectors (tenant, oid, number, slot, embedding)
SELECT $1, r.oid, r.number, $4::bytea, $5::{pgvector}.vector FROM streams s
JOIN records r ON r.tenant = s.tenant AND r.oid = s.oid
WHERE s.tenant = $1 AND s.kind = 'log' AND s.name = $2 AND s.dropped = 0
  AND r.number = $3 AND r.salt IS NOT NULL
ON CONFLICT DO NOTHING

-- :remove_vectors What no entry needs any more; $2 is the log's name.
DELETE FROM vectors v WHERE v.tenant = $1 AND v.number = ANY($3::bigint[]) AND v.oid = (
    SELECT s.oid FROM streams s
    WHERE s.tenant = $1 AND s.kind = 'log' AND s.name = $2 AND s.dropped = 0)

-- :vectors_astray check(): vectors without an entry that has content, or of a log that has ended.
SELECT count(*) FROM vectors v
LEFT JOIN streams s ON s.tenant = v.tenant AND s.oid = v.oid
LEFT JOIN records r ON r.tenant = v.tenant AND r.oid = v.oid AND r.number = v.number
WHERE v.tenant = $1 AND (r.salt IS NULL OR s.oid IS NULL OR s.dropped <> 0)

-- Named queries of the PostgreSQL engine. `-- :name` starts one; the sentence after
-- it says what it is for. $1 is the tenant's number unless said otherwise.

-- :facts What a new connection must know of its server.
SELECT current_setting('fsync'), current_setting('full_page_writes'),
       current_setting('synchronous_commit'), current_setting('server_encoding'),
       pg_is_in_recovery(), current_setting('server_version_num')::bigint

-- :enter Which tenant's rows this session may see and write; $1 is its name.
SELECT set_config('pagefile.tenant', $1, false)

-- :turn Wait for this tenant's turn to write; $1 is made of its name.
SELECT pg_advisory_xact_lock($1)

-- :row_turn The same on a server whose advisory locks lock nothing; $1 is its name.
SELECT id FROM tenants WHERE name = $1 FOR UPDATE

-- :held_locks How many advisory locks this session holds.
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted

-- :head The moving end of a tenant; $1 is its name.
SELECT t.id, t.logs, t.documents, t.last_erase, t.keys_from, t.last_user,
       c.position, c.time_us, c.digest,
       (SELECT max(s.oid) FROM streams s WHERE s.tenant = t.id)
FROM tenants t
LEFT JOIN LATERAL (SELECT position, time_us, digest FROM records
                   WHERE tenant = t.id AND slot = 0 ORDER BY position DESC LIMIT 1) c ON true
WHERE t.name = $1

-- :position How far a tenant is; $1 is its name.
SELECT r.position FROM tenants t JOIN records r ON r.tenant = t.id
WHERE t.name = $1 ORDER BY r.position DESC LIMIT 1

-- :tenant_number $1 is its name.
SELECT id FROM tenants WHERE name = $1

-- :add_tenant A tenant comes into being with its first commit; $1 is its name.
INSERT INTO tenants (name, logs, documents, last_erase, keys_from, last_user)
VALUES ($1, 0, 0, 0, 1, 0) RETURNING id

-- :save_tenant Counters after a commit that changed them.
UPDATE tenants SET logs = $2, documents = $3, last_erase = $4, keys_from = $5, last_user = $6
WHERE id = $1

-- :tenant_names For the admin handle only.
SELECT name FROM tenants ORDER BY name

-- :commits A stretch of the commit log.
SELECT position, time_us, key, manifest, digest FROM records
WHERE tenant = $1 AND position > $2 AND slot = 0 ORDER BY position LIMIT $3

-- :made_keys The keys of a stretch of commits.
SELECT key, position FROM records WHERE tenant = $1 AND position > $2 AND position <= $3 AND slot = 0

-- :commit_with_key The commit of a key the store made, which says where to begin.
SELECT position, time_us, key, manifest, digest FROM records
WHERE tenant = $1 AND position > $2 AND slot = 0 AND key = $3 LIMIT 1

-- :used_key Which commit used this idempotency key.
SELECT c.position, c.time_us, c.key, c.manifest, c.digest FROM used_keys u
JOIN records c ON c.tenant = u.tenant AND c.position = u.position AND c.slot = 0
WHERE u.tenant = $1 AND u.key = $2

-- :add_used_key Remember an idempotency key. In a copied history it may have been used before.
INSERT INTO used_keys (tenant, key, position) VALUES ($1, $2, $3)
ON CONFLICT (tenant, key) DO UPDATE SET position = excluded.position

-- :expired_keys The oldest commits whose keys may be forgotten.
SELECT position, key FROM records
WHERE tenant = $1 AND position >= $2 AND position <= $3 AND slot = 0 ORDER BY position LIMIT 512

-- :commit_time When a commit was made.
SELECT time_us FROM records WHERE tenant = $1 AND position = $2 AND slot = 0

-- :forget_key Let an idempotency key go.
DELETE FROM used_keys WHERE tenant = $1 AND key = $2 AND position = $3

-- :stream_by_name The living stream of that name, and its last record.
SELECT s.oid, s.kind, s.name, s.base, s.base_at, s.created, s.dropped, s.pruned, s.salt, e.number, e.action FROM streams s
LEFT JOIN LATERAL (SELECT number, action FROM records WHERE tenant = s.tenant AND oid = s.oid
                   ORDER BY number DESC LIMIT 1) e ON true
WHERE s.tenant = $1 AND s.kind = $2 AND s.name = $3 AND s.dropped = 0

-- :stream_by_name_at The stream of that name that lived at a position.
SELECT s.oid, s.kind, s.name, s.base, s.base_at, s.created, s.dropped, s.pruned, s.salt, e.number, e.action FROM streams s
LEFT JOIN LATERAL (SELECT number, action FROM records WHERE tenant = s.tenant AND oid = s.oid
                   ORDER BY number DESC LIMIT 1) e ON true
WHERE s.tenant = $1 AND s.kind = $2 AND s.name = $3 AND s.created <= $4
  AND (s.dropped = 0 OR s.dropped > $4)

-- :stream_by_oid The stream with that number.
SELECT s.oid, s.kind, s.name, s.base, s.base_at, s.created, s.dropped, s.pruned, s.salt, e.number, e.action FROM streams s
LEFT JOIN LATERAL (SELECT number, action FROM records WHERE tenant = s.tenant AND oid = s.oid
                   ORDER BY number DESC LIMIT 1) e ON true
WHERE s.tenant = $1 AND s.oid = $2

-- :forks_of Every stream that forks this one.
SELECT s.oid, s.kind, s.name, s.base, s.base_at, s.created, s.dropped, s.pruned, s.salt, e.number, e.action FROM streams s
LEFT JOIN LATERAL (SELECT number, action FROM records WHERE tenant = s.tenant AND oid = s.oid
                   ORDER BY number DESC LIMIT 1) e ON true
WHERE s.tenant = $1 AND s.base = $2 AND s.base <> 0 ORDER BY s.oid

-- :streams_living The living streams of these names.
SELECT s.oid, s.kind, s.name, s.base, s.base_at, s.created, s.dropped, s.pruned, s.salt, e.number, e.action FROM streams s
LEFT JOIN LATERAL (SELECT number, action FROM records WHERE tenant = s.tenant AND oid = s.oid
                   ORDER BY number DESC LIMIT 1) e ON true
WHERE s.tenant = $1 AND s.kind = $2 AND s.name = ANY($3::text[]) AND s.dropped = 0

-- :streams_by_oids The streams with these numbers.
SELECT s.oid, s.kind, s.name, s.base, s.base_at, s.created, s.dropped, s.pruned, s.salt, e.number, e.action FROM streams s
LEFT JOIN LATERAL (SELECT number, action FROM records WHERE tenant = s.tenant AND oid = s.oid
                   ORDER BY number DESC LIMIT 1) e ON true
WHERE s.tenant = $1 AND s.oid = ANY($2::bigint[])

-- :streams_named Every stream that has had this name.
SELECT s.oid, s.kind, s.name, s.base, s.base_at, s.created, s.dropped, s.pruned, s.salt, e.number, e.action FROM streams s
LEFT JOIN LATERAL (SELECT number, action FROM records WHERE tenant = s.tenant AND oid = s.oid
                   ORDER BY number DESC LIMIT 1) e ON true
WHERE s.tenant = $1 AND s.kind = $2 AND s.name = $3 ORDER BY s.oid

-- :streams_of_names Every stream that has had one of these names.
SELECT s.oid, s.kind, s.name, s.base, s.base_at, s.created, s.dropped, s.pruned, s.salt, e.number, e.action FROM streams s
LEFT JOIN LATERAL (SELECT number, action FROM records WHERE tenant = s.tenant AND oid = s.oid
                   ORDER BY number DESC LIMIT 1) e ON true
WHERE s.tenant = $1 AND s.kind = $2 AND s.name = ANY($3::text[]) ORDER BY s.oid

-- :streams_held Streams that hold records of a user.
SELECT s.oid, s.kind, s.name, s.base, s.base_at, s.created, s.dropped, s.pruned, s.salt, e.number, e.action FROM streams s
LEFT JOIN LATERAL (SELECT number, action FROM records WHERE tenant = s.tenant AND oid = s.oid
                   ORDER BY number DESC LIMIT 1) e ON true
WHERE s.tenant = $1 AND s.oid IN (SELECT oid FROM holdings WHERE tenant = $1 AND usr = $2)
ORDER BY s.oid

-- :add_stream A new log or document.
INSERT INTO streams (tenant, oid, kind, name, base, base_at, created, dropped, pruned, salt)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- :end_stream Mark a stream as dropped, and with name '' as forgotten.
UPDATE streams SET dropped = $3, name = $4, salt = CASE WHEN $4 = '' THEN ''::bytea ELSE salt END
WHERE tenant = $1 AND oid = $2

-- :set_pruned Let go of low numbers.
UPDATE streams SET pruned = $3 WHERE tenant = $1 AND oid = $2

-- :shared_up_to How much of a log its forks share that live, or have living forks.
WITH RECURSIVE kin (oid, reach, dropped) AS (
    SELECT oid, base_at, dropped FROM streams WHERE tenant = $1 AND base = $2 AND base <> 0
    UNION ALL
    SELECT s.oid, least(k.reach, s.base_at), s.dropped FROM streams s
    JOIN kin k ON s.base = k.oid WHERE s.tenant = $1 AND s.base <> 0)
SELECT coalesce(max(reach), 0) FROM kin WHERE dropped = 0

-- :names Living names in order.
SELECT name FROM streams s
WHERE tenant = $1 AND kind = $2 AND name >= $3 AND name > $4 AND dropped = 0
  AND (kind = 'log' OR 3 <> (SELECT action FROM records r
       WHERE r.tenant = s.tenant AND r.oid = s.oid ORDER BY r.number DESC LIMIT 1))
ORDER BY name LIMIT $5

-- :names_below The same, and below a bound.
SELECT name FROM streams s
WHERE tenant = $1 AND kind = $2 AND name >= $3 AND name > $4 AND name < $6 AND dropped = 0
  AND (kind = 'log' OR 3 <> (SELECT action FROM records r
       WHERE r.tenant = s.tenant AND r.oid = s.oid ORDER BY r.number DESC LIMIT 1))
ORDER BY name LIMIT $5

-- :user_number A user's number; nobody is called ''.
SELECT id FROM users WHERE tenant = $1 AND name = $2

-- :add_user A user's first record.
INSERT INTO users (tenant, id, name) VALUES ($1, $2, $3)

-- :rows Records of one stream in order.
SELECT number, position, ordinal, time_us, action, usr, kind, actor, sources, keys, tenant_keys, notes, type, body, salt
FROM records WHERE tenant = $1 AND oid = $2 AND number BETWEEN $3 AND $4 ORDER BY number LIMIT $5

-- :rows_at Records at these places, $2 and $3 side by side; each one looked up by itself.
SELECT r.* FROM unnest($2::bigint[], $3::bigint[]) AS wanted (oid, number)
CROSS JOIN LATERAL (
    SELECT number, position, ordinal, time_us, action, usr, kind, actor, sources, keys, tenant_keys, notes, type, body, salt, oid
    FROM records WHERE tenant = $1 AND oid = wanted.oid AND number = wanted.number LIMIT 1) r

-- :current_rows The last records of the living documents of these names.
SELECT r.*, s.name FROM streams s
CROSS JOIN LATERAL (
    SELECT number, position, ordinal, time_us, action, usr, kind, actor, sources, keys, tenant_keys, notes, type, body, salt
    FROM records WHERE tenant = s.tenant AND oid = s.oid ORDER BY number DESC LIMIT 1) r
WHERE s.tenant = $1 AND s.kind = 'document' AND s.name = ANY($2::text[]) AND s.dropped = 0

-- :rows_of_streams All records of several streams in order.
SELECT number, position, ordinal, time_us, action, usr, kind, actor, sources, keys, tenant_keys, notes, type, body, salt, oid
FROM records WHERE tenant = $1 AND oid = ANY($2::bigint[]) ORDER BY oid, number

-- :rows_from_end Records of one stream, last first.
SELECT number, position, ordinal, time_us, action, usr, kind, actor, sources, keys, tenant_keys, notes, type, body, salt
FROM records WHERE tenant = $1 AND oid = $2 AND number BETWEEN $3 AND $4 ORDER BY number DESC LIMIT $5

-- :add_commit A commit that stores no record.
INSERT INTO records (tenant, position, slot, ordinal, time_us, action, key, manifest, digest)
VALUES ($1, $2, 0, 0, $3, 0, $4, $5, $6)

-- :add_record One entry or version, with the commit it begins. '' stands for NULL: every
-- parameter has one type, and the statement is prepared once.
INSERT INTO records (tenant, position, slot, ordinal, oid, number, time_us, action, key, manifest, digest, usr, kind, actor, sources, keys, tenant_keys, notes, type, salt, body)
VALUES ($1::bigint, $2::bigint, $3::integer, $4::integer, $5::bigint, $6::bigint, $7::bigint, $8::smallint, nullif($9::text, ''), nullif($10::bytea, ''), nullif($11::bytea, ''), nullif($12::text, ''), $13::text, $14::text, $15::text, $16::bytea, $17::bytea, $18::bytea, $19::text, $20::bytea, $21::bytea)

-- :wipe_record Take the content out of a record; its number stays.
UPDATE records SET usr = NULL, kind = NULL, actor = NULL, sources = NULL, keys = NULL,
                   tenant_keys = NULL, notes = NULL, type = NULL, body = NULL, salt = NULL
WHERE tenant = $1 AND oid = $2 AND number = $3

-- :remove_records Prune: the records that begin no commit.
DELETE FROM records WHERE tenant = $1 AND oid = $2 AND number >= $3 AND number < $4 AND slot <> 0

-- :empty_commits Prune: of the others, the commit stays.
UPDATE records SET oid = NULL, number = NULL, action = 0, usr = NULL, kind = NULL, actor = NULL,
                   sources = NULL, keys = NULL, tenant_keys = NULL, notes = NULL, type = NULL,
                   body = NULL, salt = NULL
WHERE tenant = $1 AND oid = $2 AND number >= $3 AND number < $4

-- :add_holding A user's first record in a stream.
INSERT INTO holdings (tenant, usr, oid) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING

-- :remove_holding A user ($4 is the name, '' for nobody) whose last record in a stream is gone.
DELETE FROM holdings WHERE tenant = $1 AND usr = $2 AND oid = $3
  AND NOT EXISTS (SELECT 1 FROM records WHERE tenant = $1 AND oid = $3 AND salt IS NOT NULL
                  AND coalesce(usr, '') = $4)

-- :forget_user A user who has no record left is forgotten.
DELETE FROM users WHERE tenant = $1 AND id = $2
  AND NOT EXISTS (SELECT 1 FROM holdings WHERE tenant = $1 AND usr = $2)

-- :add_key A secondary key of a current record.
INSERT INTO keys (tenant, space, field, value, position, ordinal, oid, number)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)

-- :remove_key A secondary key that no longer leads to its record.
DELETE FROM keys WHERE tenant = $1 AND space = $2 AND field = $3 AND value = $4
  AND position = $5 AND ordinal = $6

-- :add_past_key A secondary key that led to a record until a position.
INSERT INTO past_keys (tenant, space, field, value, position, ordinal, oid, number, until)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- :remove_past_key Its record is gone.
DELETE FROM past_keys WHERE tenant = $1 AND space = $2 AND field = $3 AND value = $4
  AND position = $5 AND ordinal = $6

-- :count_key How many current records stand under a key, up to a bound.
SELECT count(*) FROM (SELECT 1 FROM keys WHERE tenant = $1 AND space = $2 AND field = $3 AND value = $4
                      LIMIT $5) k

-- :last_key_change When a record last came under the key, or left it.
SELECT greatest(
    (SELECT max(position) FROM keys WHERE tenant = $1 AND space = $2 AND field = $3 AND value = $4),
    (SELECT max(until) FROM past_keys WHERE tenant = $1 AND space = $2 AND field = $3 AND value = $4), 0)

-- :find Current records in key order; the cursor is a row value.
SELECT k.value, k.oid, r.number, r.position, r.ordinal, r.time_us, r.action, r.usr, r.kind, r.actor, r.sources, r.keys, r.tenant_keys, r.notes, r.type, r.body, r.salt
FROM keys k
JOIN records r ON r.tenant = $1 AND r.oid = k.oid AND r.number = k.number
WHERE k.tenant = $1 AND k.space = $2 AND k.field = $3 AND k.value >= $4 AND k.value < $5
  AND (k.value, k.position, k.ordinal) > ($6, $7, $8)
  AND k.number >= $9 AND k.number < $10
ORDER BY k.value, k.position, k.ordinal LIMIT $11

-- :find_back The same, last first.
SELECT k.value, k.oid, r.number, r.position, r.ordinal, r.time_us, r.action, r.usr, r.kind, r.actor, r.sources, r.keys, r.tenant_keys, r.notes, r.type, r.body, r.salt
FROM keys k
JOIN records r ON r.tenant = $1 AND r.oid = k.oid AND r.number = k.number
WHERE k.tenant = $1 AND k.space = $2 AND k.field = $3 AND k.value >= $4 AND k.value < $5
  AND (k.value, k.position, k.ordinal) < ($6, $7, $8)
  AND k.number >= $9 AND k.number < $10
ORDER BY k.value DESC, k.position DESC, k.ordinal DESC LIMIT $11

-- :find_at Records that stood under the key at a position.
SELECT k.value, k.oid, r.number, r.position, r.ordinal, r.time_us, r.action, r.usr, r.kind, r.actor, r.sources, r.keys, r.tenant_keys, r.notes, r.type, r.body, r.salt
FROM (SELECT value, position, ordinal, oid, number FROM keys
      WHERE tenant = $1 AND space = $2 AND field = $3 AND value >= $4 AND value < $5 AND position <= $12
      UNION ALL
      SELECT value, position, ordinal, oid, number FROM past_keys
      WHERE tenant = $1 AND space = $2 AND field = $3 AND value >= $4 AND value < $5
        AND position <= $12 AND until > $12) k
JOIN records r ON r.tenant = $1 AND r.oid = k.oid AND r.number = k.number
WHERE (k.value, k.position, k.ordinal) > ($6, $7, $8)
  AND k.number >= $9 AND k.number < $10
ORDER BY k.value, k.position, k.ordinal LIMIT $11

-- :find_back_at The same, last first.
SELECT k.value, k.oid, r.number, r.position, r.ordinal, r.time_us, r.action, r.usr, r.kind, r.actor, r.sources, r.keys, r.tenant_keys, r.notes, r.type, r.body, r.salt
FROM (SELECT value, position, ordinal, oid, number FROM keys
      WHERE tenant = $1 AND space = $2 AND field = $3 AND value >= $4 AND value < $5 AND position <= $12
      UNION ALL
      SELECT value, position, ordinal, oid, number FROM past_keys
      WHERE tenant = $1 AND space = $2 AND field = $3 AND value >= $4 AND value < $5
        AND position <= $12 AND until > $12) k
JOIN records r ON r.tenant = $1 AND r.oid = k.oid AND r.number = k.number
WHERE (k.value, k.position, k.ordinal) < ($6, $7, $8)
  AND k.number >= $9 AND k.number < $10
ORDER BY k.value DESC, k.position DESC, k.ordinal DESC LIMIT $11

-- :records_astray check(): records of no stream, or with a commit where none belongs.
SELECT count(*) FROM records r LEFT JOIN streams s ON s.tenant = r.tenant AND s.oid = r.oid
WHERE r.tenant = $1 AND (r.oid IS NOT NULL AND s.oid IS NULL OR (r.slot = 0) <> (r.digest IS NOT NULL))

-- :gaps check(): positions without a commit.
SELECT coalesce(max(position), 0) - count(*) FROM records WHERE tenant = $1 AND slot = 0

-- :holdings_wrong check(): users not noted with a stream of theirs, or noted in vain.
WITH held AS (SELECT DISTINCT coalesce(r.usr, '') AS name, r.oid FROM records r
              WHERE r.tenant = $1 AND r.salt IS NOT NULL),
     noted AS (SELECT coalesce(u.name, '?' || h.usr) AS name, h.oid FROM holdings h
               LEFT JOIN users u ON u.tenant = h.tenant AND u.id = h.usr WHERE h.tenant = $1)
SELECT (SELECT count(*) FROM (SELECT * FROM held EXCEPT SELECT * FROM noted) a)
     + (SELECT count(*) FROM (SELECT * FROM noted EXCEPT SELECT * FROM held) b)
     + (SELECT count(*) FROM users u JOIN tenants t ON t.id = u.tenant WHERE u.tenant = $1
        AND (u.id > t.last_user OR NOT EXISTS (
             SELECT 1 FROM holdings h WHERE h.tenant = u.tenant AND h.usr = u.id)))

-- :used_keys_wrong check(): idempotency keys that are forgotten too early, or invented.
SELECT (SELECT count(*) FROM records c JOIN tenants t ON t.id = c.tenant
        WHERE c.tenant = $1 AND c.slot = 0 AND c.position >= t.keys_from AND c.key >= '=' AND c.key < '>'
          AND NOT EXISTS (SELECT 1 FROM used_keys u
                          WHERE u.tenant = c.tenant AND u.key = c.key AND u.position >= c.position))
     + (SELECT count(*) FROM used_keys u JOIN tenants t ON t.id = u.tenant WHERE u.tenant = $1
          AND (u.position < t.keys_from OR NOT EXISTS (
               SELECT 1 FROM records c WHERE c.tenant = u.tenant AND c.position = u.position
                 AND c.slot = 0 AND c.key = u.key)))

-- :keyed_records check(): every record with secondary keys, its stream, and what came after it.
SELECT r.number, r.position, r.ordinal, r.time_us, r.action, r.usr, r.kind, r.actor, r.sources, r.keys, r.tenant_keys, r.notes, r.type, r.body, r.salt, s.oid, s.kind, (SELECT n.position FROM records n
       WHERE n.tenant = r.tenant AND n.oid = r.oid AND n.number = r.number + 1)
FROM streams s JOIN records r ON r.tenant = s.tenant AND r.oid = s.oid
WHERE s.tenant = $1 AND (r.keys <> '' OR r.tenant_keys <> '')

-- :all_keys check(): every current key.
SELECT space, field, value, position, ordinal, oid, number FROM keys WHERE tenant = $1

-- :all_past_keys check(): every key of an older version.
SELECT space, field, value, until, position, ordinal, oid, number FROM past_keys WHERE tenant = $1

-- :all_users check(): the numbers of users.
SELECT name, id FROM users WHERE tenant = $1

-- :living_logs check(): counted afresh.
SELECT count(*) FROM streams WHERE tenant = $1 AND kind = 'log' AND dropped = 0

-- :living_documents check(): counted afresh.
SELECT count(*) FROM streams s WHERE tenant = $1 AND kind = 'document' AND dropped = 0
  AND 3 <> (SELECT action FROM records r
            WHERE r.tenant = s.tenant AND r.oid = s.oid ORDER BY r.number DESC LIMIT 1)

-- :size_bytes All tables of the store with their indexes; $1 is the schema's name.
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
WHERE c.relnamespace = to_regnamespace(quote_ident($1)) AND c.relkind = 'r'

-- :notify Tell whoever listens how far a tenant is.
SELECT pg_notify($1, $2)

-- :vectors_here Which vectors this store can keep; $1 is its schema's name: the schema of pgvector,
-- whether the server has it at all, and the rights of this user on the table, NULL where there is none.
SELECT (SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
        WHERE e.extname = 'vector' AND has_schema_privilege(n.oid, 'USAGE')),
       EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'vector'),
       (SELECT has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
               AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE')
        FROM pg_class c WHERE c.oid = to_regclass(quote_ident($1) || '.vectors'))

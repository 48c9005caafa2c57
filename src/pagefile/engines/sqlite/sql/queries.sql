-- Named queries of the SQLite engine. `-- :name` starts one; the sentence after
-- it says what it is for.

-- :tenant_by_name The tenant's row.
SELECT id, logs, documents, last_erase, keys_from FROM tenants WHERE name = ?

-- :add_tenant A tenant comes into being with its first commit.
INSERT INTO tenants (name, logs, documents, last_erase, keys_from) VALUES (?, 0, 0, 0, 1)
RETURNING id

-- :save_tenant Counters after a commit that changed them.
UPDATE tenants SET logs = ?, documents = ?, last_erase = ?, keys_from = ? WHERE id = ?

-- :note_traces Something was removed at this position: the file is to be written again.
UPDATE tenants SET traces = ? WHERE id = ?

-- :traces What the tenant's removals may have left.
SELECT traces FROM tenants WHERE name = ?

-- :all_traces The same for every tenant of the file, before it is written again.
SELECT id, traces FROM tenants WHERE traces <> 0

-- :clear_traces It was written again; unless something was removed meanwhile, nothing is left.
UPDATE tenants SET traces = 0 WHERE id = ? AND traces = ?

-- :tenant_names For the admin handle only.
SELECT name FROM tenants ORDER BY name

-- :last_commit The end of a tenant's commit log.
SELECT position, time_us, digest FROM records WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1

-- :last_oid How many streams the tenant has had.
SELECT max(oid) FROM streams WHERE tenant = ?

-- :last_stream_id The file's newest stream.
SELECT max(id) FROM streams

-- :commits A stretch of the commit log.
SELECT position, time_us, key, manifest, digest FROM records WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?

-- :commit_with_key The commit of a key the store made, which says where to begin.
SELECT position, time_us, key, manifest, digest FROM records WHERE id > ? AND id <= ? AND key = ? LIMIT 1

-- :commits_of_keys The commits of several keys the store made, asked for as a JSON array.
SELECT key, position FROM records
WHERE id > ? AND id <= ? AND key IN (SELECT value FROM json_each(?))

-- :last_further_id The newest record that is not the first of its commit.
SELECT max(id) FROM records WHERE id BETWEEN ? AND ?

-- :used_key Which commit used this idempotency key.
SELECT position FROM used_keys WHERE tenant = ? AND key = ?

-- :add_used_key Remember an idempotency key. In a copied history it may have been used before.
INSERT INTO used_keys (tenant, key, position) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET position = excluded.position

-- :expired_keys The oldest commits whose keys may be forgotten.
SELECT position, key FROM records WHERE id >= ? AND id <= ? ORDER BY id LIMIT 512

-- :commit_time When a commit was made.
SELECT time_us FROM records WHERE id = ?

-- :forget_key Let an idempotency key go.
DELETE FROM used_keys WHERE tenant = ? AND key = ? AND position = ?

-- :stream_by_name The living stream of that name, and its last record: with its number, or NULL.
SELECT s.id, oid, s.kind, name, base, base_at, created, dropped, pruned, s.salt, r.number, r.action
FROM streams s
LEFT JOIN records r ON r.stream = s.id
    AND r.number = (SELECT max(number) FROM records WHERE stream = s.id)
WHERE tenant = ? AND s.kind = ? AND name = ? AND dropped = 0

-- :documents_named The living documents of several names, asked for as a JSON array.
SELECT s.id, oid, s.kind, name, base, base_at, created, dropped, pruned, s.salt, r.number, r.action
FROM json_each(?2) n
CROSS JOIN streams s ON tenant = ?1 AND s.kind = 'document' AND name = n.value AND dropped = 0
LEFT JOIN records r ON r.stream = s.id
    AND r.number = (SELECT max(number) FROM records WHERE stream = s.id)

-- :stream_by_name_at The stream of that name that lived at a position.
SELECT s.id, oid, s.kind, name, base, base_at, created, dropped, pruned, s.salt, r.number, r.action
FROM streams s
LEFT JOIN records r ON r.stream = s.id
    AND r.number = (SELECT max(number) FROM records WHERE stream = s.id)
WHERE tenant = ?1 AND s.kind = ?2 AND name = ?3 AND created <= ?4 AND (dropped = 0 OR dropped > ?4)

-- :stream_by_oid The stream with that number.
SELECT s.id, oid, s.kind, name, base, base_at, created, dropped, pruned, s.salt, r.number, r.action
FROM streams s
LEFT JOIN records r ON r.stream = s.id
    AND r.number = (SELECT max(number) FROM records WHERE stream = s.id)
WHERE tenant = ? AND oid = ?

-- :forks_of Every stream that forks this one; the plus is as in streams_named.
SELECT s.id, oid, s.kind, name, base, base_at, created, dropped, pruned, s.salt, r.number, r.action
FROM streams s
LEFT JOIN records r ON r.stream = s.id
    AND r.number = (SELECT max(number) FROM records WHERE stream = s.id)
WHERE tenant = ? AND base = ? AND base <> 0 ORDER BY +oid

-- :streams_named Every stream that has had this name.
SELECT s.id, oid, s.kind, name, base, base_at, created, dropped, pruned, s.salt, r.number, r.action
FROM streams s
LEFT JOIN records r ON r.stream = s.id
    AND r.number = (SELECT max(number) FROM records WHERE stream = s.id)
-- The plus keeps the order from choosing the index: by oid it would walk the whole tenant.
WHERE tenant = ? AND s.kind = ? AND name = ? ORDER BY +oid

-- :streams_held Streams that hold records of a user.
SELECT s.id, oid, s.kind, name, base, base_at, created, dropped, pruned, s.salt, r.number, r.action
FROM holdings h
JOIN streams s ON s.id = h.stream
LEFT JOIN records r ON r.stream = s.id
    AND r.number = (SELECT max(number) FROM records WHERE stream = s.id)
WHERE h.partition = ? ORDER BY oid

-- :add_stream A new log or document.
INSERT INTO streams (id, tenant, oid, kind, name, base, base_at, created, dropped, pruned, salt)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- :end_stream Mark a stream as dropped, and with name '' as forgotten.
UPDATE streams SET dropped = ?, name = ?, salt = CASE WHEN ?2 = '' THEN NULL ELSE salt END
WHERE id = ?

-- :set_pruned Let go of low numbers.
UPDATE streams SET pruned = ? WHERE id = ?

-- :shared_up_to How much of a log its forks share that live, or have living forks.
WITH RECURSIVE kin (oid, reach, dropped) AS (
    SELECT oid, base_at, dropped FROM streams
    WHERE tenant = ?1 AND base = ?2 AND base <> 0 AND oid > base
    UNION ALL
    SELECT s.oid, min(k.reach, s.base_at), s.dropped FROM streams s
    JOIN kin k ON s.base = k.oid WHERE s.tenant = ?1 AND s.base <> 0 AND s.oid > s.base)
SELECT max(reach) FROM kin WHERE dropped = 0

-- :names Living names in order.
SELECT name FROM streams s
WHERE tenant = ? AND kind = ? AND name >= ? AND name > ? AND name < ? AND dropped = 0
  AND (kind = 'log' OR 3 <> (SELECT action FROM records
       WHERE stream = s.id ORDER BY number DESC LIMIT 1))
ORDER BY name LIMIT ?

-- :partition A user's partition.
SELECT id FROM partitions WHERE tenant = ? AND ifnull(user, '') = ifnull(?, '')

-- :add_partition A user's first record.
INSERT INTO partitions (tenant, user) VALUES (?, ?) RETURNING id

-- :partition_user The user behind a partition.
SELECT user FROM partitions WHERE id = ?

-- :next_position When the next version came.
SELECT position FROM records WHERE stream = ? AND number = ?

-- :rows Records of one stream in order.
SELECT number, position, ordinal, time_us, action, partition, kind, actor, sources, keys,
       tenant_keys, notes, type, body, salt, id
FROM records WHERE stream = ? AND number BETWEEN ? AND ? ORDER BY number LIMIT ?

-- :current_row The last record of the living document of that name.
SELECT number, position, ordinal, time_us, action, partition, records.kind, actor, sources, keys,
       tenant_keys, notes, type, body, records.salt, records.id
FROM streams JOIN records ON records.stream = streams.id
WHERE tenant = ? AND streams.kind = 'document' AND name = ? AND dropped = 0
ORDER BY number DESC LIMIT 1

-- :current_rows The same of several, asked for as a JSON array; first the place in it.
SELECT n.key, number, position, ordinal, time_us, action, partition, records.kind, actor, sources,
       keys, tenant_keys, notes, records.type, body, records.salt, records.id
FROM json_each(?2) n
CROSS JOIN streams ON tenant = ?1 AND streams.kind = 'document' AND name = n.value AND dropped = 0
JOIN records ON records.id =
 (SELECT id FROM records last WHERE last.stream = streams.id ORDER BY last.number DESC LIMIT 1)

-- :rows_from_end Records of one stream, last first.
SELECT number, position, ordinal, time_us, action, partition, kind, actor, sources, keys,
       tenant_keys, notes, type, body, salt, id
FROM records WHERE stream = ? AND number BETWEEN ? AND ? ORDER BY number DESC LIMIT ?

-- :add_record One entry or version, with the commit it begins.
INSERT INTO records (id, stream, number, position, ordinal, time_us, action, key, manifest, digest,
                     partition, kind, actor, sources, keys, tenant_keys, notes, type, salt, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- :wipe_record Take the content out of a record; its number stays.
UPDATE records SET partition = NULL, kind = NULL, actor = NULL, sources = NULL, keys = NULL,
                   tenant_keys = NULL, notes = NULL, type = NULL, body = NULL, salt = NULL
WHERE stream = ? AND number = ?

-- :remove_records Prune: the records that begin no commit.
DELETE FROM records WHERE stream = ? AND number >= ? AND number < ? AND manifest IS NULL

-- :empty_commits Prune: of the others, the commit stays.
UPDATE records SET stream = NULL, number = NULL, action = 0, partition = NULL, kind = NULL,
                   actor = NULL, sources = NULL, keys = NULL, tenant_keys = NULL, notes = NULL, type = NULL,
                   body = NULL, salt = NULL
WHERE stream = ? AND number >= ? AND number < ?

-- :add_holding A user's first record in a stream.
INSERT OR IGNORE INTO holdings (partition, stream) VALUES (?, ?)

-- :still_holds Whether a user still has a record in a stream.
SELECT EXISTS (SELECT 1 FROM records WHERE stream = ? AND partition = ?)

-- :remove_holding The user's last record in a stream is gone.
DELETE FROM holdings WHERE partition = ? AND stream = ?

-- :forget_partition A user who has no record left is forgotten.
DELETE FROM partitions WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM holdings WHERE partition = ?1)

-- :add_key A secondary key of a current record.
INSERT INTO keys (space, field, value, position, ordinal, record) VALUES (?, ?, ?, ?, ?, ?)

-- :remove_key A secondary key that no longer leads to its record.
DELETE FROM keys WHERE space = ? AND field = ? AND value = ? AND position = ? AND ordinal = ?

-- :add_past_key A secondary key that led to a record until a position.
INSERT INTO past_keys (space, field, value, until, position, ordinal, record)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- :remove_past_key Its record is gone.
DELETE FROM past_keys
WHERE space = ? AND field = ? AND value = ? AND until = ? AND position = ? AND ordinal = ?

-- :count_key How many current records stand under a key, up to a bound.
SELECT count(*) FROM (SELECT 1 FROM keys WHERE space = ? AND field = ? AND value = ? LIMIT ?)

-- :last_key_change When a record last came under the key, or left it.
SELECT max(
    ifnull((SELECT max(position) FROM keys WHERE space = ?1 AND field = ?2 AND value = ?3), 0),
    ifnull((SELECT max(until) FROM past_keys WHERE space = ?1 AND field = ?2 AND value = ?3), 0))

-- :find Current records in key order; the cursor is a row value.
SELECT k.value, s.oid, r.number, r.position, r.ordinal, r.time_us, r.action, r.partition, r.kind,
       r.actor, r.sources, r.keys, r.tenant_keys, r.notes, r.type, r.body, r.salt
FROM keys k JOIN records r ON r.id = k.record JOIN streams s ON s.id = r.stream
WHERE k.space = ?1 AND k.field = ?2 AND k.value >= ?3 AND k.value < ?4
  AND (k.value, k.position, k.ordinal) > (?5, ?6, ?7) AND r.number >= ?8 AND r.number < ?9
ORDER BY k.value, k.position, k.ordinal LIMIT ?10

-- :find_back The same, last first.
SELECT k.value, s.oid, r.number, r.position, r.ordinal, r.time_us, r.action, r.partition, r.kind,
       r.actor, r.sources, r.keys, r.tenant_keys, r.notes, r.type, r.body, r.salt
FROM keys k JOIN records r ON r.id = k.record JOIN streams s ON s.id = r.stream
WHERE k.space = ?1 AND k.field = ?2 AND k.value >= ?3 AND k.value < ?4
  AND (k.value, k.position, k.ordinal) < (?5, ?6, ?7) AND r.number >= ?8 AND r.number < ?9
ORDER BY k.value DESC, k.position DESC, k.ordinal DESC LIMIT ?10

-- :find_at Records that stood under the key at a position.
SELECT k.value, s.oid, r.number, r.position, r.ordinal, r.time_us, r.action, r.partition, r.kind,
       r.actor, r.sources, r.keys, r.tenant_keys, r.notes, r.type, r.body, r.salt
FROM (SELECT space, field, value, position, ordinal, record FROM keys
      WHERE space = ?1 AND field = ?2 AND value >= ?3 AND value < ?4 AND position <= ?11
      UNION ALL
      SELECT space, field, value, position, ordinal, record FROM past_keys
      WHERE space = ?1 AND field = ?2 AND value >= ?3 AND value < ?4
        AND position <= ?11 AND until > ?11) k
JOIN records r ON r.id = k.record JOIN streams s ON s.id = r.stream
WHERE (k.value, k.position, k.ordinal) > (?5, ?6, ?7) AND r.number >= ?8 AND r.number < ?9
ORDER BY k.value, k.position, k.ordinal LIMIT ?10

-- :find_back_at The same, last first.
SELECT k.value, s.oid, r.number, r.position, r.ordinal, r.time_us, r.action, r.partition, r.kind,
       r.actor, r.sources, r.keys, r.tenant_keys, r.notes, r.type, r.body, r.salt
FROM (SELECT space, field, value, position, ordinal, record FROM keys
      WHERE space = ?1 AND field = ?2 AND value >= ?3 AND value < ?4 AND position <= ?11
      UNION ALL
      SELECT space, field, value, position, ordinal, record FROM past_keys
      WHERE space = ?1 AND field = ?2 AND value >= ?3 AND value < ?4
        AND position <= ?11 AND until > ?11) k
JOIN records r ON r.id = k.record JOIN streams s ON s.id = r.stream
WHERE (k.value, k.position, k.ordinal) < (?5, ?6, ?7) AND r.number >= ?8 AND r.number < ?9
ORDER BY k.value DESC, k.position DESC, k.ordinal DESC LIMIT ?10

-- :records_homeless check(): streams and records of tenants that there are not.
SELECT (SELECT count(*) FROM streams WHERE tenant NOT IN (SELECT id FROM tenants))
     + (SELECT count(*) FROM records
        WHERE (id + CASE WHEN id < 0 THEN 1 << 62 ELSE 0 END) >> 40 NOT IN (SELECT id FROM tenants))

-- :records_astray check(): records outside their tenant's numbers, or of no stream of its.
SELECT count(*) FROM records r LEFT JOIN streams s ON s.id = r.stream
WHERE (r.id BETWEEN :first AND :last OR r.id BETWEEN :further_first AND :further_last)
  AND (r.stream IS NOT NULL AND s.tenant IS NOT :tenant OR r.id > 0 AND r.id - :first <> r.position)

-- :records_elsewhere check(): records of the tenant's streams with another tenant's numbers.
SELECT count(*) FROM streams s JOIN records r ON r.stream = s.id
WHERE s.tenant = :tenant AND NOT (r.id BETWEEN :first AND :last OR r.id BETWEEN :further_first AND :further_last)

-- :users_astray check(): records whose user is unknown, or another tenant's.
SELECT count(*) FROM streams s JOIN records r ON r.stream = s.id
LEFT JOIN partitions p ON p.id = r.partition
WHERE s.tenant = :tenant AND r.salt IS NOT NULL AND p.tenant IS NOT :tenant

-- :holdings_wrong check(): users not noted with a stream of theirs, or noted in vain.
WITH held AS (SELECT DISTINCT r.partition, r.stream FROM streams s JOIN records r ON r.stream = s.id
              WHERE s.tenant = :tenant AND r.partition IS NOT NULL),
     noted AS (SELECT h.partition, h.stream FROM streams s JOIN holdings h ON h.stream = s.id
               WHERE s.tenant = :tenant)
SELECT (SELECT count(*) FROM (SELECT * FROM held EXCEPT SELECT * FROM noted))
     + (SELECT count(*) FROM (SELECT * FROM noted EXCEPT SELECT * FROM held))

-- :used_keys_wrong check(): idempotency keys that are forgotten too early, or invented.
SELECT (SELECT count(*) FROM records c JOIN tenants t ON t.id = :tenant
        WHERE c.id BETWEEN :first + t.keys_from AND :last AND c.key >= '=' AND c.key < '>'
          AND NOT EXISTS (SELECT 1 FROM used_keys u
                          WHERE u.tenant = :tenant AND u.key = c.key AND u.position >= c.position))
     + (SELECT count(*) FROM used_keys u JOIN tenants t ON t.id = u.tenant WHERE u.tenant = :tenant
          AND (u.position < t.keys_from OR NOT EXISTS (
               SELECT 1 FROM records c WHERE c.id = :first + u.position AND c.key = u.key)))

-- :keyed_records check(): every record with secondary keys, and what came after it.
SELECT r.number, r.position, r.ordinal, r.time_us, r.action, r.partition, r.kind, r.actor,
       r.sources, r.keys, r.tenant_keys, r.notes, r.type, r.body, r.salt, r.id, s.id, s.kind,
       (SELECT n.position FROM records n WHERE n.stream = r.stream AND n.number = r.number + 1)
FROM streams s JOIN records r ON r.stream = s.id
WHERE s.tenant = ? AND (r.keys IS NOT NULL OR r.tenant_keys IS NOT NULL)

-- :has_key check(): one key of a current record.
SELECT count(*) FROM keys
WHERE space = ? AND field = ? AND value = ? AND position = ? AND ordinal = ? AND record = ?

-- :has_past_key check(): one key of an older version.
SELECT count(*) FROM past_keys
WHERE space = ? AND field = ? AND value = ? AND until = ? AND position = ? AND ordinal = ?
  AND record = ?

-- :all_keys check(): how many keys the tenant has, now and in the past.
WITH spaces AS (SELECT id * 4 AS space FROM streams WHERE tenant = ?1
                UNION ALL SELECT id * 4 + 1 FROM partitions WHERE tenant = ?1
                UNION ALL SELECT ?1 * 4 + 2)
SELECT (SELECT count(*) FROM spaces s JOIN keys k ON k.space = s.space)
     + (SELECT count(*) FROM spaces s JOIN past_keys k ON k.space = s.space)

-- :living_logs check(): counted afresh.
SELECT count(*) FROM streams WHERE tenant = ? AND kind = 'log' AND dropped = 0

-- :living_documents check(): counted afresh.
SELECT count(*) FROM streams s WHERE tenant = ? AND kind = 'document' AND dropped = 0
  AND 3 <> (SELECT action FROM records WHERE stream = s.id ORDER BY number DESC LIMIT 1)

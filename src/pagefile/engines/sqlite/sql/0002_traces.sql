-- Format 2: a tenant's row says whether the file has to be written again for it.

-- The last position that removed something since the file was last written again, or 0. What
-- earlier formats removed was not noted: it is taken for left, and goes with the next erasure.
ALTER TABLE tenants ADD COLUMN traces INTEGER NOT NULL DEFAULT 0;
UPDATE tenants SET traces = 1;

-- Content is not sampled for the planner. Samples are copies: they outlive an erasure, also
-- when its tables are written anew, and no plan of ours depends on them.
ALTER TABLE users ALTER name SET STATISTICS 0;
ALTER TABLE streams ALTER name SET STATISTICS 0;
ALTER TABLE records
    ALTER key SET STATISTICS 0, ALTER usr SET STATISTICS 0, ALTER kind SET STATISTICS 0,
    ALTER actor SET STATISTICS 0, ALTER sources SET STATISTICS 0, ALTER keys SET STATISTICS 0,
    ALTER tenant_keys SET STATISTICS 0, ALTER notes SET STATISTICS 0, ALTER type SET STATISTICS 0,
    ALTER salt SET STATISTICS 0, ALTER body SET STATISTICS 0;
ALTER TABLE keys ALTER field SET STATISTICS 0, ALTER value SET STATISTICS 0;
ALTER TABLE past_keys ALTER field SET STATISTICS 0, ALTER value SET STATISTICS 0;

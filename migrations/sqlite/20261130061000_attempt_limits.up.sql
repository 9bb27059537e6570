-- What an attempt is blocked by and since when, what it is being stopped for, and for how long its runs have run.
ALTER TABLE attempts ADD COLUMN blocked_by TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN blocked_since INTEGER;
ALTER TABLE attempts ADD COLUMN stop_code TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN ran INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN run_started_at INTEGER;
ALTER TABLE attempts ADD COLUMN run_ended INTEGER NOT NULL DEFAULT 0;

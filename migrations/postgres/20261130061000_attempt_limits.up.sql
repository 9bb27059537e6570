-- What an attempt is blocked by and since when, what it is being stopped for, and for how long its runs have run.
ALTER TABLE attempts ADD COLUMN blocked_by TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN blocked_since BIGINT;
ALTER TABLE attempts ADD COLUMN stop_code TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN ran BIGINT NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN run_started_at BIGINT;
ALTER TABLE attempts ADD COLUMN run_ended BOOLEAN NOT NULL DEFAULT FALSE;

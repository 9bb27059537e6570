-- The first schema. Ids and names are text of any length, ordered bytewise. Times are microseconds since 1970 in UTC, so
-- that both databases give back exactly what was stored and order it alike. JSON is text, kept byte for byte. A
-- statement ends with a semicolon at the end of a line.

CREATE TABLE users (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    groups     TEXT    NOT NULL DEFAULT '[]',
    admin      INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX users_name ON users (name);

CREATE TABLE api_keys (
    id          TEXT    NOT NULL PRIMARY KEY,
    user_id     TEXT    NOT NULL REFERENCES users (id),
    name        TEXT    NOT NULL,
    prefix      TEXT    NOT NULL,
    secret_hash TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER,
    revoked_at  INTEGER
) STRICT;
CREATE UNIQUE INDEX api_keys_prefix ON api_keys (prefix);
CREATE INDEX api_keys_user ON api_keys (user_id, id);

CREATE TABLE clusters (
    id              TEXT    NOT NULL PRIMARY KEY,
    name            TEXT    NOT NULL,
    type            TEXT    NOT NULL,
    provider_config TEXT    NOT NULL,
    namespace       TEXT,
    labels          TEXT    NOT NULL DEFAULT '{}',
    sort_order      INTEGER NOT NULL DEFAULT 0,
    active          INTEGER NOT NULL,
    queue_name      TEXT    NOT NULL DEFAULT '',
    max_runtime     INTEGER,
    provisioning    TEXT    NOT NULL,
    cordon          TEXT,
    observed        TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    revision        INTEGER NOT NULL,
    config_revision INTEGER NOT NULL,
    removed_at      INTEGER
) STRICT;
-- A removed cluster stays for the history of what ran there, and frees its name.
CREATE UNIQUE INDEX clusters_name ON clusters (name) WHERE removed_at IS NULL;

CREATE TABLE projects (
    id           TEXT    NOT NULL PRIMARY KEY,
    name         TEXT    NOT NULL,
    labels       TEXT    NOT NULL DEFAULT '{}',
    home_cluster TEXT    REFERENCES clusters (id),
    allowed      TEXT,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    revision     INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX projects_name ON projects (name);

CREATE TABLE project_members (
    project_id TEXT NOT NULL REFERENCES projects (id),
    user_id    TEXT NOT NULL REFERENCES users (id),
    PRIMARY KEY (project_id, user_id)
) STRICT;
CREATE INDEX project_members_user ON project_members (user_id, project_id);

CREATE TABLE processes (
    id           TEXT    NOT NULL PRIMARY KEY,
    project_id   TEXT    NOT NULL REFERENCES projects (id),
    name         TEXT    NOT NULL,
    type         TEXT    NOT NULL,
    labels       TEXT    NOT NULL DEFAULT '{}',
    created_by   TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    last_version INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX processes_name ON processes (project_id, name);
CREATE INDEX processes_project ON processes (project_id, id);

-- state and cluster_id are those of the latest attempt, attempt_id, and are kept by the transaction that changes it.
CREATE TABLE process_versions (
    id              TEXT    NOT NULL PRIMARY KEY,
    process_id      TEXT    NOT NULL REFERENCES processes (id),
    project_id      TEXT    NOT NULL REFERENCES projects (id),
    number          INTEGER NOT NULL,
    spec            TEXT    NOT NULL,
    submitted_by    TEXT    NOT NULL,
    idempotency_key TEXT,
    body_hash       TEXT    NOT NULL,
    attempt_id      TEXT    NOT NULL,
    state           TEXT    NOT NULL,
    cluster_id      TEXT    REFERENCES clusters (id),
    created_at      INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX process_versions_number ON process_versions (process_id, number);
CREATE UNIQUE INDEX process_versions_key ON process_versions (project_id, idempotency_key);
CREATE INDEX process_versions_project ON process_versions (project_id, id);
CREATE INDEX process_versions_project_state ON process_versions (project_id, state, id);
CREATE INDEX process_versions_process ON process_versions (process_id, id);
CREATE INDEX process_versions_state ON process_versions (state, id);
CREATE INDEX process_versions_cluster ON process_versions (cluster_id, id);
CREATE INDEX process_versions_cluster_state ON process_versions (cluster_id, state, id);

CREATE TABLE attempts (
    id                  TEXT    NOT NULL PRIMARY KEY,
    version_id          TEXT    NOT NULL REFERENCES process_versions (id),
    process_id          TEXT    NOT NULL,
    project_id          TEXT    NOT NULL,
    number              INTEGER NOT NULL,
    state               TEXT    NOT NULL,
    reason_code         TEXT    NOT NULL DEFAULT '',
    reason              TEXT    NOT NULL DEFAULT '',
    cluster_id          TEXT    REFERENCES clusters (id),
    cluster_identity    TEXT    NOT NULL DEFAULT '',
    namespace           TEXT    NOT NULL DEFAULT '',
    job_name            TEXT    NOT NULL DEFAULT '',
    job_uid             TEXT    NOT NULL DEFAULT '',
    next_try_at         INTEGER NOT NULL,
    tries               INTEGER NOT NULL DEFAULT 0,
    error_since         INTEGER,
    intent_at           INTEGER,
    create_deadline     INTEGER,
    unreachable_since   INTEGER,
    cancel_requested_at INTEGER,
    cancel_requested_by TEXT    NOT NULL DEFAULT '',
    exit_code           INTEGER,
    runs                INTEGER NOT NULL DEFAULT 0,
    logs_stored         INTEGER NOT NULL DEFAULT 0,
    created_at          INTEGER NOT NULL,
    placed_at           INTEGER,
    job_at              INTEGER,
    started_at          INTEGER,
    ended_at            INTEGER,
    updated_at          INTEGER NOT NULL,
    revision            INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX attempts_number ON attempts (version_id, number);
-- Those to place, in the order of submission (ids of versions are ordered by time).
CREATE INDEX attempts_placing ON attempts (version_id, id, next_try_at) WHERE state = 'placing';
-- ended_at is set exactly when the state is terminal.
CREATE INDEX attempts_live ON attempts (cluster_id, id) WHERE ended_at IS NULL;
CREATE INDEX attempts_logs ON attempts (cluster_id, id) WHERE logs_stored = FALSE AND ended_at IS NOT NULL AND job_uid <> '';

CREATE TABLE decisions (
    id          TEXT    NOT NULL PRIMARY KEY,
    attempt_id  TEXT    NOT NULL REFERENCES attempts (id),
    at          INTEGER NOT NULL,
    outcome     TEXT    NOT NULL,
    rule        TEXT    NOT NULL,
    cluster_id  TEXT    NOT NULL,
    plugin      TEXT    NOT NULL,
    reason_code TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    asked       TEXT    NOT NULL,
    candidates  TEXT    NOT NULL
) STRICT;
CREATE INDEX decisions_attempt ON decisions (attempt_id, id);

CREATE TABLE events (
    seq        INTEGER NOT NULL PRIMARY KEY,
    at         INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    project_id TEXT,
    process_id TEXT,
    version_id TEXT,
    attempt_id TEXT,
    cluster_id TEXT,
    actor      TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    message    TEXT    NOT NULL,
    data       TEXT
) STRICT;
CREATE INDEX events_project ON events (project_id, seq);
CREATE INDEX events_version ON events (version_id, seq);

-- The last number given to an event. Its row is changed in the transaction that writes the events, so the numbers are
-- in the order of the commits and have no gaps.
CREATE TABLE event_counter (
    id  INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    seq INTEGER NOT NULL
) STRICT;

CREATE TABLE settings (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

INSERT INTO event_counter (id, seq) VALUES (1, 0);
INSERT INTO clusters (id, name, type, provider_config, namespace, active, provisioning, observed, created_at, updated_at, revision, config_revision)
VALUES ('default-cluster-00000000-0000-0000-0000-000000000000', 'Default Cluster', 'same-as-backend', '{}', NULL, 1, 'active', '{"health":"unknown"}',
    CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), 1, 1);
INSERT INTO settings (key, value) VALUES ('default_cluster', 'default-cluster-00000000-0000-0000-0000-000000000000');
INSERT INTO projects (id, name, created_at, updated_at, revision)
VALUES ('default-project-00000000-0000-0000-0000-000000000000', 'default',
    CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), 1);

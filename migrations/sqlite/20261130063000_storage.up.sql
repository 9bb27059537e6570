-- Where projects keep their data. The credentials are encrypted; bucket and prefix stay while projects use them.
CREATE TABLE storage_backends (
    id          TEXT    NOT NULL PRIMARY KEY,
    name        TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    endpoint    TEXT    NOT NULL,
    region      TEXT    NOT NULL,
    bucket      TEXT    NOT NULL,
    prefix      TEXT    NOT NULL,
    path_style  INTEGER NOT NULL,
    labels      TEXT    NOT NULL DEFAULT '{}',
    credentials TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    revision    INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX storage_backends_name ON storage_backends (name);

ALTER TABLE projects ADD COLUMN storage_backend TEXT REFERENCES storage_backends (id);
CREATE INDEX projects_storage_backend ON projects (storage_backend);

-- The Secrets that may exist at clusters, and the attempts whose Jobs may name them. A row is there before the Secret is.
CREATE TABLE storage_secrets (
    id         TEXT NOT NULL PRIMARY KEY,
    cluster_id TEXT NOT NULL REFERENCES clusters (id),
    namespace  TEXT NOT NULL,
    name       TEXT NOT NULL
) STRICT;
CREATE INDEX storage_secrets_cluster ON storage_secrets (cluster_id, id);

CREATE TABLE storage_uses (
    secret_id  TEXT NOT NULL REFERENCES storage_secrets (id),
    attempt_id TEXT NOT NULL REFERENCES attempts (id),
    PRIMARY KEY (secret_id, attempt_id)
) STRICT;

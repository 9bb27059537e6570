-- Where projects keep their data. The credentials are encrypted; bucket and prefix stay while projects use them.
CREATE TABLE storage_backends (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    endpoint TEXT COLLATE "C" NOT NULL,
    region TEXT COLLATE "C" NOT NULL,
    bucket TEXT COLLATE "C" NOT NULL,
    prefix TEXT COLLATE "C" NOT NULL,
    path_style  BOOLEAN NOT NULL,
    labels TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    credentials TEXT COLLATE "C" NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    revision    BIGINT NOT NULL
);
CREATE UNIQUE INDEX storage_backends_name ON storage_backends (name);

ALTER TABLE projects ADD COLUMN storage_backend TEXT COLLATE "C" REFERENCES storage_backends (id);
CREATE INDEX projects_storage_backend ON projects (storage_backend);

-- The Secrets that may exist at clusters, and the attempts whose Jobs may name them. A row is there before the Secret is.
CREATE TABLE storage_secrets (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    cluster_id TEXT COLLATE "C" NOT NULL REFERENCES clusters (id),
    namespace TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL
);
CREATE INDEX storage_secrets_cluster ON storage_secrets (cluster_id, id);

CREATE TABLE storage_uses (
    secret_id TEXT COLLATE "C" NOT NULL REFERENCES storage_secrets (id),
    attempt_id TEXT COLLATE "C" NOT NULL REFERENCES attempts (id),
    PRIMARY KEY (secret_id, attempt_id)
);

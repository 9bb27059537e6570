-- How the health of each cluster went. The newest rows of each cluster are kept; their ids order them.
CREATE TABLE cluster_history (
    id         TEXT NOT NULL PRIMARY KEY,
    cluster_id TEXT NOT NULL REFERENCES clusters (id),
    at         BIGINT NOT NULL,
    was        TEXT NOT NULL,
    became     TEXT NOT NULL,
    reason     TEXT NOT NULL,
    message    TEXT NOT NULL
);
CREATE INDEX cluster_history_cluster ON cluster_history (cluster_id, id);

-- The last connection test of each cluster's stored config, as the API shows it. A report belongs to the revision of the
-- config that it tested.

CREATE TABLE cluster_tests (
    cluster_id      TEXT    NOT NULL PRIMARY KEY REFERENCES clusters (id),
    config_revision BIGINT  NOT NULL,
    report          TEXT    NOT NULL
);

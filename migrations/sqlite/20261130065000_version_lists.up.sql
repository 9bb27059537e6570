-- The versions of a project on a cluster, and those of them in a state, newest first.
CREATE INDEX process_versions_project_cluster ON process_versions (project_id, cluster_id, id);
CREATE INDEX process_versions_project_cluster_state ON process_versions (project_id, cluster_id, state, id);

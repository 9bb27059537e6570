-- Whose Lease stands in the cluster's job namespace when it is not ours: nothing is written there until an admin confirms.
ALTER TABLE clusters ADD COLUMN lease TEXT;

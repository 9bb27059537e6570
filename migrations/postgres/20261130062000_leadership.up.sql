-- Which of several servers leads. Each term has an epoch, and what the leader writes holds this row by it (FOR KEY SHARE)
-- until its commit: a renewal changes no key and waits for nothing, a take-over changes the key and waits for those commits.

CREATE TABLE leadership (
    id         BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    epoch      BIGINT NOT NULL,
    holder     TEXT NOT NULL,
    address    TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX leadership_epoch ON leadership (epoch);
INSERT INTO leadership (id, epoch, holder, address, expires_at) VALUES (1, 0, '', '', 0);

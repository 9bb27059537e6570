-- Which of several servers leads. With SQLite there is one server, and nobody writes here: the table keeps the schemas equal.

CREATE TABLE leadership (
    id         INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    epoch      INTEGER NOT NULL,
    holder     TEXT    NOT NULL,
    address    TEXT    NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX leadership_epoch ON leadership (epoch);
INSERT INTO leadership (id, epoch, holder, address, expires_at) VALUES (1, 0, '', '', 0);

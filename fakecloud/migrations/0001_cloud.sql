-- Times are Unix nanoseconds, zero for none. Lists of tags are JSON.
CREATE TABLE volumes (
	id          TEXT PRIMARY KEY,
	name        TEXT NOT NULL,
	region      TEXT NOT NULL,
	description TEXT NOT NULL,
	size_gib    INTEGER NOT NULL,
	droplet     INTEGER NOT NULL, -- zero when detached
	created     INTEGER NOT NULL,
	fs_type     TEXT NOT NULL,
	fs_label    TEXT NOT NULL,
	tags        TEXT NOT NULL,
	UNIQUE (region, name)
) WITHOUT ROWID;

-- AUTOINCREMENT keeps the highest id ever given, so that none comes twice.
CREATE TABLE droplets (
	id      INTEGER PRIMARY KEY AUTOINCREMENT,
	name    TEXT NOT NULL,
	region  TEXT NOT NULL,
	size    TEXT NOT NULL,
	image   TEXT NOT NULL,
	status  TEXT NOT NULL,
	created INTEGER NOT NULL,
	tags    TEXT NOT NULL
);

CREATE TABLE actions (
	id       INTEGER PRIMARY KEY AUTOINCREMENT,
	type     TEXT NOT NULL,
	status   TEXT NOT NULL,
	started  INTEGER NOT NULL,
	ended    INTEGER NOT NULL,
	region   TEXT NOT NULL,
	volume   TEXT NOT NULL, -- empty for an action on a droplet
	droplet  INTEGER NOT NULL,
	size_gib INTEGER NOT NULL,
	error    TEXT NOT NULL
);

CREATE TABLE snapshots (
	id       TEXT PRIMARY KEY,
	name     TEXT NOT NULL UNIQUE,
	region   TEXT NOT NULL,
	volume   TEXT NOT NULL,
	size_gib INTEGER NOT NULL,
	bytes    INTEGER NOT NULL,
	created  INTEGER NOT NULL,
	tags     TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE tags (
	name TEXT PRIMARY KEY COLLATE NOCASE -- the case of its first creation stays
) WITHOUT ROWID;

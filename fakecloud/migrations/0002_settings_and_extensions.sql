-- One row: the JSON merge patch by which the settings were changed.
CREATE TABLE settings (
	id    INTEGER PRIMARY KEY CHECK (id = 1),
	patch TEXT NOT NULL
);

-- What the real cloud does not have. Attachments beyond the first, as a JSON list of
-- droplets; the performance that was asked for, as JSON, empty for none.
ALTER TABLE volumes ADD COLUMN shared      INTEGER NOT NULL DEFAULT 0;
ALTER TABLE volumes ADD COLUMN more        TEXT NOT NULL DEFAULT '[]';
ALTER TABLE volumes ADD COLUMN performance TEXT NOT NULL DEFAULT '';
ALTER TABLE volumes ADD COLUMN read_only   INTEGER NOT NULL DEFAULT 0;
ALTER TABLE actions ADD COLUMN read_only   INTEGER NOT NULL DEFAULT 0;

-- What a droplet was given at its creation, for its metadata service.
ALTER TABLE droplets ADD COLUMN user_data TEXT NOT NULL DEFAULT '';

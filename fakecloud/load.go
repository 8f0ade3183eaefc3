package fakecloud

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
)

// load reads the whole database into memory.
func (s *store) load() (*state, error) {
	st := newState()
	var ch change
	err := rows(s.db, `SELECT * FROM volumes`, func(r *sql.Rows) error {
		var v Volume
		var created int64
		var tags, more, performance string
		if err := r.Scan(&v.ID, &v.Name, &v.Region, &v.Description, &v.SizeGiB, &v.Droplet, &created, &v.FilesystemType, &v.FilesystemLabel, &tags,
			&v.Shared, &more, &performance, &v.ReadOnly); err != nil {
			return err
		}
		v.Created = instant(created)
		err := errors.Join(json.Unmarshal([]byte(tags), &v.Tags), json.Unmarshal([]byte(more), &v.More))
		if performance != "" {
			err = errors.Join(err, json.Unmarshal([]byte(performance), &v.Performance))
		}
		ch.volumes = append(ch.volumes, v)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read volumes: %w", err)
	}
	err = rows(s.db, `SELECT * FROM droplets`, func(r *sql.Rows) error {
		var d Droplet
		var created int64
		var tags string
		if err := r.Scan(&d.ID, &d.Name, &d.Region, &d.Size, &d.Image, &d.Status, &created, &tags, &d.UserData); err != nil {
			return err
		}
		d.Created = instant(created)
		ch.droplets = append(ch.droplets, d)
		return json.Unmarshal([]byte(tags), &ch.droplets[len(ch.droplets)-1].Tags)
	})
	if err != nil {
		return nil, fmt.Errorf("read droplets: %w", err)
	}
	err = rows(s.db, `SELECT * FROM actions ORDER BY id`, func(r *sql.Rows) error {
		var a Action
		var started, ended int64
		if err := r.Scan(&a.ID, &a.Type, &a.Status, &started, &ended, &a.Region, &a.Volume, &a.Droplet, &a.SizeGiB, &a.Error, &a.ReadOnly); err != nil {
			return err
		}
		a.Started, a.Ended = instant(started), instant(ended)
		ch.actions = append(ch.actions, a)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read actions: %w", err)
	}
	err = rows(s.db, `SELECT * FROM snapshots`, func(r *sql.Rows) error {
		var n Snapshot
		var created int64
		var tags string
		if err := r.Scan(&n.ID, &n.Name, &n.Region, &n.Volume, &n.SizeGiB, &n.Bytes, &created, &tags); err != nil {
			return err
		}
		n.Created = instant(created)
		ch.snapshots = append(ch.snapshots, n)
		return json.Unmarshal([]byte(tags), &ch.snapshots[len(ch.snapshots)-1].Tags)
	})
	if err != nil {
		return nil, fmt.Errorf("read snapshots: %w", err)
	}
	err = rows(s.db, `SELECT name FROM tags`, func(r *sql.Rows) error {
		var name string
		err := r.Scan(&name)
		ch.tags = append(ch.tags, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read tags: %w", err)
	}
	err = rows(s.db, `SELECT name, seq FROM sqlite_sequence`, func(r *sql.Rows) error {
		var name string
		var seq int64
		if err := r.Scan(&name, &seq); err != nil {
			return err
		}
		switch name {
		case "droplets":
			st.lastDroplet = max(st.lastDroplet, DropletID(seq))
		case "actions":
			st.lastAction = max(st.lastAction, ActionID(seq))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read sequences: %w", err)
	}
	st.apply(ch)
	return st, nil
}

func rows(db *sql.DB, query string, each func(*sql.Rows) error) error {
	r, err := db.Query(query)
	if err != nil {
		return err
	}
	defer r.Close()
	for r.Next() {
		if err := each(r); err != nil {
			return err
		}
	}
	return r.Err()
}

// Package fakecloud is a block-storage cloud in one process: what vcsim is to
// vSphere, it is to DigitalOcean volumes. This package holds the domain, that is
// volumes, droplets, actions, snapshots, tags, limits and rules; package api
// speaks its HTTP form and package blockdev makes the disks.
//
// Promises.
//   - What a call acknowledged is in the database: kill -9 loses none of it.
//   - A volume's Droplet and a droplet's Volumes agree in every answer: both are
//     read from one record that changes in one transaction.
//   - An attach shows completed only after the device and its link exist with their
//     full size; a detach, only after both are gone.
//   - An action found in progress at Open runs again and ends completed or errored,
//     with its effect and its record in agreement.
//   - An image without a record is removed at Open; a record is written only after
//     its image exists.
//
// Ordering. Reads see one consistent state. Events of one volume, such as an
// attach and a resize, never overlap.
//
// Blocking. Attach, detach, resize, power and destroy answer at once and go on in
// the background. Creating and deleting volumes and snapshots answer when done.
// A caller that gives up does not stop a snapshot that is being copied.
//
// Ownership. A Cloud owns its database, its goroutines and one lab component of
// kind "cloud". The block devices belong to whoever made them and outlive it: a
// Cloud that is killed and opened again finds its devices still attached. The
// owner closes the Cloud first, then the devices.
package fakecloud

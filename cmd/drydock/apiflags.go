package main

import (
	"path/filepath"

	"github.com/spf13/pflag"

	"drydock.dev/drydock/internal/cluster"
)

// apiFlags say how "drydock up" serves the Kubernetes API.
type apiFlags struct {
	durability, authorization, auditLog string
	only, controllers, tokenVolume      bool
	componentFields                     bool
}

func (f *apiFlags) add(p *pflag.FlagSet) {
	p.StringVar(&f.durability, "durability", cluster.DefaultDurability, "what a write survives: normal (the process's death), full (a loss of power), memory (nothing)")
	p.StringVar(&f.authorization, "authorization", cluster.DefaultAuthorization, "always-allow, or rbac: roles and bindings decide")
	p.StringVar(&f.auditLog, "audit-log", "", "append a line of JSON for each API request to this file")
	p.BoolVar(&f.tokenVolume, "token-volume", false, "give each pod the volume with its service account's token, as upstream does (pods and accounts may opt out)")
	p.BoolVar(&f.componentFields, "component-managed-fields", false, "record managedFields for what drydock's own components write, as upstream does for every writer")
	p.BoolVar(&f.only, "api-only", false, "serve the Kubernetes API alone, as envtest does: no nodes, no cloud, no driver, no controllers")
	p.BoolVar(&f.controllers, "controllers", false, "with --api-only: run the controllers as well (garbage collection, namespaces, binding ...)")
}

// options are the cluster's. The zero flags, of commands that do not offer them, are the defaults.
func (f *apiFlags) options() (cluster.APIOptions, error) {
	o := cluster.APIOptions{Durability: f.durability, Authorization: f.authorization, TokenVolume: f.tokenVolume, ComponentManagedFields: f.componentFields,
		Only: f.only, Controllers: f.controllers}
	if f.auditLog == "" {
		return o, nil
	}
	var err error
	o.AuditLog, err = filepath.Abs(f.auditLog)
	return o, err
}

// args are the flags on the command line of the process that is left running.
func (f *apiFlags) args() []string {
	out := []string{"--durability", f.durability, "--authorization", f.authorization}
	if f.auditLog != "" {
		out = append(out, "--audit-log", f.auditLog)
	}
	if f.tokenVolume {
		out = append(out, "--token-volume")
	}
	if f.componentFields {
		out = append(out, "--component-managed-fields")
	}
	if f.only {
		out = append(out, "--api-only")
	}
	if f.controllers {
		out = append(out, "--controllers")
	}
	return out
}

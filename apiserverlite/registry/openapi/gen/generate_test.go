package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"testing"
)

// The models in the repository are those that the generator makes from the modules of today.
func TestModelsAreCurrent(t *testing.T) {
	want, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../models.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(unpack(t, got), unpack(t, want)) {
		t.Error("models.json.gz is out of date: run go generate ./apiserverlite/registry/openapi")
	}
	if len(got) > 40<<10 {
		t.Errorf("models.json.gz has %d bytes: only structure belongs in it", len(got))
	}
	if bytes.Contains(unpack(t, got), []byte(`"description":"`)) {
		t.Error("models.json.gz holds descriptions")
	}
}

func unpack(t *testing.T, b []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

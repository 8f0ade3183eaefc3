package registry_test

import (
	"testing"

	"drydock.dev/drydock/apiserverlite/registry"
)

func TestOutsized(t *testing.T) {
	for body, want := range map[string]string{
		`{"storage":1e-99999999}`:             "1e-99999999",
		`{"storage":"1e2147483647"}`:          "1e2147483647",
		"storage: 12345678901234567890E9999":  "12345678901234567890E9999",
		"storage: 0.5e+0001000\n":             "0.5e+0001000",
		"\x12\x0b1e-99999999\x1a":             "1e-99999999",
		`{"storage":1e999}`:                   "",
		`{"storage":"5Gi"}`:                   "",
		`{"image":"x@sha256:12e99999ab12"}`:   "",
		`{"name":"a1e99999"}`:                 "",
		`{"image":"registry/7e12345:v1"}`:     "",
		`{"uid":"1e123456-aaaa"}`:             "",
		`{"uid":"aaaa-1e1234567890"}`:         "",
		`{"storage":-1e99999}`:                "1e99999",
		`{"version":"v1.2e12345"}`:            "",
		``:                                    "",
		`{"x":"e99999"}`:                      "",
		`{"x":"10:1e55555"}`:                  "",
		`{"resourceVersion":"123456789"}`:     "",
		`{"storage":1e00000000000000000000}`:  "",
		`{"storage":1e000000000000000000005}`: "",
	} {
		got, found := registry.Outsized([]byte(body))
		if got != want || found != (want != "") {
			t.Errorf("%s: %q", body, got)
		}
	}
}

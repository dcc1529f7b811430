package gateway

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestParseImport(t *testing.T) {
	for file, want := range map[string][2]string{
		"id.secret_c-m-abcdefgh.yaml":       {"id.secret", "c-m-abcdefgh"},
		"with_underscore_c-m-abcdefgh.yaml": {"with_underscore", "c-m-abcdefgh"},
		"id.secret_c-m-abcdefgh":            {},
		"c-m-abcdefgh.yaml":                 {},
		"_c-m-abcdefgh.yaml":                {},
		"id.secret_.yaml":                   {},
		".yaml":                             {},
		"":                                  {},
		strings.Repeat("a", maxTokenLength+1) + "_c.yaml": {},
	} {
		token, cluster, ok := parseImport(file)
		if token != want[0] || cluster != want[1] || ok != (want[0] != "") {
			t.Errorf("%q is token %q of cluster %q, %t", file, token, cluster, ok)
		}
	}
}

// TestTokensInPathsAreNotLogged: the path of an import is as secret as the token in it.
func TestTokensInPathsAreNotLogged(t *testing.T) {
	for path, want := range map[string]string{
		"/v3/import/id.planted_c-m-a.yaml": "/v3/import/...",
		"/v3/connect/agent":                "/v3/connect/agent",
	} {
		if got := loggedPath(httptest.NewRequest("GET", path, nil)); got != want {
			t.Errorf("%s is logged as %s", path, got)
		}
	}
}

package registration

import (
	"strings"
	"testing"

	"github.com/drover-dev/drover/hub/identity/tokens"
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
		strings.Repeat("a", tokens.MaxLength+1) + "_c.yaml": {},
	} {
		token, cluster := ParseImport(file)
		if token != want[0] || cluster != want[1] || (CheckImport(file) == nil) != (want[0] != "") {
			t.Errorf("%q is token %q of cluster %q", file, token, cluster)
		}
	}
}

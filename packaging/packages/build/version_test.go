package build

import (
	"os/exec"
	"strings"
	"testing"
)

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3~rc.1", "v1.2.3-alpha-2": "1.2.3~alpha.2", "v1.2.3+k3s1": "1.2.3+k3s1",
		"v1.2.3-4-gabcdef1": "1.2.3+4.gabcdef1", "v1.2.3-rc.1-4-gabcdef1-dirty": "1.2.3~rc.1+4.gabcdef1.dirty", "v1.2.3-dirty": "1.2.3+dirty",
		"v0.0.0+b8e7e65-dirty": "0.0.0+b8e7e65.dirty",
	} {
		got, err := ParseVersion(text)
		if err != nil || got.String() != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "v1", "v1.2", "dev", "b8e7e65", "v1.2.3 ", "v1.2.3-", "v1.2.3_1", "1.2.3\n"} {
		if got, err := ParseVersion(text); err == nil || !strings.HasPrefix(err.Error(), "version: must be a semantic version such as v1.2.3") {
			t.Errorf("%q: got %s, %v", text, got, err)
		}
	}
}

// TestVersionOrder asks dpkg: a list of tags and of commits between them has to be an upgrade each.
func TestVersionOrder(t *testing.T) {
	last := ""
	for _, text := range []string{
		"v0.0.0+b8e7e65", "v1.2.3-alpha.1", "v1.2.3-rc.1", "v1.2.3-rc.1-4-gabcdef1", "v1.2.3-rc.2", "v1.2.3", "v1.2.3-1-gfffffff",
		"v1.2.3-12-gaaaaaaa", "v1.2.4",
	} {
		version, err := ParseVersion(text)
		if err != nil {
			t.Fatal(err)
		}
		if last != "" {
			if err := exec.Command("dpkg", "--compare-versions", last, "lt", version.String()+"-"+release).Run(); err != nil {
				t.Errorf("%s is not newer than %s: %v", version, last, err)
			}
		}
		last = version.String() + "-" + release
	}
}

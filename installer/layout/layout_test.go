package layout

import "testing"

func TestCheckVersion(t *testing.T) {
	for _, test := range []struct{ runtime, version, err string }{
		{runtime: "k3s", version: "v1.36.3+k3s1"},
		{runtime: "rke2", version: "v1.36.3-rc1+rke2r12"},
		{runtime: "k3s", version: "v1.36.3+rke2r1", err: `version "v1.36.3+rke2r1" is not a version of k3s, which ends in +k3s1`},
		{runtime: "rke2", version: "v1.36.3", err: `version "v1.36.3" must have the form v1.36.3+rke2r1`},
		{runtime: "k3s", version: "v1.36.3-k3s1", err: `version "v1.36.3-k3s1" must have the form v1.36.3+k3s1`},
	} {
		err := Definition{Runtime: test.runtime, Title: test.runtime}.CheckVersion(test.version)
		if (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("CheckVersion(%q) = %v, want %q", test.version, err, test.err)
		}
	}
}

func TestTag(t *testing.T) {
	if got := Tag("v1.36.3+k3s1"); got != "v1.36.3-k3s1" {
		t.Errorf("tag is %q", got)
	}
}

package release

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func published(t testing.TB) *Published {
	t.Helper()
	raw, err := os.ReadFile("testdata/published.json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := ParsePublished(raw)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPublishedLookup(t *testing.T) {
	c := &Catalog{}
	c.Publish(published(t))
	tests := map[string]struct {
		version, assumed string
		// server and agent are arguments that must be known there with their types; "" means unknown.
		server, agent map[string]ArgType
		charts        []string
	}{
		"the very release": {
			version: "v1.35.2+k3s1",
			// What this program was built with knows that it is a number.
			server: map[string]ArgType{"https-listen-port": Int, "quantum-routing": Bool, "flux-level": Int, "flavour": String, "mystery": Any,
				"warp": List, "older": ""},
			agent:  map[string]ArgType{"quantum-routing": "", "warp": List, "kubelet-arg": List},
			charts: []string{"coredns", "traefik"},
		},
		"a newer patch": {
			version: "v1.35.9+k3s1", assumed: "is not in the release data; it is taken for a release like v1.35.2+k3s1",
			server: map[string]ArgType{"quantum-routing": Bool}, charts: []string{"coredns", "traefik"},
		},
		"a release candidate": {
			version: "v1.35.2-rc1+k3s1", assumed: "is not in the release data; it is taken for a release like v1.35.1+k3s1",
			server: map[string]ArgType{"quantum-routing": "", "older": String},
		},
		"another build": {
			version: "v1.35.2+k3s2", assumed: "is not in the release data; it is taken for a release like v1.35.2+k3s1",
			server: map[string]ArgType{"quantum-routing": Bool}, charts: []string{"coredns", "traefik"},
		},
		"a minor that only this program knows": {
			version: "v1.36.3+k3s1", assumed: "is not in the release data; it is taken for a release like others of v1.36",
			server: map[string]ArgType{"quantum-routing": "", "https-listen-port": Int},
		},
		"a minor that nobody knows": {
			version: "v1.41.0+k3s1", assumed: "is of a minor that this hub does not know; it is taken for a release like those of v1.36",
			server: map[string]ArgType{"quantum-routing": "", "https-listen-port": Int},
		},
		"a minor that the data is nearer to": {
			version: "v1.41.0+rke2r1", assumed: "is not in the release data; it is taken for a release like v1.38.0+rke2r1",
			server: map[string]ArgType{"next-generation": Bool, "cni": List},
		},
		"a minor that only the data knows": {
			version: "v1.38.0+rke2r1", server: map[string]ArgType{"next-generation": Bool, "cni": List},
			agent: map[string]ArgType{"next-generation": ""},
		},
		"before everything": {
			version: "v1.30.0+rke2r1", assumed: "is of a minor that this hub does not know; it is taken for a release like those of v1.33",
			server: map[string]ArgType{"cni": List, "next-generation": ""},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := c.Lookup(tc.version)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.assumed, r.Assumed); diff != "" {
				t.Error(diff)
			}
			for arg, want := range tc.server {
				if got, _ := r.Arg(arg, true); got != want {
					t.Errorf("%s on a server is %q, want %q", arg, got, want)
				}
			}
			for arg, want := range tc.agent {
				if got, _ := r.Arg(arg, false); got != want {
					t.Errorf("%s on an agent is %q, want %q", arg, got, want)
				}
			}
			if diff := cmp.Diff(tc.charts, r.Charts); diff != "" {
				t.Error(diff)
			}
			if got, want := r.Has(RotateEncryptionKeys), r.Minor >= 31; got != want {
				t.Errorf("keys are rotated with one command: %v, want %v", got, want)
			}
		})
	}
}

// TestPublishedChangesNoOtherRelease: what is published of one release is not found in others that have the same arguments otherwise.
func TestPublishedChangesNoOtherRelease(t *testing.T) {
	c := &Catalog{}
	c.Publish(published(t))
	if r, err := c.Lookup("v1.35.2+k3s1"); err != nil || r.ServerArgs["quantum-routing"] != Bool || r.AgentArgs["warp"] != List {
		t.Fatalf("got %+v, %v", r, err)
	}
	if r, err := Lookup("v1.35.2+k3s1"); err != nil || r.ServerArgs["quantum-routing"] != "" || r.AgentArgs["warp"] != "" {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestParsePublishedErrors(t *testing.T) {
	for raw, want := range map[string]string{
		"":                            "the release data is no JSON object: unexpected end of JSON input",
		"[]":                          "the release data is no JSON object",
		"{}":                          `the release data names no release; it needs "k3s" or "rke2", each with a list "releases"`,
		`{"k3s": []}`:                 "the release data of k3s cannot be read",
		`{"rke2": {"releases": {}}}`:  "the release data of rke2 cannot be read",
		`{"k3s": {"releases": [{}]}}`: "the release data names no release",
		`{"rke2": {"releases": [{"version": "v1.36.3+k3s1"}]}}`: "the release data names no release",
	} {
		_, err := ParsePublished([]byte(raw))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", raw, err, want)
		}
	}
}

func TestPublishTells(t *testing.T) {
	c := &Catalog{}
	var calls int
	c.OnChange(func() { calls++ })
	c.Await()
	if !c.Awaited() {
		t.Error("it is not awaited")
	}
	c.Publish(published(t))
	if calls != 1 || c.Awaited() {
		t.Errorf("called %d times, awaited %t", calls, c.Awaited())
	}
	if got := published(t).Len(); got != 4 {
		t.Errorf("there are %d releases", got)
	}
}

func TestVersionOrder(t *testing.T) {
	ordered := []string{"v1.33.9+k3s1", "v1.34.0-rc1+k3s1", "v1.34.0-rc2+k3s1", "v1.34.0+k3s1", "v1.34.0+k3s2", "v1.34.0+k3s10",
		"v1.34.10+k3s1"}
	for i, a := range ordered {
		for j, b := range ordered {
			va, _ := parse(a)
			vb, _ := parse(b)
			if got := va.compare(vb); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("%s compared with %s: %d", a, b, got)
			}
		}
	}
}

// Whatever is published, reading it ends, and what was read can be asked for any of its versions.
func FuzzParsePublished(f *testing.F) {
	raw, err := os.ReadFile("testdata/published.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"k3s": {"releases": [{"version": "v1.36.3+k3s1", "serverArgs": {"a": null}, "featureVersions": {"encryption-key-rotation": "x"}}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := ParsePublished(raw)
		if err != nil {
			return
		}
		c := &Catalog{}
		c.Publish(p)
		for _, releases := range p.releases {
			for _, r := range releases {
				if got, err := c.Lookup(r.Version); err != nil || got.Assumed != "" {
					t.Errorf("%s: %+v, %v", r.Version, got.Assumed, err)
				}
			}
		}
	})
}

func TestVersions(t *testing.T) {
	var c Catalog
	if got := c.Versions(); got != nil {
		t.Errorf("without data: %v", got)
	}
	c.Publish(published(t))
	got := c.Versions()
	for _, version := range got {
		if r, err := c.Lookup(version); err != nil || r.Assumed != "" {
			t.Errorf("%s: %q, %v", version, r.Assumed, err)
		}
	}
	if len(got) != published(t).Len() || len(got) == 0 {
		t.Errorf("got %v, want %d versions", got, published(t).Len())
	}
}

package release

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLookup(t *testing.T) {
	tests := map[string]struct {
		version, wantErr, wantAssumed string
	}{
		"k3s":               {version: "v1.36.3+k3s1"},
		"rke2":              {version: "v1.33.4+rke2r1"},
		"release candidate": {version: "v1.36.3-rc1+rke2r1"},
		"unknown minor": {version: "v1.99.0+k3s1",
			wantAssumed: "is of a minor that this hub does not know; it is taken for a release like those of v1.36"},
		"old minor": {version: "v1.20.1+rke2r2",
			wantAssumed: "is of a minor that this hub does not know; it is taken for a release like those of v1.33"},
		"unknown major": {version: "v2.36.0+k3s1",
			wantErr: `spec.kubernetesVersion: "v2.36.0+k3s1" is no version of Kubernetes: those start with v1`},
		"empty": {version: "", wantErr: `spec.kubernetesVersion: "" is empty; a version looks like v1.36.3+k3s1 or v1.36.3+rke2r1`},
		"no v": {version: "1.36.3+k3s1",
			wantErr: `spec.kubernetesVersion: "1.36.3+k3s1" lacks the v in front; did you mean "v1.36.3+k3s1"?`},
		"no build": {version: "v1.36.3",
			wantErr: `spec.kubernetesVersion: "v1.36.3" lacks the distribution; append +k3s1 or +rke2r1, as in "v1.36.3+k3s1"`},
		"foreign build": {version: "v1.36.3+vmware.1",
			wantErr: `spec.kubernetesVersion: "v1.36.3+vmware.1" ends in "+vmware.1", which is no build of k3s or RKE2; those look like +k3s1 and +rke2r1`},
		"nonsense": {version: "latest",
			wantErr: `spec.kubernetesVersion: "latest" is not a version; a version looks like v1.36.3+k3s1 or v1.36.3+rke2r1`},
		"huge number": {version: "v1.99999999999999999999.0+k3s1",
			wantErr: `spec.kubernetesVersion: "v1.99999999999999999999.0+k3s1" is not a version; a version looks like v1.36.3+k3s1 or v1.36.3+rke2r1`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := Lookup(tc.version)
			if tc.wantErr == "" {
				if err != nil || r.Version != tc.version || len(r.AgentArgs) == 0 {
					t.Fatalf("Lookup(%q) = %+v, %v", tc.version, r, err)
				}
				if diff := cmp.Diff(tc.wantAssumed, r.Assumed); diff != "" {
					t.Error(diff)
				}
				return
			}
			var ve *VersionError
			if !errors.As(err, &ve) {
				t.Fatalf("Lookup(%q): want a *VersionError, got %v", tc.version, err)
			}
			if diff := cmp.Diff(tc.wantErr, err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestArg(t *testing.T) {
	lookup := func(v string) Release {
		r, err := Lookup(v)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	tests := map[string]struct {
		version, name string
		server        bool
		want          ArgType
	}{
		"agent argument on an agent":                     {"v1.36.3+k3s1", "kubelet-arg", false, List},
		"agent argument on a server":                     {"v1.36.3+k3s1", "kubelet-arg", true, List},
		"server argument on a server":                    {"v1.36.3+k3s1", "https-listen-port", true, Int},
		"server argument on an agent":                    {"v1.36.3+k3s1", "https-listen-port", false, ""},
		"appending to a list":                            {"v1.36.3+k3s1", "node-label+", false, List},
		"appending to a string":                          {"v1.36.3+k3s1", "node-name+", false, ""},
		"argument of the other runtime":                  {"v1.36.3+k3s1", "cni", true, ""},
		"argument of rke2":                               {"v1.36.3+rke2r1", "cni", true, List},
		"argument that comes later":                      {"v1.33.3+rke2r1", "etcd-s3-retention", true, ""},
		"argument that came":                             {"v1.33.4+rke2r1", "etcd-s3-retention", true, Int},
		"argument that came before the next minor":       {"v1.34.0+k3s1", "etcd-s3-retention", true, Int},
		"argument of three older minors, before it came": {"v1.35.2+rke2r1", "prime", true, ""},
		"argument of three older minors":                 {"v1.35.3+rke2r1", "prime", true, Bool},
		"argument of three older minors, in the next":    {"v1.36.0+rke2r1", "prime", true, Bool},
		"argument that k3s does not show, on an agent":   {"v1.36.3+k3s1", "airgap-extra-registry", false, List},
		"argument that RKE2 does not show, on an agent":  {"v1.33.0+rke2r1", "airgap-extra-registry", false, List},
		"argument of the log that RKE2 does not show":    {"v1.36.3+rke2r1", "v", false, Int},
		"argument that comes with a later patch release": {"v1.35.6+k3s1", "helm-controller-arg", true, ""},
		"argument that came with a patch release":        {"v1.35.7+rke2r1", "helm-controller-arg", true, List},
		"patch release of a minor after those listed":    {"v1.99.0+k3s1", "helm-controller-arg", true, List},
		"interval":                              {"v1.33.0+rke2r1", "etcd-snapshot-reconcile-interval", true, String},
		"kubeconfig name":                       {"v1.36.5+rke2r1", "write-kubeconfig-name", true, String},
		"node name from the cloud, on an agent": {"v1.34.0+rke2r1", "node-name-from-cloud-provider-metadata", false, Bool},
		"bool":                                  {"v1.34.0+k3s1", "selinux", false, Bool},
		"what no release knows is unknown":      {"v1.34.0+k3s1", "clutser-cidr", true, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := lookup(tc.version).Arg(tc.name, tc.server)
			if got != tc.want || ok != (tc.want != "") {
				t.Errorf("got %q, %v; want %q", got, ok, tc.want)
			}
		})
	}
}

// TestFeatureOfPatch: a feature may have come with patch releases of several minors, as arguments do.
func TestFeatureOfPatch(t *testing.T) {
	for version, want := range map[string]bool{
		"v1.32.9+rke2r1": false, "v1.33.9+rke2r1": false, "v1.33.10+rke2r1": true, "v1.34.5+rke2r1": false, "v1.34.6+rke2r3": true,
		"v1.35.2+rke2r1": false, "v1.35.3+rke2r1": true, "v1.36.0+rke2r1": true, "v1.99.0+rke2r1": true, "v1.33.0+k3s1": true,
	} {
		r, err := Lookup(version)
		if err != nil {
			t.Fatal(err)
		}
		if r.Has(RegistryPath) != want {
			t.Errorf("%s has the features %v", version, r.Features)
		}
	}
}

// TestTables: the tables that were made once say the same of each release as the data does.
func TestTables(t *testing.T) {
	for runtime, c := range builtins {
		for minor := c.Minors.First - 1; minor <= c.Minors.Last+1; minor++ {
			for patch := range 40 {
				v := version{major: 1, minor: minor, patch: patch, runtime: runtime, build: 1}
				if minor > c.Minors.Last {
					patch = math.MaxInt
				}
				got, want := c.release("", v, c.nearest(minor)), c.table(c.nearest(minor), patch)
				if diff := cmp.Diff(want.agent, got.AgentArgs) + cmp.Diff(want.server, got.ServerArgs); diff != "" {
					t.Fatalf("%+v: %s", v, diff)
				}
			}
		}
	}
}

// TestLookupMakesNoTable: an operation asks about each machine in each reconcile.
func TestLookupMakesNoTable(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { _, _ = Lookup("v1.36.3+k3s1") }); n > 20 {
		t.Errorf("Lookup allocates %v times", n)
	}
}

// Every data file parses, has only the known types, lists no argument twice, and its bounds are about arguments that exist.
func TestData(t *testing.T) {
	for runtime, c := range builtins {
		if c.err != nil {
			t.Fatalf("%s: %v", runtime, c.err)
		}
		seen := map[string]bool{}
		for _, group := range []map[ArgType][]string{c.Agent, c.Server} {
			for typ, names := range group {
				switch typ {
				case String, Bool, Int, List:
				default:
					t.Errorf("%s: unknown type %q", runtime, typ)
				}
				for _, name := range names {
					if seen[name] {
						t.Errorf("%s: %s is listed twice", runtime, name)
					}
					seen[name] = true
				}
			}
		}
		for _, bounds := range []map[string]int{c.Since, c.Until} {
			for name := range bounds {
				if !seen[name] {
					t.Errorf("%s: a bound for %s, which is not listed", runtime, name)
				}
			}
		}
		if c.Minors.First == 0 || c.Minors.First > c.Minors.Last {
			t.Errorf("%s: minors %+v", runtime, c.Minors)
		}
	}
}

func TestNamesOf(t *testing.T) {
	want := Names{Runtime: "rke2", EnvPrefix: "RKE2", ServerUnit: "rke2-server", AgentUnit: "rke2-agent", ConfigDir: "/etc/rancher/rke2",
		DataDir: "/var/lib/rancher/rke2", SupervisorPort: 9345}
	if diff := cmp.Diff(want, NamesOf(Runtime("v1.36.3+rke2r1"))); diff != "" {
		t.Error(diff)
	}
	if got := NamesOf(Runtime("v1.36.3+k3s1")); got.SupervisorPort != 6443 || got.ServerUnit != "k3s" || got.AgentUnit != "k3s-agent" {
		t.Errorf("got %+v", got)
	}
}

func FuzzLookup(f *testing.F) {
	for _, s := range []string{"v1.36.3+k3s1", "v1.36.3+rke2r1", "1.2", "v1.36.3", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := Lookup(s)
		if err == nil && r.Runtime != Runtime(s) {
			t.Errorf("Lookup says %s, Runtime says %s", r.Runtime, Runtime(s))
		}
	})
}

// The pages for users name the minors of the data.
func TestMinorsOfPages(t *testing.T) {
	for _, runtime := range []string{K3s, RKE2} {
		first, last := Minors(runtime)
		want := fmt.Sprintf("v1.%d to v1.%d", first, last)
		for _, page := range []string{"CHANGELOG.md", "docs/plans.md", "docs/versions.md"} {
			raw, err := os.ReadFile("../../../" + page)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(raw), want) {
				t.Errorf("%s does not say that %s is supported in %s", page, runtime, want)
			}
		}
	}
}

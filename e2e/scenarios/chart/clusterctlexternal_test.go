//go:build e2e && full

package chart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/readme"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// TestClusterctlExternalCore installs the providers beside upstream's Cluster API and its Dev provider, all with clusterctl and with
// certificates of cert-manager. A machine becomes a cluster, the Dev provider makes machines for another one, and a lost cluster is
// restored from files. In the end clusterctl deletes everything.
func TestClusterctlExternalCore(t *testing.T) {
	m := &management{downstream: client.ObjectKey{Namespace: "fleet-default", Name: "edge"}}
	m.makeCluster(t, "manager10", "edge10")
	r := newRepository(t, m)
	suite.Step(t, "clusterctl init installs Cluster API, the providers and the Dev provider", func(t *testing.T) {
		m.startCertManager(t)
		r.addUpstream(t)
		r.initUpstream(t)
	})
	suite.Step(t, "a machine becomes the cluster that clusterctl generates", r.makeDownstream)
	suite.Step(t, "clusterctl describes the cluster and gets its kubeconfig", r.checkCluster)
	dev := &devCluster{repository: r, key: client.ObjectKey{Namespace: "fleet-dev", Name: "dev"}}
	suite.Step(t, "the Dev provider makes the machines of flavor dev", dev.create)
	suite.Step(t, "the Cluster of the Dev provider is deleted", dev.delete)
	suite.Step(t, "clusterctl restores the other cluster from files after all of its objects were lost", func(t *testing.T) {
		goesOn(t, m.machine, []string{"k3s"}, func() {
			r.backUp(t)
			r.lose(t)
			r.initUpstream(t)
			r.clusterctl(t, "move", "--from-directory", "backup")
			suite.Must(t, shared.WaitClusterReady(t.Context(), m.api, m.downstream, 3*time.Minute))
			suite.Must(t, shared.WaitConnected(t.Context(), m.api, m.downstream, 3*time.Minute))
			r.checkCluster(t)
		})
	})
	suite.Step(t, "clusterctl delete --include-crd is refused while there are clusters", func(t *testing.T) {
		if said := r.refused(t, append([]string{"delete", "--include-crd"}, providers...)...); !strings.Contains(said, "found existing objects") {
			t.Errorf("clusterctl delete says %s", said)
		}
		r.waitProviders(t, firstVersion)
	})
	suite.Step(t, "the cluster is deleted", r.deleteDownstream)
	suite.Step(t, "everything is deleted", func(t *testing.T) {
		r.deleteEverything(t)
		r.checkNothingLeft(t)
	})
}

// upstream is what addUpstream adds to the repository: the names of the providers' directories, their components and their images.
var upstream = map[string]struct{ kind, name, components, program string }{
	"cluster-api":                   {"CoreProvider", "cluster-api", "core-components.yaml", "cluster-api-controller"},
	"infrastructure-" + devProvider: {"InfrastructureProvider", devProvider, "infrastructure-components.yaml", "capd-manager"},
}

// devProvider is the name of Cluster API's Dev provider for clusterctl.
const devProvider = "docker"

// addUpstream adds upstream's providers to the configuration, beside the repository, as docs/clusterctl.md says, and their images to the
// lab's registry.
func (r *repository) addUpstream(t *testing.T) {
	t.Helper()
	r.config = filepath.Join(r.dir, "clusterctl.yaml")
	embedded, err := filepath.Glob(filepath.Join(r.dir, "cluster-api", "v*"))
	suite.Must(t, err)
	if len(embedded) != 1 {
		t.Fatalf("the repository has the versions %v of Cluster API", embedded)
	}
	version := filepath.Base(embedded[0])
	var providers, images strings.Builder
	for directory, p := range upstream {
		dir := filepath.Join(filepath.Dir(r.dir), "upstream", directory, version)
		suite.Must(t, os.MkdirAll(dir, 0o755))
		for _, name := range []string{p.components, "metadata.yaml"} {
			suite.Must(t, os.Symlink(bin(shared.Lab, "cluster-api/"+name), filepath.Join(dir, name)))
		}
		fmt.Fprintf(&providers, "  - {name: %s, type: %s, url: %s}\n", p.name, p.kind, filepath.Join(dir, p.components))
		fmt.Fprintf(&images, "  %s: {repository: docker.io/cluster-api, tag: %s}\n", directory, version)
		suite.Must(t, shared.PushProgram(t.Context(), lab.Program{
			Image: "cluster-api/" + p.program + ":" + version, File: bin(shared.Lab, "cluster-api/"+p.program), Path: "/manager",
		}))
	}
	config, err := os.ReadFile(r.config)
	suite.Must(t, err)
	content := strings.Replace(string(config), "\nproviders:\n", "\nproviders:\n"+providers.String(), 1) + "images:\n" + images.String()
	suite.Must(t, os.WriteFile(r.config, []byte(content), 0o600))
}

// initUpstream installs all providers.
func (r *repository) initUpstream(t *testing.T) {
	t.Helper()
	r.clusterctl(t, append([]string{"init", "--wait-providers", "--core", "cluster-api", "--infrastructure", devProvider}, providers...)...)
	r.waitProviders(t, firstVersion)
	r.checkExternal(t)
}

// checkExternal checks that Cluster API's controllers run, and that the hub has no webhooks for its kinds.
func (r *repository) checkExternal(t *testing.T) {
	t.Helper()
	d := &appsv1.Deployment{}
	suite.Must(t, r.management.api.Get(t.Context(), client.ObjectKey{Namespace: "capi-system", Name: "capi-controller-manager"}, d))
	if d.Status.ReadyReplicas == 0 {
		t.Errorf("Cluster API's controllers do not run: %+v", d.Status)
	}
	webhooks, err := r.management.webhooks(t.Context())
	if err != nil || webhooks != "" {
		t.Errorf("the hub has the webhooks %s (%v)", webhooks, err)
	}
}

// deleteDownstream deletes the Cluster, and waits until it is gone.
func (r *repository) deleteDownstream(t *testing.T) {
	t.Helper()
	m := r.management
	shared.RunKubectl(t, m.kubeconfig, "--namespace", m.downstream.Namespace, "delete", "clusters.provisioning.cattle.io", m.downstream.Name,
		"--timeout=5m")
	suite.Must(t, shared.WaitGone(t.Context(), m.api, m.downstream, 5*time.Minute))
}

// deleteEverything deletes the Dev provider, and then all others as docs/clusterctl.md says.
func (r *repository) deleteEverything(t *testing.T) {
	t.Helper()
	script, err := readme.PageScript(shared.Repo, "docs/clusterctl.md", "Delete everything")
	suite.Must(t, err)
	again := "clusterctl() { for try in 1 2 3 4 5; do ! command clusterctl \"$@\" || return 0; sleep 5; done; return 1; }\n"
	r.management.script(t, again+"clusterctl delete --infrastructure "+devProvider+" --include-crd --include-namespace\n"+script, r.env()...)
}

// checkNothingLeft checks that definitions, rights, webhooks and policies of the hub and of Cluster API are gone.
func (r *repository) checkNothingLeft(t *testing.T) {
	t.Helper()
	const kinds = "customresourcedefinitions,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingwebhookconfigurations," +
		"validatingadmissionpolicies,validatingadmissionpolicybindings"
	ours := regexp.MustCompile(`drover|(rke|provisioning|operation|management)\.cattle\.io|[a-z]\.cluster\.x-k8s\.io`)
	suite.Must(t, shared.WaitFor(t.Context(), "nothing is left", 2*time.Minute, func(ctx context.Context) (bool, string) {
		all, err := shared.TryKubectl(ctx, r.management.kubeconfig, "get", kinds, "--output", "name")
		if err != nil {
			return false, err.Error()
		}
		var left []string
		for name := range strings.FieldsSeq(all) { // clusterctl's own kind stays
			if ours.MatchString(name) && !strings.HasSuffix(name, "/providers.clusterctl.cluster.x-k8s.io") {
				left = append(left, name)
			}
		}
		return len(left) == 0, strings.Join(left, " ")
	}))
}

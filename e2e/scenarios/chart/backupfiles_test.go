//go:build e2e && full

package chart

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/e2e/readme"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// backUp writes the cluster to files, beside the repository, as docs/clusterctl.md says.
func (r *repository) backUp(t *testing.T) {
	t.Helper()
	script, err := readme.PageScript(shared.Repo, "docs/clusterctl.md", "Files", "fleet-default", r.management.downstream.Namespace, "first",
		r.management.downstream.Name)
	suite.Must(t, err)
	r.management.script(t, fmt.Sprintf("cd '%s'\n%s", filepath.Dir(r.dir), script), r.env()...)
}

// lose deletes the providers, and then all objects of the cluster, with nobody to look after the machine: as if the management cluster was
// made again.
func (r *repository) lose(t *testing.T) {
	t.Helper()
	m := r.management
	r.clusterctl(t, "delete", "--all")
	r.checkDeleted(t)
	kubectl := func(args ...string) string {
		return shared.RunKubectl(t, m.kubeconfig, append([]string{"--namespace", m.downstream.Namespace}, args...)...)
	}
	const kinds = "clusters.provisioning.cattle.io,clusters.management.cattle.io,rkeclusters.rke.cattle.io,rkecontrolplanes.rke.cattle.io," +
		"custommachines.rke.cattle.io,rkebootstraps.rke.cattle.io,clusters.cluster.x-k8s.io,machines.cluster.x-k8s.io"
	for _, name := range strings.Fields(kubectl("get", kinds, "--output", "name")) {
		kubectl("patch", name, "--type=merge", "--patch", `{"metadata": {"finalizers": null}}`)
		kubectl("delete", name, "--wait=false", "--ignore-not-found")
	}
	suite.Must(t, shared.WaitFor(t.Context(), "everything is lost", time.Minute, func(ctx context.Context) (bool, string) {
		left, err := shared.TryKubectl(ctx, m.kubeconfig, "get", kinds+",secrets", "--namespace", m.downstream.Namespace, "--output", "name")
		return err == nil && left == "", left
	}))
}

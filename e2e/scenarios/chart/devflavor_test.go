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

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// devCluster is a cluster of flavor dev. Its machines are in the memory of the Dev provider instead of containers: the lab has no Docker.
// They run no agent, so that it ends where that would have to register.
type devCluster struct {
	*repository
	key client.ObjectKey
}

// dockerBackend is the part of the template that is changed, of the cluster and of each machine.
var dockerBackend = regexp.MustCompile(`docker:( \{\}|\n +customImage: .*)`)

// create applies what clusterctl generates, and waits until the provider has made the machines with the bootstrap data of the hub.
func (d *devCluster) create(t *testing.T) {
	d.kubectl(t, "create", "namespace", d.key.Namespace)
	generated := d.clusterctl(t, "generate", "cluster", d.key.Name, "--infrastructure", "drover", "--flavor", "dev", "--target-namespace",
		d.key.Namespace, "--kubernetes-version", lab.Version, "--control-plane-machine-count", "1", "--worker-machine-count", "2")
	manifest := dockerBackend.ReplaceAllString(generated, "inMemory: {}")
	if strings.Count(manifest, "inMemory: {}") != 3 {
		t.Fatalf("clusterctl generates\n%s", generated)
	}
	file := filepath.Join(filepath.Dir(d.dir), "dev.yaml")
	suite.Must(t, os.WriteFile(file, []byte(manifest), 0o600))
	d.kubectl(t, "apply", "--filename", file)
	d.waitMachines(t)
	described := d.clusterctl(t, "describe", "cluster", d.key.Name, "--namespace", d.key.Namespace)
	for _, want := range []string{"DevCluster " + d.key.String(), "RKEControlPlane " + d.key.String(), "MachineDeployment " + d.key.String()} {
		if !strings.Contains(described, want) {
			t.Errorf("clusterctl describe does not show %s:\n%s", want, described)
		}
	}
}

// delete deletes the Cluster, and waits until nothing of it is left.
func (d *devCluster) delete(t *testing.T) {
	d.kubectl(t, "--namespace", d.key.Namespace, "delete", "clusters.cluster.x-k8s.io", d.key.Name, "--timeout=3m")
	const kinds = "machines,machinedeployments,devmachines,devclusters,devmachinetemplates,rkecontrolplanes,rkebootstraps," +
		"rkebootstraptemplates"
	suite.Must(t, shared.WaitFor(t.Context(), "nothing is left of it", time.Minute, func(ctx context.Context) (bool, string) {
		left, err := shared.TryKubectl(ctx, d.management.kubeconfig, "--namespace", d.key.Namespace, "get", kinds, "--output", "name")
		return err == nil && left == "", left
	}))
}

// waitMachines waits until the provider has made all machines.
func (d *devCluster) waitMachines(t *testing.T) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), "there are three machines", 3*time.Minute, func(ctx context.Context) (bool, string) {
		list := &clusterv1.MachineList{}
		if err := d.management.api.List(ctx, list, client.InNamespace(d.key.Namespace)); err != nil {
			return false, err.Error()
		}
		provisioned := 0
		var states []string
		for _, machine := range list.Items {
			states = append(states, machine.Name+" "+machine.Status.Phase)
			if machine.Status.Phase == string(clusterv1.MachinePhaseProvisioned) && machine.Spec.ProviderID != "" {
				provisioned++
			}
		}
		return provisioned == 3 && len(list.Items) == 3, fmt.Sprint(states)
	}))
}

func (d *devCluster) kubectl(t *testing.T, args ...string) {
	t.Helper()
	shared.RunKubectl(t, d.management.kubeconfig, args...)
}

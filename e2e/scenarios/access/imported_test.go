//go:build e2e

package access

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// TestImported takes in a cluster that somebody else made, on a machine that takes no connections.
func TestImported(t *testing.T) {
	key := client.ObjectKey{Namespace: namespace, Name: "imported"}
	host, u := closedHost(t, "foreign1"), newUser(t, "imported", "kubectl-1.36")
	suite.Step(t, "somebody has a cluster", func(t *testing.T) { installByHand(t, host) })
	var command string
	suite.Step(t, "a Cluster without rkeConfig gets a command to import it", func(t *testing.T) {
		shared.MakeNamespace(t, namespace)
		suite.Must(t, shared.Hub.Create(t.Context(),
			&provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}))
		out, err := u.command(t.Context(), "hub", "import-command", key.String(), "--kubeconfig", shared.HubKubeconfig()).Output()
		suite.Must(t, err)
		command = string(out)
		plant(t, "the registration token of an imported cluster", registrationRE.FindString(command))
	})
	suite.Step(t, "the command makes it Ready", func(t *testing.T) {
		onHost(t, host, command)
		began := time.Now()
		suite.Must(t, shared.WaitClusterReady(t.Context(), shared.Hub, key, 5*time.Minute))
		waitConnected(t, key)
		t.Logf("Ready after %.1f s", time.Since(began).Seconds())
	})
	suite.Step(t, "who administers the hub has no rights there until its owner gives him some", func(t *testing.T) {
		u.getKubeconfig(t, key)
		if out, err := u.try(t.Context(), 2*time.Minute, "get", "nodes"); err == nil ||
			!strings.Contains(err.Error(), `User "drover-hub-admin" cannot list resource "nodes"`) {
			t.Errorf("kubectl get nodes says %q, %v", out, err)
		}
		onHost(t, host, "kubectl create clusterrolebinding hub-admin --clusterrole=cluster-admin --group=drover:hub:system:masters")
		suite.Must(t, shared.WaitFor(t.Context(), "the cluster's API server knows of the rights", time.Minute, works(u, "get", "nodes")))
	})
	suite.Step(t, "kubectl reaches it, and its Pods", func(t *testing.T) {
		if out := u.run(t, "get", "nodes", "-o", "name"); !strings.Contains(out, "node/"+host.Name) {
			t.Errorf("kubectl get nodes says %q", out)
		}
		deploy(t, u)
		follow(t, u)
	})
	suite.Step(t, "when its Cluster is deleted the imported one lives on, and the hub does not lead there", func(t *testing.T) {
		shared.DeleteCluster(t, key)
		onHost(t, host, "kubectl get pod toolbox")
		suite.Must(t, shared.WaitFor(t.Context(), "the hub does not lead there", time.Minute, func(ctx context.Context) (bool, string) {
			out, err := u.try(ctx, 20*time.Second, "get", "nodes")
			return err != nil, out
		}))
	})
}

// installByHand makes a host a cluster, without the hub.
func installByHand(t *testing.T, host *hosts.Host) {
	t.Helper()
	release, err := shared.Distro(t.Context(), lab.Version)
	suite.Must(t, err)
	const artifacts = "/root/artifacts"
	suite.Must(t, os.MkdirAll(host.Path(artifacts), 0o755))
	files, err := os.ReadDir(release)
	suite.Must(t, err)
	for _, file := range files {
		raw, err := os.ReadFile(filepath.Join(release, file.Name()))
		suite.Must(t, err)
		suite.Must(t, os.WriteFile(filepath.Join(host.Path(artifacts), file.Name()), raw, 0o755))
	}
	suite.Must(t, os.MkdirAll(host.Path("/etc/rancher/k3s"), 0o755))
	mirrors := "mirrors: {docker.io: {endpoint: [\"" + shared.RegistryURL() + "\"]}}\n"
	suite.Must(t, os.WriteFile(host.Path("/etc/rancher/k3s/registries.yaml"), []byte(mirrors), 0o600))
	onHost(t, host, "INSTALL_K3S_ARTIFACT_PATH="+artifacts+" sh "+artifacts+"/install.sh")
}

// onHost runs a command on a host, as somebody who administers the cluster there.
func onHost(t *testing.T, host *hosts.Host, command string) {
	t.Helper()
	res, err := host.Script(t.Context(), "export KUBECONFIG=/etc/rancher/k3s/k3s.yaml\n"+command+"\n", nil)
	suite.Must(t, err)
	if res.ExitCode != 0 {
		t.Fatalf("a command on %s ended with %d: %s%s", host.Name, res.ExitCode, res.Stdout, res.Stderr)
	}
}

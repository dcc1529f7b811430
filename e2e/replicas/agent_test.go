//go:build e2e

package replicas

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
)

// agent is the cluster-agent of an imported cluster. What the cluster is has no part in this test: it is the API that the hub runs on
// itself.
type agent struct {
	program
	// cluster is the name of the management Cluster.
	cluster string
}

// importCluster imports a cluster, and returns its management Cluster once a controller has made that.
func (e *env) importCluster(t *testing.T, name string) string {
	t.Helper()
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	e.create(t, cluster)
	until(t, 2*time.Minute, "the management Cluster of "+name, func() error {
		if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
			return err
		}
		if cluster.Status.ClusterName == "" {
			return fmt.Errorf("there is none: %+v", cluster.Status.Conditions)
		}
		return nil
	})
	return cluster.Status.ClusterName
}

// addCluster imports a cluster and starts its agent.
func (e *env) addCluster(t *testing.T, name string) {
	t.Helper()
	a := &agent{cluster: e.importCluster(t, name)}
	e.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	a.program = program{name: "the agent of " + name, log: filepath.Join(e.dir, name+".log")}
	a.command = []string{
		binary("system-agent"), "cluster", "--kubeconfig", e.api.Kubeconfig(), "--namespace", name,
		"--credentials", e.registration(t, a.cluster), "--health-address", "",
	}
	a.env = []string{"CATTLE_CLUSTER=" + a.cluster}
	e.agents = append(e.agents, a)
	a.start(t)
}

// tunnels is to how many replicas there is a tunnel, as the agent tells in its log.
func (a *agent) tunnels(t *testing.T) int {
	t.Helper()
	n := 0
	for _, line := range a.lines(t) {
		if _, count, found := strings.Cut(line, " sessions="); found {
			n, _ = strconv.Atoi(strings.Fields(count)[0])
		}
	}
	return n
}

// registration makes what the manifest of a cluster-agent holds: where the hub is, and a token that is exchanged once.
func (e *env) registration(t *testing.T, cluster string) string {
	t.Helper()
	token, err := tokens.NewRegistrationToken()
	if err != nil {
		t.Fatal(err)
	}
	e.create(t, &managementv3.ClusterRegistrationToken{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "by-hand"},
		Spec: managementv3.ClusterRegistrationTokenSpec{
			ClusterName: cluster, Purpose: managementv3.AgentsPurpose,
			Made: &managementv3.MadeToken{ID: tokens.RegistrationID(token), Hash: tokens.Hash(token)},
		},
	})
	folder := filepath.Join(e.dir, "registration-"+cluster)
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"url": "https://" + e.gateways.Addr().String(), "token": token,
		"ca.crt": string(e.authorities)} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// create makes objects that are not there. An attempt may fail where the API asks a webhook of a replica that is just going.
func (e *env) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		again := false
		until(t, time.Minute, fmt.Sprintf("%T %s to be created", object, object.GetName()), func() error {
			err := e.client.Create(t.Context(), object)
			if again {
				err = client.IgnoreAlreadyExists(err) // made by an attempt that has failed after that
			}
			again = true
			return err
		})
	}
}

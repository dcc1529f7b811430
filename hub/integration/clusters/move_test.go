package clusters

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/secret"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/signing"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

const (
	movedNamespace = "fleet-move"
	movedName      = "wanderer"

	// movedMachineID and machineSecret are what the machine keeps, and proves by that it is the same.
	movedMachineID     = "one"
	movedMachineSecret = "the secret that the machine made up"
)

// TestMove moves a cluster with a machine to another hub with clusterctl: what machines depend on is moved unchanged, new plans restart
// nothing, and no credentials stay behind. The other hub has a process for each provider, as clusterctl installs it.
func TestMove(t *testing.T) {
	t.Parallel()
	clusterctl := buildClusterctl(t)
	cluster := newMoved(t)
	setConfigGeneration(t)
	machine := registeredMoved(t, cluster)
	plan := appliedMoved(t, machine)
	verifyMoved(t, cluster, machine)
	management := cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
	newMovedCredentials(t, management)
	snapshot := newMovedSnapshot(t)

	from := versioned(t, env.Config)
	describe := clusterctl.run(t, "describe", "cluster", movedName, "-n", movedNamespace, "--kubeconfig", from, "--show-conditions", "all")
	for _, want := range []string{"Cluster " + movedNamespace + "/" + movedName, "RKECluster " + movedNamespace + "/" + movedName,
		"RKEControlPlane " + movedNamespace + "/" + movedName, "Machine " + movedNamespace + "/" + machine, "RollingOut"} {
		if !strings.Contains(describe, want) {
			t.Errorf("clusterctl describe does not show %s:\n%s", want, describe)
		}
	}

	kept := map[string]map[string][]byte{}
	for _, secretName := range []string{
		rkev1.ClusterStateSecretName(movedName), secret.Name(movedName, secret.ClusterCA), secret.Name(movedName, "cca"),
	} {
		kept[secretName] = readSecret(t, env.Client, secretName).Data
	}
	before := readSecret(t, env.Client, rkev1.PlanSecretName(machine))

	target := startTarget(t, from)
	checkIdentity(t, target, from)
	t.Log(clusterctl.run(t, "move", "-n", movedNamespace, "--kubeconfig", from, "--to-kubeconfig", target.Kubeconfig))

	testenv.Until(t, "the hub that it came to to work on it", func() error {
		reportMoved(t, target, machine)
		moved := &rkev1.RKEControlPlane{}
		if err := target.Get(t.Context(), client.ObjectKey{Namespace: movedNamespace, Name: movedName}, moved); err != nil {
			return err
		}
		if !conditions.IsTrue(moved, rkev1.StableCondition) || !conditions.IsTrue(moved, rkev1.BootstrappedCondition) {
			return fmt.Errorf("the RKEControlPlane has %+v", moved.Status.Conditions)
		}
		prov := &provisioningv1.Cluster{}
		if err := target.Get(t.Context(), client.ObjectKey{Namespace: movedNamespace, Name: movedName}, prov); err != nil {
			return err
		}
		if !conditions.IsTrue(prov, provisioningv1.CreatedCondition) || prov.Annotations[rkev1.ClusterUIDAnnotation] != string(prov.UID) {
			return fmt.Errorf("the Cluster has %+v", prov.Status.Conditions)
		}
		if err := checkMovedSnapshot(t.Context(), target, snapshot); err != nil {
			return err
		}
		return target.Get(t.Context(), client.ObjectKey{Name: management}, &managementv3.Cluster{})
	})
	checkLeftBehind(t, target, management)
	if err := checkLeaders(t.Context(), target); err != nil {
		t.Error(err)
	}
	for _, health := range target.health {
		checkHealth(t, health)
	}
	for secretName, data := range kept {
		for key, value := range data {
			if got := readSecret(t, target, secretName).Data[key]; !bytes.Equal(got, value) {
				t.Errorf("Secret %s has another %s than before", secretName, key)
			}
		}
	}
	after := readSecret(t, target, rkev1.PlanSecretName(machine))
	wanted, err := plans.Decode(after.Data[plans.KeyPlan])
	if err != nil {
		t.Fatal(err)
	}
	// The Machine has another UID there, and its Node is to be labelled with it.
	if impact := render.ImpactOf(plan, wanted); impact != render.ImpactNone {
		t.Errorf("the machine was given a plan with the impact %s: %s", impact, plans.Diff(plan, wanted))
	}
	if url := after.Annotations[rkev1.JoinURLAnnotation]; url == "" || url != before.Annotations[rkev1.JoinURLAnnotation] {
		t.Errorf("the machine is joined at %q, was at %q", url, before.Annotations[rkev1.JoinURLAnnotation])
	}
	if after.Labels[rkev1.InitNodeLabel] != "true" {
		t.Error("the init node lost its mark")
	}
	testenv.Until(t, "the machine's identity to be created again", func() error {
		if err := target.Get(t.Context(), client.ObjectKey{Namespace: movedNamespace, Name: rkev1.PlanSecretName(machine)},
			&corev1.ServiceAccount{}); err != nil {
			return err
		}
		if token := readSecret(t, target, rkev1.PlanTokenSecretName(machine)); len(token.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return fmt.Errorf("the token is empty")
		}
		return nil
	})
	testenv.Until(t, "the machine to reconnect with its ID and secret", func() error { return target.reconnect(t, machine) })
	testenv.Until(t, "credentials to be deleted", func() error { return checkNoCredentials(t.Context(), cluster) })
}

// checkIdentity: to machines the hub that the cluster comes to is the one that they know. To copy the identity again changes nothing.
func checkIdentity(t *testing.T, target *target, from string) {
	t.Helper()
	if !bytes.Equal(target.CACerts, env.CACerts) {
		t.Error("machines would not trust the gateway of the other hub")
	}
	var out bytes.Buffer
	if err := copyIdentity(from, target.Kubeconfig, &out); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "is there already"); got != 3 {
		t.Errorf("the command says\n%s", out.String())
	}
	system := client.ObjectKey{Namespace: settings.DefaultSystemNamespace}
	for _, system.Name = range []string{signing.SecretName, tokens.SecretName} {
		var ours, theirs corev1.Secret
		if err := errors.Join(env.Client.Get(t.Context(), system, &ours), target.Get(t.Context(), system, &theirs)); err != nil {
			t.Fatal(err)
		}
		if len(ours.Data) == 0 || !maps.EqualFunc(ours.Data, theirs.Data, bytes.Equal) {
			t.Errorf("the other hub has another %s", system.Name)
		}
	}
}

// newMoved creates a Cluster without pools, and waits until machines can register.
func newMoved(t *testing.T) *provisioningv1.Cluster {
	t.Helper()
	cluster := &provisioningv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: movedNamespace, Name: movedName},
		Spec:       provisioningv1.ClusterSpec{KubernetesVersion: "v1.36.3+k3s1", RKEConfig: &provisioningv1.RKEConfig{}},
	}
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: movedNamespace}}, cluster} {
		if err := env.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Until(t, "the management Cluster", func() error {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
			return err
		}
		if !conditions.IsTrue(cluster, provisioningv1.CreatedCondition) {
			return fmt.Errorf("it has %+v", cluster.Status.Conditions)
		}
		return env.Client.Get(t.Context(), client.ObjectKey{Name: cluster.Annotations[rkev1.ManagementClusterNameAnnotation]},
			&corev1.Namespace{})
	})
	return cluster
}

// registeredMoved registers a machine with all roles as the gateway does, and returns its name.
func registeredMoved(t *testing.T, cluster *provisioningv1.Cluster) string {
	t.Helper()
	hash := sha256.Sum256([]byte(movedMachineSecret))
	data, err := json.Marshal(map[string][]string{
		rkev1.HeaderID: {movedMachineID}, rkev1.HeaderMachineSecretHash: {hex.EncodeToString(hash[:])},
		rkev1.HeaderDetectedAddress: {"192.0.2.1"},
		rkev1.HeaderRoleEtcd:        {"true"}, rkev1.HeaderRoleControlPlane: {"true"}, rkev1.HeaderRoleWorker: {"true"},
	})
	if err != nil {
		t.Fatal(err)
	}
	request := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Annotations[rkev1.ManagementClusterNameAnnotation],
			Name: rkev1.MachineRequestName(movedMachineID)},
		Type: rkev1.MachineRequestSecretType,
		Data: map[string][]byte{rkev1.MachineRequestDataKey: data},
	}
	if err := env.Client.Create(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	return request.Name
}

// appliedMoved waits for the machine's plan and reports it as applied.
func appliedMoved(t *testing.T, machine string) plans.Plan {
	t.Helper()
	var plan plans.Plan
	testenv.Until(t, "a plan", func() error {
		found := &corev1.Secret{}
		if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: movedNamespace, Name: rkev1.PlanSecretName(machine)},
			found); err != nil {
			return err
		}
		if len(found.Data[plans.KeyPlan]) == 0 {
			return errors.New("no plan was delivered")
		}
		var err error
		plan, err = plans.Decode(found.Data[plans.KeyPlan])
		return err
	})
	reportMoved(t, env.Client, machine)
	return plan
}

// reportMoved reports the plan as applied and every probe as healthy, unless it was reported before.
func reportMoved(t *testing.T, to client.Client, machine string) {
	t.Helper()
	testenv.OnConflict(t, "reporting for the machine", func() error {
		found := &corev1.Secret{}
		if err := to.Get(t.Context(), client.ObjectKey{Namespace: movedNamespace, Name: rkev1.PlanSecretName(machine)}, found); err != nil {
			return err
		}
		raw := found.Data[plans.KeyPlan]
		status, err := plans.DecodeStatus(found.Data)
		if err != nil || status.State == plans.StateSucceeded && status.AppliedChecksum == plans.Checksum(raw) {
			return err
		}
		plan, err := plans.Decode(raw)
		if err != nil {
			return err
		}
		status = plans.Status{State: plans.StateSucceeded, AppliedChecksum: plans.Checksum(raw), Revision: status.Revision + 1,
			ProbeStatuses: map[string]plans.ProbeStatus{}}
		for probe := range plan.Probes {
			status.ProbeStatuses[probe] = plans.ProbeStatus{Healthy: true}
		}
		if err := status.WriteTo(found.Data); err != nil {
			return err
		}
		return to.Update(t.Context(), found)
	})
}

// verifyMoved waits until the cluster has converged, and sets the reference to a Node, which clusterctl requires.
func verifyMoved(t *testing.T, cluster *provisioningv1.Cluster, machine string) {
	t.Helper()
	testenv.Until(t, "the cluster to be at rest", func() error {
		controlPlane := &rkev1.RKEControlPlane{}
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(cluster), controlPlane); err != nil {
			return err
		}
		capi := &clusterv1.Cluster{}
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(cluster), capi); err != nil {
			return err
		}
		if !conditions.IsTrue(controlPlane, rkev1.StableCondition) ||
			!conditions.IsTrue(capi, clusterv1.ClusterControlPlaneInitializedCondition) {
			return fmt.Errorf("the RKEControlPlane has %+v", controlPlane.Status.Conditions)
		}
		return nil
	})
	found := &clusterv1.Machine{}
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: movedNamespace, Name: machine}, found); err != nil {
		t.Fatal(err)
	}
	patch := client.MergeFrom(found.DeepCopy())
	found.Status.NodeRef = clusterv1.MachineNodeReference{Name: machine}
	if err := env.Client.Status().Patch(t.Context(), found, patch); err != nil {
		t.Fatal(err)
	}
}

// reconnect requests the connection info as an agent does whose token is refused, and uses it.
func (h *target) reconnect(t *testing.T, machine string) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(h.CACerts)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.ServerURL+"/v3/connect/agent", nil)
	if err != nil {
		return err
	}
	request.Header.Set("X-Cattle-Id", movedMachineID)
	request.Header.Set("X-Cattle-Machine-Secret", movedMachineSecret)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("the gateway answers %d %s (%w)", response.StatusCode, body, err)
	}
	var connection struct{ KubeConfig, Namespace, SecretName string }
	if err := json.Unmarshal(body, &connection); err != nil {
		return err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(connection.KubeConfig))
	if err != nil {
		return err
	}
	if connection.Namespace != movedNamespace || connection.SecretName != rkev1.PlanSecretName(machine) {
		return fmt.Errorf("the connection is for %s/%s", connection.Namespace, connection.SecretName)
	}
	agent, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = agent.CoreV1().Secrets(movedNamespace).Get(t.Context(), connection.SecretName, metav1.GetOptions{})
	return err
}

// checkNoCredentials checks that nothing of the cluster is left on the hub that it was moved from.
func checkNoCredentials(ctx context.Context, cluster *provisioningv1.Cluster) error {
	in := client.InNamespace(movedNamespace)
	var secrets corev1.SecretList
	var accounts corev1.ServiceAccountList
	var roles rbacv1.RoleList
	for _, list := range []client.ObjectList{&secrets, &accounts, &roles} {
		if err := env.Client.List(ctx, list, in); err != nil {
			return err
		}
	}
	accounts.Items = slices.DeleteFunc(accounts.Items, func(a corev1.ServiceAccount) bool { return a.Name == "default" })
	if len(secrets.Items)+len(accounts.Items)+len(roles.Items) > 0 {
		return fmt.Errorf("%d Secrets, %d ServiceAccounts and %d Roles are there", len(secrets.Items), len(accounts.Items), len(roles.Items))
	}
	management := client.ObjectKey{Name: cluster.Annotations[rkev1.ManagementClusterNameAnnotation]}
	for _, object := range []client.Object{&managementv3.Cluster{}, &corev1.Namespace{}} {
		if err := env.Client.Get(ctx, management, object); err == nil {
			return fmt.Errorf("%T %s still exists", object, management.Name)
		}
	}
	return nil
}

func readSecret(t *testing.T, from client.Client, name string) *corev1.Secret {
	t.Helper()
	found := &corev1.Secret{}
	if err := from.Get(t.Context(), client.ObjectKey{Namespace: movedNamespace, Name: name}, found); err != nil {
		t.Fatalf("reading Secret %s: %v", name, err)
	}
	return found
}

// clusterctl is the path of the program.
type clusterctl string

// run runs it and returns what it printed.
func (program clusterctl) run(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), string(program), args...)
	command.Env = append(command.Environ(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "XDG_CONFIG_HOME="+t.TempDir())
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("clusterctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

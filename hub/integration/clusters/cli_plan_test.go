package clusters

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/cli"
	"github.com/drover-dev/drover/hub/plan/preview"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/testenv"
)

// hub runs a command with a kubeconfig.
func hub(kubeconfig string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = cli.Main(append(args, "--kubeconfig", kubeconfig), &out, &errs)
	return code, out.String(), errs.String()
}

// manifest writes the edited Cluster to a file, as kubectl edit shows it.
func manifest(r *testenv.FakeCluster, edit func(map[string]any)) string {
	r.T.Helper()
	r.Read(r.Cluster.Name, r.Cluster)
	r.Cluster.SetGroupVersionKind(provisioningv1.GroupVersion.WithKind("Cluster"))
	raw, err := json.Marshal(r.Cluster)
	if err != nil {
		r.T.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		r.T.Fatal(err)
	}
	edit(object["spec"].(map[string]any))
	if raw, err = yaml.Marshal(object); err != nil {
		r.T.Fatal(err)
	}
	path := filepath.Join(r.T.TempDir(), "cluster.yaml")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		r.T.Fatal(err)
	}
	return path
}

// versions returns the resource versions of objects that a dry run must not change.
func versions(r *testenv.FakeCluster) map[string]string {
	r.T.Helper()
	out := map[string]string{}
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &provisioningv1.ClusterList{}, &rkev1.RKEControlPlaneList{},
		&rkev1.RKEBootstrapList{}} {
		if err := env.Client.List(r.T.Context(), list, client.InNamespace(r.Cluster.Namespace)); err != nil {
			r.T.Fatal(err)
		}
		raw, err := json.Marshal(list)
		if err != nil {
			r.T.Fatal(err)
		}
		var objects struct {
			Items []metav1.PartialObjectMetadata `json:"items"`
		}
		if err := json.Unmarshal(raw, &objects); err != nil {
			r.T.Fatal(err)
		}
		for _, o := range objects.Items {
			out[fmt.Sprintf("%T %s", list, o.Name)] = o.ResourceVersion
		}
	}
	return out
}

// TestPlanDiff: the changes that "hub plan diff" shows are those that are made; it writes nothing and shows no secret.
func TestPlanDiff(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "edited", map[string]any{"selinux": true})
	m := r.Register("one", "127.0.0.3", "etcd", "control-plane", "worker")
	_, checksum := m.AwaitPlan("")
	m.Take()
	m.Succeed()
	awaitPhase(r, "Machine", m.Name, "WaitingForNode")
	name := r.Cluster.Namespace + "/" + r.Cluster.Name
	admin := env.Server.Kubeconfig()

	r.Wait("the cluster to be at rest", func() error {
		if code, out, errs := hub(admin, "plan", "diff", name, "--exit-code"); code != 0 || !strings.Contains(out, "no change on its 1 machine") {
			return fmt.Errorf("exit code %d\n%s%s", code, out, errs)
		}
		return nil
	})
	edited := manifest(r, func(spec map[string]any) {
		spec["rkeConfig"].(map[string]any)["machineGlobalConfig"] = map[string]any{
			"selinux": true, "tls-san": []any{"api.example.com"}, "clutser-cidr": "10.0.0.0/8", "etcd-s3-secret-key": leak,
		}
	})
	var out string
	r.Wait("a dry run during which nothing is written", func() error { // a controller may still write what it owes
		before := versions(r)
		var code int
		var errs string
		if code, out, errs = hub(admin, "plan", "diff", "-f", edited, "-o", "json", "--exit-code"); code != 2 {
			t.Fatalf("exit code %d: %s%s", code, out, errs)
		}
		if diff := cmp.Diff(before, versions(r)); diff != "" {
			return fmt.Errorf("it was:\n%s", diff)
		}
		return nil
	})
	checkReport(t, m, out)
	checkSecrets(r, out)
	if code, table, errs := hub(admin, "plan", "diff", "-f", edited); code != 0 || !strings.Contains(table, "+- api.example.com") ||
		!strings.Contains(table, "warning  ") {
		t.Errorf("as a table: exit code %d\n%s%s", code, table, errs)
	}

	agent := manifest(r, func(spec map[string]any) {
		spec["clusterAgentDeploymentCustomization"] = map[string]any{"appendTolerations": []any{map[string]any{"key": "dedicated",
			"operator": "Exists"}}}
	})
	if code, out, errs := hub(admin, "plan", "diff", "-f", agent, "--exit-code"); code != 2 || !strings.Contains(out, "cluster-agent.yaml") ||
		!strings.Contains(out, "dedicated") {
		t.Errorf("the agent is customized: exit code %d\n%s%s", code, out, errs)
	}
	misspelt := manifest(r, func(spec map[string]any) { spec["kubernetesVersoin"] = "v1.36.3+k3s1" })
	if code, _, errs := hub(admin, "plan", "diff", "-f", misspelt); code != 1 ||
		!strings.Contains(errs, `unknown field "spec.kubernetesVersoin"`) {
		t.Errorf("a misspelt field: exit code %d, %s", code, errs)
	}
	refused := manifest(r, func(spec map[string]any) { delete(spec, "rkeConfig") })
	if code, _, errs := hub(admin, "plan", "diff", "-f", refused); code != 1 ||
		!strings.Contains(errs, "spec.rkeConfig cannot be added to a cluster or removed from it later") {
		t.Errorf("what the API server refuses: exit code %d, %s", code, errs)
	}
	checkRights(r, name, edited)
	checkApplied(r)

	// Now for real.
	raw, err := os.ReadFile(edited)
	if err != nil {
		t.Fatal(err)
	}
	wanted := &provisioningv1.Cluster{}
	if err := yaml.Unmarshal(raw, wanted); err != nil {
		t.Fatal(err)
	}
	old := r.Cluster.DeepCopy()
	r.Cluster.Spec = wanted.Spec
	if err := env.Client.Patch(t.Context(), r.Cluster, client.MergeFrom(old)); err != nil {
		t.Fatal(err)
	}
	m.AwaitPlan(checksum)
	r.Wait("no change once it is delivered", func() error {
		if code, out, errs := hub(admin, "plan", "diff", name, "--exit-code"); code != 0 {
			return fmt.Errorf("exit code %d\n%s%s", code, out, errs)
		}
		return nil
	})
	checkStatus(r, m, name)
}

// checkApplied checks that fields that are missing in a manifest are removed, if "kubectl apply" had set them.
func checkApplied(r *testenv.FakeCluster) {
	r.T.Helper()
	text := func(config string) string {
		return fmt.Sprintf(`{"apiVersion":"provisioning.cattle.io/v1","kind":"Cluster","metadata":{"namespace":%q,"name":%q},`+
			`"spec":{"kubernetesVersion":%q,"rkeConfig":{"machineGlobalConfig":{%s}}}}`, r.Cluster.Namespace, r.Cluster.Name,
			r.Cluster.Spec.KubernetesVersion, config)
	}
	old := r.Cluster.DeepCopy()
	metav1.SetMetaDataAnnotation(&r.Cluster.ObjectMeta, corev1.LastAppliedConfigAnnotation, text(`"selinux":true`))
	if err := env.Client.Patch(r.T.Context(), r.Cluster, client.MergeFrom(old)); err != nil {
		r.T.Fatal(err)
	}
	path := filepath.Join(r.T.TempDir(), "applied.json")
	if err := os.WriteFile(path, []byte(text(`"debug":true`)), 0o600); err != nil {
		r.T.Fatal(err)
	}
	code, out, errs := hub(env.Server.Kubeconfig(), "plan", "diff", "-f", path)
	if code != 0 || !strings.Contains(out, "+debug: true") || !strings.Contains(out, "-selinux: true") {
		r.T.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}

func checkReport(t *testing.T, m *testenv.FakeMachine, out string) {
	t.Helper()
	var report preview.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	if len(report.Machines) != 1 || !report.Changes || report.Machines[0].Impact == preview.ImpactNone ||
		report.Impact != report.Machines[0].Impact {
		t.Fatalf("the report is\n%s", out)
	}
	changes := map[string]string{}
	for _, c := range report.Machines[0].Changes {
		changes[c.What+" "+c.Name] = c.Diff
	}
	config := changes["file /etc/rancher/k3s/config.yaml.d/50-rancher.yaml"]
	if !strings.Contains(config, "+- api.example.com") || !strings.Contains(config, "+etcd-s3-secret-key: (hidden, ") {
		t.Errorf("the configuration changes by\n%s", config)
	}
	if !strings.Contains(changes["instruction install"], "RESTART_STAMP=") {
		t.Errorf("it changes %v", slices.Sorted(maps.Keys(changes)))
	}
	if !slices.ContainsFunc(report.Warnings, func(w string) bool { return strings.Contains(w, "clutser-cidr") }) {
		t.Errorf("the warnings are %q", report.Warnings)
	}
	if diff := cmp.Diff([][]string{{m.Name}}, report.Order); diff != "" {
		t.Errorf("order: -want +got:\n%s", diff)
	}
}

// checkSecrets checks that the output has no data of a Secret of the cluster.
func checkSecrets(r *testenv.FakeCluster, out string) {
	r.T.Helper()
	if strings.Contains(out, leak) {
		r.T.Errorf("the answer shows the key of a bucket")
	}
	tokens := &corev1.Secret{}
	r.Read(rkev1.ClusterStateSecretName(r.Cluster.Name), tokens)
	for key, value := range tokens.Data {
		if strings.Contains(out, string(value)) {
			r.T.Errorf("the answer shows %s", key)
		}
	}
	if strings.Contains(out, "PRIVATE KEY") {
		r.T.Errorf("the answer shows a private key")
	}
}

// rights are those in docs/hub-commands.md.
var rights = []rbacv1.PolicyRule{
	{APIGroups: []string{"provisioning.cattle.io"}, Resources: []string{"clusters"}, Verbs: []string{"get", "create", "update", "patch"}},
	{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"clusters"}, Verbs: []string{"get"}},
	{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"machines", "machinedeployments"}, Verbs: []string{"list"}},
	{APIGroups: []string{"rke.cattle.io"}, Resources: []string{"rkecontrolplanes", "rkeclusters"}, Verbs: []string{"get"}},
	{APIGroups: []string{"rke.cattle.io"}, Resources: []string{"rkebootstraps"}, Verbs: []string{"get", "list"}},
	{Resources: []string{"configmaps"}, APIGroups: []string{""}, Verbs: []string{"get"}},
	{Resources: []string{"secrets"}, APIGroups: []string{""}, Verbs: []string{"get", "list"}},
}

// checkRights checks that the documented rights are sufficient, and that a missing one is named.
func checkRights(r *testenv.FakeCluster, name, edited string) {
	t := r.T
	t.Helper()
	subject := []rbacv1.Subject{{Kind: "User", Name: "jane", APIGroup: rbacv1.GroupName}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster.Namespace, Name: "viewer"}, Rules: rights[:len(rights)-1]}
	system := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: settings.DefaultSystemNamespace, Name: "settings-reader"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{settings.ConfigMapName}, Verbs: []string{"get"}},
		}}
	for _, role := range []*rbacv1.Role{role, system} {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: role.Namespace, Name: role.Name}, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		}
		for _, object := range []client.Object{role, binding} {
			if err := env.Client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = env.Client.Delete(t.Context(), object) })
		}
	}
	config, err := clientcmd.LoadFromFile(env.Server.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = "jane"
	}
	jane := filepath.Join(t.TempDir(), "jane.kubeconfig")
	if err := clientcmd.WriteToFile(*config, jane); err != nil {
		t.Fatal(err)
	}
	r.Wait("a right to be missed", func() error {
		code, _, errs := hub(jane, "plan", "diff", name)
		if code != 1 || !strings.Contains(errs, "a right is missing: ") || !strings.Contains(errs, `cannot list resource "secrets"`) {
			return fmt.Errorf("exit code %d: %s", code, errs)
		}
		return nil
	})
	role.Rules = rights
	if err := env.Client.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	r.Wait("the listed rights to be enough", func() error {
		for _, args := range [][]string{{name}, {"-f", edited}} {
			if code, _, errs := hub(jane, append([]string{"plan", "diff"}, args...)...); code != 0 {
				return fmt.Errorf("%v: exit code %d: %s", args, code, errs)
			}
		}
		return nil
	})
}

// checkStatus checks that the other commands show the machine, too.
func checkStatus(r *testenv.FakeCluster, m *testenv.FakeMachine, name string) {
	r.T.Helper()
	for _, command := range []string{"status", "timeline"} {
		code, out, errs := hub(env.Server.Kubeconfig(), command, name)
		if code != 0 || !strings.Contains(out, m.Name) || !strings.Contains(out, "PHASE") {
			r.T.Errorf("%s: exit code %d\n%s%s", command, code, out, errs)
		}
		code, _, errs = hub(env.Server.Kubeconfig(), command, r.Cluster.Namespace+"/nobody")
		if want := fmt.Sprintf("hub: cluster %s/nobody has no timeline", r.Cluster.Namespace); code != 1 || !strings.HasPrefix(errs, want) {
			r.T.Errorf("%s of nobody: exit code %d, %s", command, code, errs)
		}
	}
}
